"""Translate pydantic's errors into problems that a user can act on: of YAML files, of JSON files and of parameters."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from pydantic import BaseModel, Tag, ValidationError
from pydantic_core import ErrorDetails

from paddock.errors import Key, PaddockError, Problem, nearest

Written = Callable[[Key], str | None]
"""Returns the text of a key's value in the file, if there is a file."""

_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "dict_type": "settings by name, one a line",
    "model_type": "settings by name, one a line",
    "model_attributes_type": "settings by name, one a line",
    "dataclass_type": "settings by name, one a line",
    "tuple_type": "a list: [first, second]",
    "list_type": "a list: [first, second]",
}
_JSON_KINDS = _KINDS | {
    "dict_type": "an object",
    "model_type": "an object",
    "dataclass_type": "an object",
    "tuple_type": "a list",
    "list_type": "a list",
}


def read_yaml(path: Path, expected: str, refused: type[PaddockError]) -> Any:
    """Return the document of a file, YAML or JSON, as JSON has it; {} for an empty one. Raises `refused`."""
    import yaml

    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))  # JSON is YAML
        json.dumps(document, allow_nan=False)
    except OSError as error:
        fix = "name a file that can be read"
        raise refused(f"{path}: cannot be read: {error.strerror}\n    expected: {expected}\n    fix: {fix}") from None
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise refused(f"{path}: {' '.join(str(error).split())}\n    expected: {expected}") from None
    return {} if document is None else document


def described(
    error: ValidationError,
    model: type[BaseModel],
    path: Path,
    *,
    examples: Mapping[str, str] | None = None,
    json: bool | None = None,
) -> str:
    """Return all mistakes of a file in words, as JSON's where its name ends so."""
    as_json = path.suffix == ".json" if json is None else json
    found = problems(error.errors(include_url=False), model, examples=examples, json=as_json)
    return "\n".join(str(dataclasses.replace(item, file=str(path))) for item in found)


def problems(
    details: Iterable[ErrorDetails],
    model: type[Any],
    *,
    examples: Mapping[str, str] | None = None,
    written: Written = lambda key: None,
    json: bool = False,
) -> list[Problem]:
    """Return one problem a mistake in a YAML file, or in JSON.

    A misspelt key is compared with the fields of `model`; `examples` show how a missing key is written.
    """
    listed = list(details)
    within = {detail["loc"][:end] for detail in listed for end in range(len(detail["loc"]))}
    translated = [
        _problem(detail, model, examples or {}, None if json else written)
        for detail in listed
        # pydantic counts the entries that are valid: a wrong one would also be a missing one
        if detail["type"] != "too_short" or detail["loc"] not in within
    ]
    misspelt = {(problem.key[:-1], problem.fix) for problem in translated if problem.message.startswith("unknown key")}
    return [problem for problem in translated if (problem.key, _misspelt_as(problem)) not in misspelt]


def _misspelt_as(problem: Problem) -> str:
    """Return the hint for a misspelt key that makes the right one missing: one mistake, one problem."""
    name, is_missing, _ = problem.message.partition(" is missing")
    return f'did you mean "{name}"?' if is_missing else "-"


def _problem(detail: ErrorDetails, model: type[Any], examples: Mapping[str, str], written: Written | None) -> Problem:
    kind, value = detail["type"], detail["input"]
    context: dict[str, Any] = detail.get("ctx", {})
    kinds = _KINDS if written else _JSON_KINDS
    key = _key(detail["loc"])
    match kind:
        case "extra_forbidden" | "unexpected_keyword_argument":
            *above, last = detail["loc"]  # the user's own word, also where it looks like a tag: <name>
            key, name = (*_key(tuple(above)), last), str(last)
            keys, near = _known_keys(model, tuple(above))
            hint = f"leave it out; only another form of {key[-2]} has it" if name in near else _did_you_mean(name, near)
            return Problem(key, f'unknown key "{_short(name)}"', f"one of {', '.join(keys)}", hint)
        case "missing":
            name = str(key[-1])
            return Problem(key[:-1], f"{name} is missing", examples.get(name, f"{name}: and its value"))
        case "form":
            refusal, _, expected = detail["msg"].partition("; write ")
            return Problem(key, f"{_show(value)} is {refusal}", expected, _nearest_form(value, expected))
        case "text":
            return Problem(key, f"{_show(value)} is {detail['msg']}", context["expected"], context["fix"])
        case "literal_error":
            words = re.findall(r"'([^']*)'", context["expected"])
            hint = _did_you_mean(value, words) if isinstance(value, str) else ""
            hint = hint or (f"write {words[0]}" if len(words) == 1 else "")
            return Problem(key, f"{_show(value)} is not one of the choices", f"one of {', '.join(words)}", hint)
        case "value_error":
            message, _, advice = str(context["error"]).partition("; write ")
            return Problem(key, message, advice)
        case "string_type" if isinstance(value, int | float):
            text = (written and written(key)) or str(value).lower()
            refusal = "true or false" if isinstance(value, bool) else "a number"
            refusal = f"without quotes is {refusal} to YAML" if written else f"is {refusal}"
            return Problem(key, f"{text} {refusal}", "text", f'write it in quotes: "{text}"')
        case _ if kind in kinds and value is None:
            return Problem(key, "nothing is given", kinds[kind], "give a value, or remove the key for its default")
        case _ if kind in kinds:
            return Problem(key, f"{_show(value)} is {_yaml_type(value)}", kinds[kind], _repaired(kind, value))
        case "greater_than_equal" | "less_than_equal":
            side, bound = ("small", context.get("ge")) if "ge" in context else ("large", context.get("le"))
            least = "at least" if side == "small" else "at most"
            return Problem(key, f"{value} is too {side}", f"{least} {bound}")
        case "too_short" | "too_long":
            bound = f"at least {context['min_length']}" if kind == "too_short" else f"at most {context['max_length']}"
            bound += " entry" if bound.endswith(" 1") else " entries"
            count = context["actual_length"]
            message = (
                "it is empty" if count == 0 else f"too {'few' if kind == 'too_short' else 'many'} entries: {count}"
            )
            return Problem(key, message, bound)
        case "string_too_short":
            return Problem(key, "empty text", f"at least {context['min_length']} character")
        case "string_too_long":
            return Problem(key, f"{len(value)} characters are too long", f"at most {context['max_length']} characters")
        case _:
            return Problem(
                (*key, *context.get("at", ())), detail["msg"], context.get("expected", ""), context.get("fix", "")
            )


