"""Inventories as JSON files: saved on one machine, read on another."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args, get_type_hints

from paddock.gpu import model
from paddock.gpu.errors import GpuInputError
from paddock.gpu.model import SCHEMA, Inventory

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import ErrorDetails

_Read = TypeVar("_Read")
_FIX = "save it again with `paddock gpu.list --json`"
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dataclass_type": "an object",
}
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
    problems = [_problem(source, detail) for detail in details[:_MAX_PROBLEMS]]
    if len(details) > _MAX_PROBLEMS:
        problems.append(f"and {len(details) - _MAX_PROBLEMS} more")
    return GpuInputError("\n".join([*problems, f"    fix: {_FIX}"]))


def _problem(source: str, detail: ErrorDetails) -> str:
    key = ".".join(map(str, detail["loc"]))
    match detail["type"]:
        case "unexpected_keyword_argument":
            keys = _names(detail["loc"][:-1])
            near = get_close_matches(str(detail["loc"][-1]), keys, 1)
            hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(keys)}"
            return f"{source}: unknown key {key}\n    expected: {hint}"
        case "missing":
            return f"{source}: {key} is missing\n    expected: it is in every saved inventory"
        case "literal_error":
            return f"{source}: {key} is {_abbreviated(detail['input'])}\n    expected: {detail['ctx']['expected']}"
        case kind:
            expected = _KINDS.get(kind, detail["msg"])
            return f"{source}: {key} is {_abbreviated(detail['input'])}\n    expected: {expected}"


def _abbreviated(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _names(keys: Iterable[int | str]) -> list[str]:
    """Return the keys of the object at the path `keys` of an inventory."""
    kind: Any = Inventory
    for key in keys:
        kind = next(iter(get_args(kind)), None) if isinstance(key, int) else _hints(kind).get(key)
        kind = (
            next((argument for argument in get_args(kind) if argument is not type(None)), kind)
            if _optional(kind)
            else kind
        )
    return list(_hints(kind))


def _hints(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}


def _optional(kind: Any) -> bool:
    return type(None) in get_args(kind)
