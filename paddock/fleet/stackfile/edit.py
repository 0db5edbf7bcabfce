"""Changes values of a stack file: those asked for, and not one other byte."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from paddock import files
from paddock.fleet.errors import EditError, FleetError, Key, dotted
from paddock.fleet.stackfile import yaml_edit
from paddock.fleet.stackfile.yaml_document import Document

REMOVE = object()
"""In place of a value: take the key, or the item of a list, out."""
_MISSING = object()
_TOP = "config"


def read(stack_file: Path) -> bytes:
    """Return the content of a stack file. Raises EditError."""
    try:
        return stack_file.read_bytes()
    except OSError as error:
        raise EditError(
            f"cannot read {stack_file}: {error.strerror}"
            "\n    expected: a stack file, Pulumi.<stack>.yaml\n    fix: name a stack that has one"
        ) from None


def edited(name: str, before: bytes, changes: Mapping[Key, Any]) -> bytes:
    """Return the content of the stack file `name` with new values, by their keys below `config`. Raises EditError.

    The result is read back: all that differs is what was asked for.
    """
    data = _data(name, before)
    for top in dict.fromkeys(str(key[0]) for key in changes):
        value = _at(data, (_TOP, top))
        is_encrypted = isinstance(value, dict) and set(value) == {"secure"}
        if is_encrypted or not isinstance(value, dict | list):
            mistake = "is not in it" if value is _MISSING else "is encrypted" if is_encrypted else "is not a map"
            raise EditError(
                f"nothing is changed in {name}: {top} {mistake}"
                f"\n    expected: {top}: with the settings below it, as YAML"
                "\n    fix: write them there; docs/configuration.md begins with a complete one"
            )
    text = before.decode("utf-8")  # with its byte order mark, if any
    expected = deepcopy(data)
    # An item that goes moves those behind it, so the last goes first.
    for key in sorted(changes, key=lambda key: tuple(-part if isinstance(part, int) else 0 for part in key)):
        path = (_TOP, *key)
        try:
            for step, new in _steps(_at(expected, path), changes[key], path, expected):
                text = yaml_edit.drop(text, step) if new is REMOVE else yaml_edit.put(text, step, new)
                _assign(expected, step, new)
        except EditError as error:
            raise EditError(f"nothing is changed in {name}: {str(error).removeprefix('config.')}") from None
    after = text.encode("utf-8")
    if _json(_data(name, after)) != _json(expected):
        keys = ", ".join(map(dotted, changes))
        raise EditError(
            f"nothing is changed in {name}: {keys} cannot be set there without changing something else"
            "\n    fix: write it by hand; merges (<<) and text over several lines are what stands in the way"
        )
    return after


def replace(stack_file: Path, before: bytes, after: bytes) -> None:
    """Write the file, whole or not at all, with its mode; a link stays a link. Raises EditError."""
    file = stack_file.resolve()
    try:
        with files.replacing(file, stat.S_IMODE(file.stat().st_mode)) as part:
            part.write(after)
            if file.read_bytes() != before:
                raise EditError(
                    f"nothing is changed in {file.name}: it was changed in the meantime\n    fix: run the command again"
                )
    except OSError as error:
        raise EditError(
            f"cannot write {file}: {error.strerror}\n    fix: use a folder and a file that you may write"
        ) from None


def _steps(old: Any, new: Any, path: Key, data: Any) -> Iterator[tuple[Key, Any]]:
    """Single keys to set and to drop: a map takes the place of another key by key, so that comments in it stay."""
    if new is REMOVE:
        if old is not _MISSING:
            # YAML has no block without an entry.
            only = len(_at(data, path[:-1])) == 1
            yield (path[:-1], [] if isinstance(path[-1], int) else {}) if only else (path, REMOVE)
        return
    if _json(old) == _json(new):
        return
    if not (isinstance(old, dict) and isinstance(new, Mapping) and old and new):
        yield path, new
        return
    removed = [name for name in old if name not in new]
    for name, value in new.items():
        yield from _steps(old.get(name, _MISSING), value, (*path, name), data)
    for name in removed:
        yield (*path, name), REMOVE


def _at(data: Any, path: Key) -> Any:
    for name in path:
        in_list = isinstance(data, list) and isinstance(name, int) and name < len(data)
        if not in_list and not (isinstance(data, dict) and name in data):
            return _MISSING
        data = data[name]
    return data


def _assign(data: Any, path: Key, value: Any) -> None:
    for name in path[:-1]:
        if isinstance(name, str) and data.get(name) is None:
            data[name] = {}
        data = data[name]
    if value is REMOVE:
        del data[path[-1]]
    else:
        data[path[-1]] = deepcopy(value)


def _json(value: Any) -> str:
    """To compare by: 1, 1.0 and true are three things."""
    return json.dumps(value, sort_keys=True, default=repr)


def _data(name: str, content: bytes) -> Any:
    try:
        return Document(name, content).data
    except FleetError as error:
        raise EditError(f"nothing is changed, {name} cannot be read\n{error}") from None
