"""A plan that was saved with `inv plan --json`, read back as data that can be trusted to have its shape."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.errors import PaddockError
from paddock.plan.document.model import SCHEMA
from paddock.plan.engine.values import shallow

LARGEST = 64 * 1024 * 1024
DEEPEST = 100


class PlanFileError(PaddockError):
    """A saved plan that cannot be compared with."""

    exit_code = 2


def read(path: Path, stack: str, project: str | None = None) -> dict[str, Any]:
    """The document that was saved. Raises PlanFileError where it is not a plan of this stack."""
    document = _decode(path, _bytes(path, stack), stack)
    schema = document.get("schema")
    if not isinstance(schema, str):
        raise _wrong(
            path, stack, "it is JSON, but not a plan: it has no `schema`", f'an object with "schema": "{SCHEMA}"'
        )
    if schema != SCHEMA:
        raise _wrong(
            path, stack, f"it is of schema {_quoted(schema)}, written by another version of Paddock", f'"{SCHEMA}"'
        )
    for key, expected in (("stack", stack), ("project", project)):
        found = document.get(key)
        if expected is not None and found != expected:
            raise _wrong(path, stack, f"it is a plan of {key} {_quoted(found)}", f"one of {key} {_quoted(expected)}")
    for where, expected in _misshapen(document):
        raise _wrong(path, stack, f"{where} has another shape than a plan's", expected)
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
    expected = "JSON in UTF-8, as inv plan writes it"
    if not data.strip():
        raise _wrong(path, stack, "it is empty", expected)
    try:
        document = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except UnicodeDecodeError as error:
        raise _wrong(path, stack, f"byte {error.start} is no UTF-8", expected) from None
    except json.JSONDecodeError as error:
        ends = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
        what = "it ends too early" if ends else "it is no JSON"
        raise _wrong(path, stack, f"{what}: line {error.lineno}, column {error.colno}: {error.msg}", expected) from None
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


_RESOURCE: Mapping[str, type] = {
    "urn": str,
    "type": str,
    "name": str,
    "parent": str,
    "custom": bool,
    "inputs": dict,
    "dependencies": list,
    "propertyDependencies": dict,
    "provider": str,
    "protect": bool,
    "ignoreChanges": list,
    "deleteBeforeReplace": bool,
}
_FIT: Mapping[str, type] = {"runner": str, "pool": str, "instance": str, "per_node": int, "limiting": str}
_FINDING: Mapping[str, type] = {"id": str, "severity": str, "subject": str, "message": str, "fix": str}


def _misshapen(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The places that are not as a plan has them: where, and what should be there."""
    if not shallow(document, DEEPEST):
        yield "the document, which is nested too deeply,", f"at most {DEEPEST} levels"
        return
    if not isinstance(document.get("outputs"), dict):
        yield "`outputs`", _name(dict)
    for key, shape in (("resources", _RESOURCE), ("fit", _FIT), ("findings", _FINDING)):
        items = document.get(key)
        if not isinstance(items, list):
            yield f"`{key}`", _name(list)
            continue
        for index, item in enumerate(items):
            yield from _item(f"{key}[{index}]", item, shape)
    seen: set[str] = set()
    for index, resource in enumerate(document["resources"]):
        if resource["urn"] in seen:
            yield f"`resources[{index}].urn`", "every URN once"
        seen.add(resource["urn"])
        yield from _strings(f"resources[{index}]", resource)


def _item(where: str, item: Any, shape: Mapping[str, type]) -> Iterator[tuple[str, str]]:
    if not isinstance(item, dict):
        yield f"`{where}`", _name(dict)
        return
    for key, kind in shape.items():
        value = item.get(key)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            yield f"`{where}.{key}`", _name(kind)


def _strings(where: str, resource: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    lists = {key: resource[key] for key in ("dependencies", "ignoreChanges")}
    lists |= {f"propertyDependencies.{key}": urns for key, urns in resource["propertyDependencies"].items()}
    for key, value in lists.items():
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            yield f"`{where}.{key}`", "a list of text"


_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a whole number",
}


def _name(kind: type) -> str:
    return _NAMES[kind]


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), "nothing" if value is None else "a number")


def _quoted(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"


def _wrong(path: Path, stack: str, what: str, expected: str) -> PlanFileError:
    return PlanFileError(
        f"cannot compare with {str(path)!r}: {what}\n"
        f"    expected: {expected}\n"
        f"    fix: check out the state to compare with and run `./inv plan --stack {stack} --json {path}` there"
    )