def _key(location: tuple[int | str, ...]) -> Key:
    """pydantic's location without the tags of sum types and its mark for a bad dictionary key."""
    return tuple(part for part in location if not _is_tag(part) and part != "[key]")


def _is_tag(part: int | str) -> bool:
    return isinstance(part, str) and part.startswith("<") and part.endswith(">")


def _known_keys(model: type[Any], location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """The keys of the model at `location`, and those of every form it could have had instead."""
    here: Any = model
    forms: list[Any] = []
    for part in location:
        here = _bare(here)
        forms = []
        if _is_tag(part) and get_origin(here) in (Union, UnionType):
            forms = list(get_args(here))
            here = next(form for form in forms if Tag(str(part)) in form.__metadata__)
        elif isinstance(here, type) and issubclass(here, BaseModel):
            fields = here.model_fields
            here = next(field.annotation for name, field in fields.items() if part in (field.alias, name))
        elif dataclasses.is_dataclass(here):
            here = get_type_hints(here)[str(part)]
        elif get_origin(here) is dict:
            here = get_args(here)[1]
        else:
            here = get_args(here)[0]
    keys = _aliases(_bare(here))
    return keys, [*keys, *(name for form in forms for name in _aliases(_bare(form)))]


def _bare(annotation: Any) -> Any:
    """An annotation without `Annotated` and without `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, UnionType):
        some = [form for form in get_args(annotation) if form is not type(None)]
        return _bare(some[0]) if len(some) == 1 else annotation
    return annotation


def _aliases(model: Any) -> list[str]:
    if dataclasses.is_dataclass(model):
        return [field.name for field in dataclasses.fields(model)]
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        return []
    return [field.alias or name for name, field in model.model_fields.items()]


def _did_you_mean(word: str, names: Iterable[str]) -> str:
    near = nearest(word, names)
    return f'did you mean "{near}"?' if near else ""


def _nearest_form(value: Any, expected: str) -> str:
    """Return a hint naming the form of a sum type that was probably meant."""
    if isinstance(value, str):
        return _did_you_mean(value, re.findall(r"(?<![{\w-])[a-z][a-z-]+(?=,| or |$)", expected))
    if isinstance(value, dict):
        keys = re.findall(r"\{(\w+):", expected)
        return next((hint for name in value if (hint := _did_you_mean(str(name), keys))), "")
    return ""


def _repaired(kind: str, value: Any) -> str:
    if kind == "tuple_type" and isinstance(value, str | int | float):
        return f"write it as a list: [{_short(str(value))}]"
    if kind.startswith("int") and isinstance(value, str) and re.fullmatch(r"-?\d{1,18}", value):
        return f"write it without quotes: {value}"
    if kind == "bool_type" and isinstance(value, str):
        words = {"yes": "true", "on": "true", "true": "true", "no": "false", "off": "false", "false": "false"}
        return f"write {words[value.lower()]}" if value.lower() in words else ""
    return ""


def _show(value: Any) -> str:
    match value:
        case str():
            return f'"{_short(value)}"'
        case None:
            return "nothing"
        case bool():
            return str(value).lower()
        case dict() | list() | tuple():
            return "this"
        case _:
            return _short(str(value))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def _yaml_type(value: Any) -> str:
    match value:
        case bool():
            return "a switch (true or false)"
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
