"""AWS's own description of its APIs, as botocore ships it: what a call accepts, without making it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import botocore.session
from botocore.model import Shape
from botocore.validate import ParamValidator


@cache
def _session() -> Any:
    return botocore.session.get_session()


@cache
def request(operation: str) -> Shape:
    """Shape of the request of `service.Operation`."""
    service, _, name = operation.partition(".")
    return _session().get_service_model(service).operation_model(name).input_shape


def convert(value: Any, shape: Shape) -> Any:
    """Pulumi's spelling as the API's: letter case, tags as a list of pairs, flags and numbers that came as text.

    A key that the API does not have stays as it is, for `problems` to find.
    """
    match shape.type_name, value:
        case ["structure", Mapping()]:
            members = {name.lower(): name for name in shape.members}
            converted = {}
            for key, item in value.items():
                name = members.get(key.lower())
                converted[name or key] = convert(item, shape.members[name]) if name else item
            return converted
        case ["list", Mapping()] if _pair(shape.member):
            return [dict(zip(_pair(shape.member), entry, strict=True)) for entry in value.items()]
        case ["list", list() | tuple()]:
            return [convert(item, shape.member) for item in value]
        case ["map", Mapping()]:
            return {key: convert(item, shape.value) for key, item in value.items()}
        case ["boolean", "true" | "false"]:
            return value == "true"
        case _:
            return value


def _pair(shape: Shape) -> tuple[str, ...]:
    """Names of the two parts of a tag in a service."""
    names = set(shape.members) if shape.type_name == "structure" else set()
    return next((pair for pair in (("Key", "Value"), ("TagKey", "TagValue")) if set(pair) <= names), ())


def problems(operation: str, parameters: Mapping[str, Any]) -> list[str]:
    """Problems that the API would refuse in `parameters`: names, types, enums, patterns, lengths and ranges."""
    shape = request(operation)
    report = ParamValidator().validate(parameters, shape).generate_report()
    return [*filter(None, [report]), *_walk(parameters, shape, operation)]


def _walk(value: Any, shape: Shape, path: str) -> Iterator[str]:
    match shape.type_name, value:
        case ["structure", Mapping()]:
            for key, item in value.items():
                if key in shape.members:
                    yield from _walk(item, shape.members[key], f"{path}.{key}")
        case ["list", list()]:
            yield from _limits(len(value), shape, path, "items")
            for index, item in enumerate(value):
                yield from _walk(item, shape.member, f"{path}[{index}]")
        case ["map", Mapping()]:
            yield from _limits(len(value), shape, path, "entries")
            for key, item in value.items():
                yield from _walk(key, shape.key, f"{path}.{key}")
                yield from _walk(item, shape.value, f"{path}.{key}")
        case ["string", str()]:
            if getattr(shape, "enum", None) and value not in shape.enum:
                yield f"{path}: {value!r} is none of {', '.join(shape.enum)}"
            yield from _limits(len(value), shape, path, "characters")
            yield from _pattern(value, shape, path)
        case ["integer" | "long" | "float" | "double", int() | float()]:
            yield from _limits(value, shape, path, "")


def _limits(number: float, shape: Shape, path: str, unit: str) -> Iterator[str]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if (least is not None and number < least) or (most is not None and number > most):
        yield f"{path}: {number} {unit} is not between {least} and {most}"


def _pattern(value: str, shape: Shape, path: str) -> Iterator[str]:
    pattern = shape.metadata.get("pattern")
    if pattern is None:
        return
    try:
        # AWS writes Java's expressions: classes of Unicode letters are the one part that Python has not.
        expression = re.compile(re.sub(r"\\p\{[A-Z][a-z]?\}", r"\\w", pattern.replace(r"\p{Z}", r"\s")), re.DOTALL)
    except re.error:
        return
    if not expression.fullmatch(value):
        yield f"{path}: {value!r} does not match {pattern}"
