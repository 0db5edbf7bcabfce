"""Speeds that a device once reached, by UUID, kept on the machine: a GPU that grows slower shows before it fails."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path

from paddock import files
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.verdict.model import SCHEMA, Report


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's own folder for them."""
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "paddock" / "smoke"


def read(folder: Path, uuid: str) -> dict[str, float]:
    """Return speeds by name of measurement; none for a device of which nothing was learned. Raises SmokeInputError."""
    path = _path(folder, uuid)
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return {str(name): float(value) for name, value in document["speeds"].items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise SmokeInputError(
            f"{path}: this is no baseline of a device\n    expected: what `smoke --learn` writes\n    fix: remove it"
        ) from None


def learn(folder: Path, report: Report) -> list[Path]:
    """Keep the speeds of every device without a failure or warning, and return the files. Raises OSError."""
    written = []
    for device in report.devices:
        own = [stage for stage in report.stages if stage.gpu == device.uuid]
        speeds = {item.name: item.value for stage in own for item in stage.measurements}
        if speeds and all(stage.status in ("pass", "skip") for stage in own):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            path = _path(folder, device.uuid)
            document = {"schema": SCHEMA, "taken_at": report.taken_at, "name": device.name, "speeds": speeds}
            files.write(path, json.dumps(document, indent=2) + "\n")
            written.append(path)
    return written


def _path(folder: Path, uuid: str) -> Path:
    return folder / f"{re.sub(r'[^A-Za-z0-9-]', '_', uuid)}.json"
