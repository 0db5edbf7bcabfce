"""Models of a cluster in a file on the head: a head that starts anew declares them again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock import files
from paddock.bench.engine.shapes import Shape
from paddock.serve.deployment.external import Endpoint, endpoint
from paddock.serve.placement.request import Policy, Request

FILE = "models.saved"
"""Name of the file, in the folder of the cluster's state."""
_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Saved:
    """A declared model, and the agents that it ran on. `source` is its checkpoint's folder."""

    id: str
    request: Request
    policy: Policy
    source: str
    agents: tuple[str, ...] = ()


def write(path: Path, models: Iterable[Saved], endpoints: Iterable[dict[str, Any]] = ()) -> None:
    """Write the models, and the endpoints of external engines. Raises OSError."""
    document = {
        "schema": _SCHEMA, "models": [asdict(model) for model in models], "endpoints": list(endpoints)
    }  # fmt: skip
    files.write(path, json.dumps(document, indent=2) + "\n", 0o600)


def read(path: Path) -> tuple[Saved, ...]:
    """Return the models of a file; none where there is no file, or one of another version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return tuple(map(_saved, document["models"])) if document["schema"] == _SCHEMA else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def read_endpoints(path: Path) -> tuple[Endpoint, ...]:
    """Return the endpoints of a file; none where there is no file, or one of another version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        return tuple(endpoint(**row) for row in document["endpoints"]) if document["schema"] == _SCHEMA else ()
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _saved(row: dict[str, Any]) -> Saved:
    request = Request(**{**row["request"], "shape": Shape(**row["request"]["shape"])})
    return Saved(row["id"], request, Policy(**row["policy"]), row["source"], tuple(row["agents"]))
