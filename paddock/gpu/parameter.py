"""What an action or a task may be told, checked where it comes from a file or from an agent."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from paddock.gpu.errors import GpuInputError

_SHOWN = 5
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


class Parameters(BaseModel):
    """Each field's description is what people and agents read."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)


_P = TypeVar("_P", bound=BaseModel)


def parse(
    kind: type[_P], given: Mapping[str, Any], where: str, *, later: Collection[str] = (), prefix: str = ""
) -> _P | None:
    """None where the values of the names in `later` are not known yet: all the others are right.

    `where` begins a message, `prefix` each name in it. Raises GpuInputError with the first problems.
    """
    try:
        text = json.dumps(given)
    except TypeError as error:
        raise GpuInputError(f"{where}: {error}\n    expected: values that JSON has") from None
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        # What is a reference now is another value later, and a rule over several fields says nothing yet.
        found = [one for one in error.errors(include_url=False) if one["loc"] and one["loc"][0] not in later]
        if not found and later:
            return None
        raise GpuInputError(_told(kind, where, prefix, found or error.errors(include_url=False))) from None


def did_you_mean(given: str, known: Collection[str]) -> str:
    near = get_close_matches(given, known, 1)
    return f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"


def _told(kind: type[BaseModel], where: str, prefix: str, found: Collection[Any]) -> str:
    lines = [_problem(kind, where, prefix, one) for one in list(found)[:_SHOWN]]
    if len(found) > _SHOWN:
        lines.append(f"and {len(found) - _SHOWN} more")
    return "\n".join(lines)


def _problem(kind: type[BaseModel], where: str, prefix: str, one: Any) -> str:
    name = ".".join([*([prefix] if prefix else []), *map(str, one["loc"])])
    match one["type"]:
        case "extra_forbidden":
            known = list(kind.model_fields) if len(one["loc"]) == 1 else []
            hint = did_you_mean(str(one["loc"][-1]), known) if known else "nothing of that name"
            return f"{where}: unknown parameter {name}\n    expected: {hint}"
        case "missing":
            about = kind.model_fields.get(str(one["loc"][0]))
            return f"{where}: {name} is missing\n    expected: {about.description if about else 'a value'}"
        case "literal_error":
            return f"{where}: {name} is {_short(one['input'])}\n    expected: {one['ctx']['expected']}"
        case "value_error":
            return f"{where}: {one['ctx']['error']}"
        case other:
            return f"{where}: {name} is {_short(one['input'])}\n    expected: {_KINDS.get(other) or _plain(one['msg'])}"


def _plain(message: str) -> str:
    return message.removeprefix("Input should be ").removeprefix("a valid ")


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
