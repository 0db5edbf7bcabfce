"""Pins images in a stack file: the asked keys change, and not one other byte."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from paddock import files
from paddock.build import yaml_edit
from paddock.build.errors import BuildInputError
from paddock.fleet import FleetError, load
from paddock.fleet.errors import dotted
from paddock.fleet.stackfile.configuration import FLEET
from paddock.fleet.stackfile.yaml_document import Document

_ROOT = ("config", FLEET)


def pin(stack_file: Path, changes: Mapping[tuple[str, ...], Any]) -> None:
    """Sets keys below `paddock:fleet` in a stack file; what is there already stays untouched.

    `changes` are values by path: `("images", "runner"): "registry/name:tag@sha256:..."`. The file is replaced at once
    and only if it is still the one that was read and the fleet in the new one is valid. Raises BuildInputError, with
    the file as it was.
    """
    before = _read(stack_file)
    after = _edited(stack_file, before, changes)
    if after == before:
        return
    name = stack_file.name.removeprefix("Pulumi.").removesuffix(".yaml")
    keys = ", ".join(map(dotted, changes))
    try:
        load(stack_file.parent, name, content=after)
    except FleetError as error:
        raise BuildInputError(
            f"{stack_file.name} is unchanged: with the new {keys} it would be wrong\n{error}"
        ) from None
    _replace(stack_file, before, after)


def _edited(file: Path, before: bytes, changes: Mapping[tuple[str, ...], Any]) -> bytes:
    """The new content. It is read back: all that may differ is what was asked for."""
    data = _data(file, before)
    fleet = _at(data, _ROOT)
    if not isinstance(fleet, dict) or set(fleet) == {"secure"}:
        mistake = "is not in it" if fleet is _MISSING else "is encrypted" if isinstance(fleet, dict) else "is no map"
        raise BuildInputError(
            f"nothing can be pinned in {file.name}: {FLEET} {mistake}"
            f"\n    expected: {FLEET}: with the settings below it, as YAML"
            "\n    fix: write them there; docs/configuration.md begins with a whole one"
        )
    text = before.decode("utf-8")  # with its byte order mark, if any
    expected = deepcopy(data)
    for path, value in changes.items():
        try:
            for step, new in _steps(_at(expected, (*_ROOT, *path)), value, (*_ROOT, *path)):
                text = yaml_edit.drop(text, step) if new is _MISSING else yaml_edit.put(text, step, new)
        except BuildInputError as error:
            raise BuildInputError(f"nothing is pinned in {file.name}: {str(error).removeprefix('config.')}") from None
        _assign(expected, (*_ROOT, *path), value)
    after = text.encode("utf-8")
    if _json(_data(file, after)) != _json(expected):
        keys = ", ".join(map(dotted, changes))
        raise BuildInputError(
            f"nothing is pinned in {file.name}: {keys} cannot be set there without a change of something else"
            "\n    fix: write it by hand; merges (<<) and text over several lines are what stands in the way"
        )
    return after


_MISSING = object()


def _steps(old: Any, new: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Single keys to set and to drop: a map takes the place of another key by key, so that comments in it stay."""
    if _json(old) == _json(new):
        return
    if not (isinstance(old, dict) and isinstance(new, Mapping) and old and new):
        yield path, new
        return
    for name, value in new.items():
        yield from _steps(old.get(name, _MISSING), value, (*path, name))
    for name in old:
        if name not in new:
            yield (*path, name), _MISSING


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        if not isinstance(data, dict) or name not in data:
            return _MISSING
        data = data[name]
    return data


def _assign(data: Any, path: tuple[str, ...], value: Any) -> None:
    for name in path[:-1]:
        if data.get(name) is None:
            data[name] = {}
        data = data[name]
    data[path[-1]] = value


def _json(value: Any) -> str:
    """To compare by: 1, 1.0 and true are three things."""
    return json.dumps(value, sort_keys=True, default=repr)


def _data(file: Path, content: bytes) -> Any:
    try:
        return Document(file.name, content).data
    except FleetError as error:
        raise BuildInputError(f"nothing is pinned, {file.name} cannot be read\n{error}") from None


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise BuildInputError(
            f"cannot read {file}: {error.strerror}"
            "\n    expected: a stack file, Pulumi.<stack>.yaml\n    fix: name a stack that has one"
        ) from None


def _replace(stack_file: Path, before: bytes, after: bytes) -> None:
    """Whole or not at all, with the file's mode; a link stays a link."""
    file = stack_file.resolve()
    try:
        with files.replacing(file, stat.S_IMODE(file.stat().st_mode)) as part:
            part.write(after)
            if file.read_bytes() != before:
                raise BuildInputError(
                    f"nothing is pinned in {file.name}: somebody changed it meanwhile\n    fix: run the command again"
                )
    except OSError as error:
        raise BuildInputError(
            f"cannot write {file}: {error.strerror}\n    fix: a folder and a file that are yours"
        ) from None
