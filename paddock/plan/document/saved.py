"""A plan that `inv plan --json` saved, read back by the document's model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paddock.errors import PaddockError, dotted
from paddock.plan.document.model import SCHEMA, PlanDocument
from paddock.plan.engine.values import shallow

LARGEST = 64 * 1024 * 1024
DEEPEST = 100


class PlanFileError(PaddockError):
    """A saved plan that cannot be compared with."""

    exit_code = 2


def read(path: Path, stack: str, project: str | None = None) -> PlanDocument:
    """Return the plan that was saved. Raises PlanFileError where it is not a plan of this stack."""
    data = _decode(path, _bytes(path, stack), stack)
    schema = data.get("schema")
    if not isinstance(schema, str):
        raise _wrong(
            path, stack, "it is JSON, but not a plan: it has no `schema`", f'an object with "schema": "{SCHEMA}"'
        )
    if schema != SCHEMA:
        raise _wrong(
            path, stack, f"it is of schema {_quoted(schema)}, written by another version of Paddock", f'"{SCHEMA}"'
        )
    for key, expected in (("stack", stack), ("project", project)):
        if expected is not None and data.get(key) != expected:
            raise _wrong(
                path, stack, f"it is a plan of {key} {_quoted(data.get(key))}", f"one of {key} {_quoted(expected)}"
            )
    if not shallow(data, DEEPEST):
        raise _misshapen(path, stack, "the document, which is nested too deeply,", f"at most {DEEPEST} levels")
    try:
        document = PlanDocument.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        expected = _EXPECTED.get(first["type"], first["msg"])
        raise _misshapen(path, stack, f"`{_place(first['loc'])}`", expected) from None
    urns: set[str] = set()
    for index, resource in enumerate(document.resources):
        if resource.urn in urns:
            raise _misshapen(path, stack, f"`resources[{index}].urn`", "every URN once")
        urns.add(resource.urn)
    return document


def _bytes(path: Path, stack: str) -> bytes:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except FileNotFoundError:
        raise _wrong(path, stack, "there is no such file", "a plan that was saved before") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise _wrong(path, stack, f"it cannot be read: {reason}", "a file that you may read") from None
    if len(data) > LARGEST:
        raise _wrong(path, stack, "it has more than 64 MiB, which no plan has", "a plan that was saved before")
    return data


def _decode(path: Path, data: bytes, stack: str) -> dict[str, Any]:
    expected = "JSON in UTF-8, as ./inv plan writes it"
    if not data.strip():
        raise _wrong(path, stack, "it is empty", expected)
    try:
        document = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise _wrong(path, stack, f"byte {error.start} is no UTF-8", expected) from None
    except json.JSONDecodeError as error:
        ends = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        problem = "it ends too early" if ends else "it is no JSON"
        raise _wrong(
            path, stack, f"{problem}: line {error.lineno}, column {error.colno}: {error.msg}", expected
        ) from None
    except RecursionError:
        raise _wrong(path, stack, "it is nested too deeply", f"at most {DEEPEST} levels") from None
    except ValueError as error:
        raise _wrong(path, stack, f"it is no JSON: {error}", expected) from None
    if not isinstance(document, dict):
        raise _wrong(
            path, stack, f"it is JSON, but not a plan: {_kind(document)}", f'an object with "schema": "{SCHEMA}"'
        )
    return document


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


_EXPECTED: Mapping[str, str] = {
    "missing": "a value",
    "model_type": "an object",
    "dataclass_type": "an object",
    "dict_type": "an object",
    "list_type": "a list",
    "string_type": "text",
    "bool_type": "true or false",
    "int_type": "a whole number",
}
"""Expectations in words, by pydantic's types of errors."""


def _place(location: tuple[str | int, ...]) -> str:
    """`("fit", 0, "per_node")` -> `fit[0].per_node`."""
    # The member of a union that was tried is no part of the path.
    return dotted(location[:-1] if location[-1] in ("int", "float", "str") else location)


def _misshapen(path: Path, stack: str, where: str, expected: str) -> PlanFileError:
    return _wrong(path, stack, f"{where} has another shape than a plan's", expected)


_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a whole number",
}


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), "nothing" if value is None else "a number")


def _quoted(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _wrong(path: Path, stack: str, problem: str, expected: str) -> PlanFileError:
    return PlanFileError(
        f"cannot compare with {str(path)!r}: {problem}\n"
        f"    expected: {expected}\n"
        f"    fix: check out the state to compare with and run `./inv plan --stack {stack} --json {path}` there"
    )
