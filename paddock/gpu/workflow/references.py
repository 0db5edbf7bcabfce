"""`${steps.detect.gpus[0].uuid}`: what an earlier step answered, in the parameters of a later one.

A path of keys and indexes, and nothing else: nothing is computed. Text that is a reference alone becomes the value
itself; within other text only text, numbers and booleans can stand. `$${` is `${` as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from paddock.gpu.errors import GpuInputError
from paddock.gpu.parameter import one_of

_PATTERN = re.compile(r"\$\$\{|\$\{([^}]*)\}")
_MEANT = re.compile(r"\s*steps?\b", re.IGNORECASE)
_STEP = re.compile(r"steps\.([A-Za-z0-9_-]+)((?:\.[A-Za-z0-9_-]+|\[\d+\])*)")
_KEY = re.compile(r"\.([A-Za-z0-9_-]+)|\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Reference:
    text: str
    step: str
    path: tuple[str | int, ...]


def references(value: Any) -> Iterator[Reference]:
    """Yield all references in a value, at any depth. Raises GpuInputError for a malformed reference."""
    if isinstance(value, str):
        for match in _PATTERN.finditer(value):
            if (reference := _reference(match)) is not None:
                yield reference
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from references(inner)


def resolve(value: Any, results: Mapping[str, Any]) -> Any:
    """Return the value with its references replaced by the steps' results. Raises GpuInputError."""
    if isinstance(value, str):
        whole = _PATTERN.fullmatch(value)
        if whole and (reference := _reference(whole)) is not None:
            return _look_up(reference, results)
        return _PATTERN.sub(lambda match: _text(match, results), value)
    if isinstance(value, Mapping):
        return {key: resolve(inner, results) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [resolve(inner, results) for inner in value]
    return value


def _reference(match: re.Match[str]) -> Reference | None:
    """Return the reference, or None for other text, such as a shell's `${HOME}`."""
    inner = match[1]
    if inner is None or not _MEANT.match(inner):
        return None
    step = _STEP.fullmatch(inner)
    if step is None:
        raise GpuInputError(
            f"{match[0]} is no reference\n    expected: ${{steps.ID.key}}, with .key and [0] for what lies deeper"
            "\n    fix: write $${ where ${ itself is meant"
        )
    path = tuple(int(index) if index else key for key, index in _KEY.findall(step[2]))
    return Reference(match[0], step[1], path)


def _text(match: re.Match[str], results: Mapping[str, Any]) -> str:
    if match[1] is None:
        return "${"
    reference = _reference(match)
    if reference is None:
        return match[0]
    value = _look_up(reference, results)
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str | int | float):
        raise GpuInputError(
            f"{reference.text} is {_kind(value)}\n    expected: text or a number within other text"
            "\n    fix: name a part of it, or let the reference be all of the value"
        )
    return str(value)


def _look_up(reference: Reference, results: Mapping[str, Any]) -> Any:
    value = results[reference.step]
    for key in reference.path:
        if isinstance(key, int) and isinstance(value, list):
            if key >= len(value):
                raise GpuInputError(f"{reference.text}: there is no [{key}]\n    expected: one of {len(value)} values")
            value = value[key]
        elif isinstance(key, str) and isinstance(value, Mapping):
            if key not in value:
                expected = one_of(key, list(value)) if value else "nothing, since it is empty"
                raise GpuInputError(f"{reference.text}: there is no {key!r}\n    expected: {expected}")
            value = value[key]
        else:
            part = f"[{key}]" if isinstance(key, int) else f".{key}"
            raise GpuInputError(f"{reference.text}: {_kind(value)} has no {part}\n    expected: a key that is there")
    return value


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "text", type(None): "null"}.get(type(value), "a number")
