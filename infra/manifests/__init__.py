"""Manifests and charts' values that are mostly fixed: YAML, which code fills in."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_PLACE = re.compile(r"\$([a-z_]+)")

CONTAINER = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
"""Security context of a container; `$container` of every manifest."""


def manifest(name: str, /, **values: Any) -> Any:
    """Return NAME.yaml with a value in the place of each `$key`: itself where that is all there is, else as text."""
    return _filled(_read(name), {"container": CONTAINER, **values})


@cache
def _read(name: str) -> Any:
    text = Path(__file__).with_name(f"{name}.yaml").read_text(encoding="utf-8")
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one, in C


def _filled(node: Any, values: Mapping[str, Any]) -> Any:
    match node:
        case dict():
            return {key: _filled(item, values) for key, item in node.items()}
        case list():
            return [_filled(item, values) for item in node]
        case str() if whole := _PLACE.fullmatch(node):
            return values[whole[1]]
        case str():
            return _PLACE.sub(lambda place: str(values[place[1]]), node)
        case _:
            return node
