"""Inventories as JSON files: saved on one machine, read on another."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from paddock.gpu import model
from paddock.gpu.errors import GpuInputError
from paddock.gpu.model import SCHEMA, Inventory

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

_Read = TypeVar("_Read")
_FIX = "save it again with gpu.list --json"
_MAX_PROBLEMS = 5
"""Maximum number of problems reported for one file."""


def dumps(inventory: Inventory) -> str:
    """Return JSON with a fixed key order, `schema` first."""
    return json.dumps(data(inventory), indent=2) + "\n"


def data(value: Any) -> Any:
    """Return an object of the model as JSON types."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        if "schema" in names:
            names.insert(0, names.pop(names.index("schema")))
        return {name: data(getattr(value, name)) for name in names}
    return [data(item) for item in value] if isinstance(value, tuple) else value


def load(path: Path) -> Inventory:
    """Read a saved inventory. Raises GpuInputError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise GpuInputError(
            f"cannot read {path}: {error.strerror}\n    expected: a saved inventory\n    fix: {_FIX}"
        ) from None
    except UnicodeDecodeError:
        raise _wrong(str(path), "it is not text", "JSON in UTF-8") from None
    return loads(text, str(path))


def loads(text: str, source: str = "the inventory") -> Inventory:
    """Parse a saved inventory; `source` names the text in messages. Raises GpuInputError."""
    from pydantic import ValidationError

    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise _wrong(source, f"not JSON in line {error.lineno}: {error.msg}", "a saved inventory") from None
    except RecursionError:
        raise _wrong(source, "nested too deep to be an inventory", "a saved inventory") from None
    _check_schema(document, source)
    try:
        inventory: Inventory = _adapter().validate_json(text)
    except ValidationError as error:
        raise _refused(source, error.errors(include_url=False)) from None
    duplicates = [uuid for uuid, count in Counter(gpu.uuid for gpu in inventory.gpus).items() if uuid and count > 1]
    if duplicates:
        raise _wrong(source, f"two GPUs have the UUID {duplicates[0]}", "each GPU once")
    return inventory


@cache
def _adapter() -> TypeAdapter[Inventory]:
    return strictly(Inventory, [kind for kind in vars(model).values() if dataclasses.is_dataclass(kind)])


def strictly(whole: type[_Read], kinds: Iterable[object]) -> TypeAdapter[_Read]:
    """Return a strict reader of `whole`, a composition of the dataclasses in `kinds`.

    The dataclasses do not import pydantic; their strictness is set here, where pydantic is loaded.
    """
    from pydantic import ConfigDict, TypeAdapter

    strict = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    for kind in kinds:
        setattr(kind, "__pydantic_config__", strict)  # noqa: B010 - pydantic's, and no field of ours
    return TypeAdapter(whole)


def _check_schema(document: object, source: str) -> None:
    schema = document.get("schema") if isinstance(document, dict) else None
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise _wrong(source, "not an inventory: it has no `schema` number", f'an object with "schema": {SCHEMA}')
    if schema > SCHEMA:
        raise GpuInputError(
            f"{source}: written by a newer Paddock (schema {schema})"
            f"\n    expected: schema {SCHEMA}, which this one reads"
            "\n    fix: read it with that Paddock, or upgrade this one"
        )


def _wrong(source: str, problem: str, expected: str) -> GpuInputError:
    return GpuInputError(f"{source}: {problem}\n    expected: {expected}\n    fix: {_FIX}")


def _refused(source: str, details: list[ErrorDetails]) -> GpuInputError:
    from paddock.validation import problems

    translated = problems(details, Inventory, json=True)
    texts = [str(dataclasses.replace(problem, file=source)) for problem in translated[:_MAX_PROBLEMS]]
    if len(translated) > _MAX_PROBLEMS:
        texts.append(f"and {len(translated) - _MAX_PROBLEMS} more")
    if not any(problem.fix for problem in translated):
        texts.append(f"    fix: {_FIX}")
    return GpuInputError("\n".join(texts))
