"""Turns pydantic's errors into what a user can act on."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from paddock.fleet.errors import Key, Problem, did_you_mean

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "dict_type": "settings by name, one a line",
    "model_type": "settings by name, one a line",
    "model_attributes_type": "settings by name, one a line",
    "tuple_type": "a list: [first, second]",
    "list_type": "a list: [first, second]",
}


def from_pydantic(error: ValidationError) -> list[Problem]:
    """One problem a mistake, in the order of the file."""
    return [problem for detail in error.errors(include_url=False) for problem in _problems(detail)]


def _problems(detail: ErrorDetails) -> list[Problem]:
    kind, given = detail["type"], detail["input"]
    context: dict[str, Any] = detail.get("ctx", {})
    key = _key(detail["loc"])
    match kind:
        case "unknown_keys":
            known = context["known"]
            return [
                Problem((*key, name), f'unknown key "{name}"', f"one of {', '.join(known)}", did_you_mean(name, known))
                for name in context["keys"]
            ]
        case "missing":
            return [Problem(key[:-1], f"{key[-1]} is missing", f"{key[-1]}: and its value")]
        case "unknown_instance":
            name, known = context["name"], context["known"]
            family = [k for k in known if k.split(".")[0] == name.split(".")[0]]
            expected = ", ".join(family) if family else "a type in the catalogue: inv catalog.instances lists them"
            return [Problem(_at(key, context), f'unknown instance type "{name}"', expected, did_you_mean(name, known))]
        case "form":
            what, _, expected = detail["msg"].partition("; write ")
            return [Problem(key, f"{_show(given)} is {what}", expected)]
        case "text":
            return [Problem(key, f"{_show(given)} is {detail['msg']}", context["expected"])]
        case "literal_error":
            words = [word.strip("' ") for word in context["expected"].replace(" or ", ",").split(",")]
            hint = did_you_mean(given, words) if isinstance(given, str) else ""
            return [Problem(key, f"{_show(given)} is not one of the choices", f"one of {', '.join(words)}", hint)]
        case "value_error":
            message, _, advice = str(context["error"]).partition("; write ")
            return [Problem(key, message, advice)]
        case _ if kind in _KINDS:
            hint = f'write it in quotes: "{given}"' if kind == "string_type" and isinstance(given, int | float) else ""
            return [Problem(key, f"{_show(given)} is {_yaml_type(given)}", _KINDS[kind], hint)]
        case "greater_than_equal" | "less_than_equal" | "greater_than" | "less_than":
            bound = context.get("ge", context.get("le", context.get("gt", context.get("lt"))))
            side = "at least" if kind.startswith("greater") else "at most"
            return [Problem(key, f"{given} is too {'small' if side == 'at least' else 'large'}", f"{side} {bound}")]
        case "too_short":
            return [Problem(key, "too few entries", f"at least {context['min_length']}")]
        case "too_long":
            return [Problem(key, "too many entries", f"at most {context['max_length']}")]
        case _:
            return [Problem(_at(key, context), detail["msg"], context.get("expected", ""), context.get("fix", ""))]


def _key(location: tuple[int | str, ...]) -> Key:
    """pydantic's location without the tags of sum types and its mark for a bad dictionary key."""
    return tuple(part for part in location if not (isinstance(part, str) and (part.startswith("<") or part == "[key]")))


def _at(key: Key, context: dict[str, Any]) -> Key:
    """Where below `key` a model's own check saw the mistake."""
    at = context.get("at", ())
    return (*key, *at) if isinstance(at, tuple | list) else (*key, at)


def _show(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else "nothing" if value is None else str(value).lower() if isinstance(value, bool) else "this" if isinstance(value, dict | list | tuple) else str(value)


def _yaml_type(value: Any) -> str:
    match value:
        case bool():
            return "true or false, which is not allowed here"
        case str():
            return "text"
        case int() | float():
            return "a number"
        case list() | tuple():
            return "a list"
        case dict():
            return "a set of settings"
        case _:
            return "not a value"
