"""Instances of a cluster in a file on the head: a scheduler or a head that starts anew declares them again."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from paddock import files
from paddock.serve.deployment.external import Endpoint, endpoint
from paddock.serve.deployment.instances.instance import Instance

FILE = "models.saved"
"""Name of the file, in the folder of the cluster's state."""
_SCHEMA = 2


def write(path: Path, instances: Iterable[Instance], endpoints: Iterable[dict[str, Any]] = ()) -> None:
    """Write the instances with their plans, and the endpoints of external engines. Raises OSError."""
    models = TypeAdapter(list[Instance]).dump_python([*instances], mode="json")
    files.write(path, json.dumps({"schema": _SCHEMA, "models": models, "endpoints": [*endpoints]}) + "\n", 0o600)


def read(path: Path) -> tuple[Instance, ...]:
    """Return the instances of a file; none where there is no file, or one of another version."""
    try:
        return tuple(TypeAdapter(list[Instance]).validate_python(_document(path)["models"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def read_endpoints(path: Path) -> tuple[Endpoint, ...]:
    """Return the endpoints of a file; none where there is no file, or one of another version."""
    try:
        return tuple(endpoint(**row) for row in _document(path)["endpoints"])
    except (OSError, ValueError, KeyError, TypeError):
        return ()


def _document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if document["schema"] != _SCHEMA:
        raise ValueError
    return document
