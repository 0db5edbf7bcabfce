"""Speeds that a device once reached, by UUID, kept on the machine: a GPU that grows slower shows before it fails."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from paddock.baselines import Baselines
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.verdict.model import SCHEMA, MachineVerdict


def default_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's own folder for them."""
    state = environ.get("XDG_STATE_HOME") or Path.home() / ".local/state"
    return Path(state) / "paddock" / "smoke"


def read(folder: Path, uuid: str) -> dict[str, float]:
    """Return speeds by name of measurement; none for a device of which nothing was learned. Raises SmokeInputError."""
    store = Baselines(folder)
    try:
        document = store.read(uuid)
        return {str(name): float(value) for name, value in document["speeds"].items()} if document is not None else {}
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        raise SmokeInputError(
            f"{store.path(uuid)}: not a baseline of a device\n    expected: what `smoke --learn` writes\n"
            "    fix: remove it"
        ) from None


def learn(folder: Path, report: MachineVerdict) -> list[Path]:
    """Keep the speeds of every device without a failure or warning, and return the files. Raises OSError."""
    store, written = Baselines(folder, private=True), []
    for device in report.devices:
        own = [stage for stage in report.stages if stage.gpu == device.uuid]
        speeds = {item.name: item.value for stage in own for item in stage.measurements}
        if speeds and all(stage.status in ("pass", "skip") for stage in own):
            document = {"schema": SCHEMA, "taken_at": report.taken_at, "name": device.name, "speeds": speeds}
            written.append(store.keep(device.uuid, document, replace=True))
    return [path for path in written if path]
