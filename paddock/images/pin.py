"""Pins images in a stack file: the asked keys change, and not one other byte."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.fleet import FleetError, load
from paddock.fleet.errors import EditError, dotted
from paddock.fleet.stackfile import edit
from paddock.fleet.stackfile.configuration import FLEET
from paddock.fleet.stackfile.loader import stack_names
from paddock.images.errors import BuildInputError


def stack_lines(root: Path) -> Iterator[tuple[str, str]]:
    """Yield each line of every stack file in a folder behind its place, `file:line`.

    Raises BuildInputError for a file that cannot be read.
    """
    for stack in stack_names(root):
        file = root / f"Pulumi.{stack}.yaml"
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise BuildInputError(
                f"{file.name} cannot be read, so which images it names is not known: {error}\n    fix: chmod u+r {file}"
            ) from None
        yield from ((f"{file.name}:{number}", line) for number, line in enumerate(lines, 1))


def pin(stack_file: Path, changes: Mapping[tuple[str, ...], Any]) -> None:
    """Sets keys below `paddock:fleet` in a stack file; what is there already stays untouched.

    `changes` are values by path: `("images", "runner"): "registry/name:tag@sha256:..."`. The file is replaced at once
    and only if it is still the one that was read and the fleet in the new one is valid. Raises BuildInputError, with
    the file as it was.
    """
    try:
        before = edit.read(stack_file)
        after = edit.edited(stack_file.name, before, {(FLEET, *path): value for path, value in changes.items()})
        if after != before:
            _check(stack_file, after, changes)
            edit.replace(stack_file, before, after)
    except EditError as error:
        raise BuildInputError(str(error)) from None


def _check(stack_file: Path, after: bytes, changes: Mapping[tuple[str, ...], Any]) -> None:
    name = stack_file.name.removeprefix("Pulumi.").removesuffix(".yaml")
    try:
        load(stack_file.parent, name, content=after)
    except FleetError as error:
        keys = ", ".join(map(dotted, changes))
        raise BuildInputError(
            f"{stack_file.name} is unchanged: with the new {keys} it would be wrong\n{error}"
        ) from None
