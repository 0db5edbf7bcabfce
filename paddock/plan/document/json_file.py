"""A JSON document that an earlier command saved, read back by its model, or refused in words."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from paddock.errors import PaddockError, dotted
from paddock.plan.engine.values import shallow

LARGEST = 64 * 1024 * 1024
DEEPEST = 100
Shape = TypeVar("Shape", bound=BaseModel)


class PlanFileError(PaddockError):
    """A saved document that cannot be used."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class JsonFile:
    """A file that the user names. `what` it should be, such as `plan`; `refusal` and `fix` are parts of messages."""

    path: Path
    what: str
    schema: str
    writer: str
    """The command that writes such files."""
    refusal: str
    fix: str

    def read(self, of: Mapping[str, str | None], shape: type[Shape]) -> Shape:
        """Return the document, if it has the values of `of` that are not None. Raises PlanFileError."""
        data = self._decode(self._bytes())
        schema = data.get("schema")
        expected = f'"{self.schema}"'
        if not isinstance(schema, str):
            has = f"its `schema` is {quoted(schema)}" if "schema" in data else "it has no `schema`"
            raise self.wrong(f"it is JSON, but not a {self.what}: {has}", f'an object with "schema": {expected}')
        if schema.partition("/")[0] != self.schema.partition("/")[0]:
            raise self.wrong(f"it is not a {self.what}, but of schema {quoted(schema)}", expected)
        if schema != self.schema:
            raise self.wrong(f"it is of schema {quoted(schema)}, written by another version of Paddock", expected)
        kind = self.what.split()[0]
        for key, value in of.items():
            if value is not None and data.get(key) != value:
                is_of = f"it is a {kind} of {key} {quoted(data[key])}" if key in data else f"it has no `{key}`"
                raise self.wrong(is_of, f"a {kind} of {key} {quoted(value)}")
        if not shallow(data, DEEPEST):
            raise self.misshapen("the document, which is nested too deeply,", f"at most {DEEPEST} levels")
        try:
            return shape.model_validate(data)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            if first["type"] == "missing":
                place = _place(first["loc"])
                raise self.wrong(f"it has no `{place}`", f"`{place}`, as {self.writer} writes it") from None
            expected = _EXPECTED.get(first["type"], first["msg"])
            raise self.misshapen(f"`{_place(first['loc'])}`", expected) from None

    def wrong(self, problem: str, expected: str) -> PlanFileError:
        return PlanFileError(
            f"{self.refusal} {str(self.path)!r}: {problem}\n    expected: {expected}\n    fix: {self.fix}"
        )

    def misshapen(self, where: str, expected: str) -> PlanFileError:
        return self.wrong(f"{where} has an unexpected form", expected)

    def _bytes(self) -> bytes:
        try:
            with self.path.open("rb") as file:
                data = file.read(LARGEST + 1)
        except FileNotFoundError:
            raise self.wrong("no such file", f"a saved {self.what}") from None
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise self.wrong(f"it cannot be read: {reason}", "a file that you may read") from None
        if len(data) > LARGEST:
            raise self.wrong(f"it has more than 64 MiB, which no {self.what} has", f"a saved {self.what}")
        return data

    def _decode(self, data: bytes) -> dict[str, Any]:
        expected = f"JSON in UTF-8, as {self.writer} writes it"
        if not data.strip():
            raise self.wrong("it is empty", expected)
        try:
            document = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
        except UnicodeDecodeError as error:
            raise self.wrong(f"byte {error.start} is not UTF-8", expected) from None
        except json.JSONDecodeError as error:
            ends = error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated")
            problem = "it ends too early" if ends else "it is not JSON"
            raise self.wrong(f"{problem}: line {error.lineno}, column {error.colno}: {error.msg}", expected) from None
        except RecursionError:
            raise self.wrong("it is nested too deeply", f"at most {DEEPEST} levels") from None
        except ValueError as error:
            raise self.wrong(f"it is not JSON: {error}", expected) from None
        if not isinstance(document, dict):
            raise self.wrong(
                f"it is JSON, but not a {self.what}: {_kind(document)}", f'an object with "schema": "{self.schema}"'
            )
        return document


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is not a JSON number")


_EXPECTED: Mapping[str, str] = {
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
    # The member of a union that was tried is not part of the path.
    return dotted(location[:-1] if location[-1] in ("int", "float", "str") else location)


_NAMES: Mapping[type, str] = {
    dict: "an object",
    list: "a list",
    str: "text",
    bool: "true or false",
    int: "a whole number",
}


def _kind(value: Any) -> str:
    return _NAMES.get(type(value), "nothing" if value is None else "a number")


def file_in(path: Path, name: str) -> Path:
    """Return the file of a name where the path is a folder, else the path."""
    return path / name if path.is_dir() else path


def quoted(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:60]}…"
