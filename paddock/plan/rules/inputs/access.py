"""Looking into a resource's inputs: absent, unknown and secret values met in one place."""

from __future__ import annotations

import base64
import binascii
import ipaddress
import json
from collections.abc import Iterator, Mapping
from typing import Any

from paddock.plan.engine.values import UNKNOWN, Secret


def opened(value: Any) -> Any:
    """A value without the mark that it is secret."""
    return value.value if isinstance(value, Secret) else value


def unknown(value: Any) -> bool:
    return isinstance(opened(value), str) and opened(value) == UNKNOWN


def unsure(value: Any) -> bool:
    """Whether anything in a value is not known yet."""
    value = opened(value)
    match value:
        case Mapping():
            return any(map(unsure, value.values())) or any(map(unknown, value))
        case list() | tuple():
            return any(map(unsure, value))
        case _:
            return unknown(value)


def at(value: Any, *path: str | int) -> Any:
    """What stands at `path`: None where nothing does, UNKNOWN where a part of the way is not known yet."""
    for step in path:
        value = opened(value)
        if unknown(value):
            return UNKNOWN
        if isinstance(value, Mapping):
            value = value.get(step)
        elif isinstance(value, list | tuple) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return opened(value)


def each(value: Any, *path: str | int) -> list[Any]:
    """Elements of the list at `path`; none where there is no list."""
    found = at(value, *path)
    return [opened(item) for item in found] if isinstance(found, list | tuple) else []


def pairs(value: Any, *path: str | int) -> dict[str, Any]:
    """The map at `path`; an empty one where there is none."""
    found = at(value, *path)
    return dict(found) if isinstance(found, Mapping) else {}


def many(value: Any) -> list[Any]:
    """A value that may be written alone or as a list."""
    value = opened(value)
    return [] if value is None else [opened(item) for item in value] if isinstance(value, list | tuple) else [value]


def on(value: Any) -> bool:
    """Whether a switch is on. AWS spells some of them as text; an unknown one is taken to be set on purpose."""
    return value is True or unknown(value) or (isinstance(value, str) and value.lower() == "true")


def given(value: Any) -> bool:
    """Whether anything is written there."""
    return value is not None and value != "" and value != [] and value != {}


def text(value: Any, *path: str | int) -> str:
    """Text at `path`; empty where there is none, or where it is not known yet."""
    found = at(value, *path)
    return found if isinstance(found, str) and not unknown(found) else ""


def document(value: Any) -> Mapping[str, Any]:
    """A JSON document given as text or as data; empty when it is neither."""
    value = opened(value)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def statements(value: Any) -> Iterator[Mapping[str, Any]]:
    """Statements of an IAM policy document that allow something."""
    for statement in many(document(value).get("Statement")):
        if isinstance(statement, Mapping) and statement.get("Effect") == "Allow":
            yield statement


def principals(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, who) of a statement: ("AWS", "*"), ("Service", "ec2.amazonaws.com")."""
    who = statement.get("Principal")
    for kind, names in who.items() if isinstance(who, Mapping) else [("AWS", who)]:
        for name in many(names):
            yield str(kind), str(name)


def everyone(cidr: Any) -> bool:
    """Whether a network is the internet, or so much of it that it makes no difference."""
    try:
        return isinstance(cidr, str) and ipaddress.ip_network(cidr, strict=False).prefixlen < 8
    except ValueError:
        return False


def covers(cidr: Any, address: str) -> bool:
    """Whether an address lies in a network."""
    try:
        return isinstance(cidr, str) and ipaddress.ip_address(address) in ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False


def decoded(value: Any) -> str:
    """User data in clear; EC2 takes it in base64."""
    found = text(value)
    try:
        return base64.b64decode(found, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return found
