"""Reading of a resource's inputs: absent, unknown and secret values are handled here only."""

from __future__ import annotations

import base64
import binascii
import contextlib
import ipaddress
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from paddock.plan.engine.values import UNKNOWN, Secret

_LISTS = (list, tuple)  # named, as `list | tuple` is made again at each use
_PLAIN = {int, float, bool, type(None)}
_MAPPINGS = (dict, Mapping)  # dict first: most are, and the abstract class is slow to ask


def unwrap(value: Any) -> Any:
    """Return a value without its secret marker."""
    return value.value if type(value) is Secret else value


def is_unknown(value: Any) -> bool:
    return bool(unwrap(value) == UNKNOWN)


def has_unknown(value: Any) -> bool:
    """Return whether anything in a value is not known yet."""
    value = unwrap(value)
    kind = type(value)
    if kind is str:
        return bool(value == UNKNOWN)
    if kind in _PLAIN:
        return False
    if kind is list or isinstance(value, _LISTS):
        return any(map(has_unknown, value))
    if isinstance(value, _MAPPINGS):
        return UNKNOWN in value or any(map(has_unknown, value.values()))
    return False


def get(value: Any, *path: str | int) -> Any:
    """Return the value at `path`: None where there is none, UNKNOWN where a part of the path is not known yet."""
    for step in path:
        if type(value) is Secret:
            value = value.value
        if type(value) is dict:  # first, as most are, and quicker to tell than any mapping
            value = value.get(step)
        elif value is None:
            return None
        elif value == UNKNOWN:
            return UNKNOWN
        elif isinstance(value, _MAPPINGS):
            value = value.get(step)
        elif isinstance(value, _LISTS) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value.value if type(value) is Secret else value


def items(value: Any, *path: str | int) -> list[Any]:
    """Elements of the list at `path`; none where there is no list."""
    values = get(value, *path)
    return [unwrap(item) for item in values] if isinstance(values, _LISTS) else []


def mapping(value: Any, *path: str | int) -> dict[str, Any]:
    """Return the map at `path`; an empty one where there is none."""
    item = get(value, *path)
    return dict(item) if isinstance(item, _MAPPINGS) else {}


def as_list(value: Any) -> list[Any]:
    """Return a value that may be written alone or as a list."""
    value = unwrap(value)
    return [] if value is None else [unwrap(item) for item in value] if isinstance(value, _LISTS) else [value]


def is_on(value: Any) -> bool:
    """Return whether a switch is on. AWS spells some of them as text; an unknown one is taken to be set on purpose."""
    return value is True or is_unknown(value) or (isinstance(value, str) and value.lower() == "true")


def is_set(value: Any) -> bool:
    """Return whether a value is set."""
    return value is not None and value != "" and value != [] and value != {}


def text(value: Any, *path: str | int) -> str:
    """Text at `path`; empty where there is none, or where it is not known yet."""
    item = get(value, *path)
    return item if isinstance(item, str) and item != UNKNOWN else ""


def json_document(value: Any) -> Mapping[str, Any]:
    """Return a JSON document given as text or as data; empty when it is neither."""
    value = unwrap(value)
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def allow_statements(value: Any) -> Iterator[Mapping[str, Any]]:
    """Statements of an IAM policy document that allow something."""
    for statement in as_list(json_document(value).get("Statement")):
        if isinstance(statement, Mapping) and statement.get("Effect") == "Allow":
            yield statement


def principals(statement: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """(kind, who) of a statement: ("AWS", "*"), ("Service", "ec2.amazonaws.com")."""
    who = statement.get("Principal")
    for kind, names in who.items() if isinstance(who, Mapping) else [("AWS", who)]:
        for name in as_list(names):
            yield str(kind), str(name)


def is_internet(cidr: Any) -> bool:
    """Return whether a network is the internet, or so much of it that it makes no difference."""
    try:
        return isinstance(cidr, str) and ipaddress.ip_network(cidr, strict=False).prefixlen < 8
    except ValueError:
        return False


def contains(cidr: Any, address: str) -> bool:
    """Return whether an address is in a network."""
    try:
        return isinstance(cidr, str) and ipaddress.ip_address(address) in ipaddress.ip_network(cidr, strict=False)
    except ValueError:
        return False


def covers(cidr: Any, network: str) -> bool:
    """Return whether a network holds all of another IPv4 network."""
    try:
        return isinstance(cidr, str) and ipaddress.IPv4Network(network).subnet_of(ipaddress.IPv4Network(cidr))
    except ValueError:
        return False


def joined(cidrs: Iterable[str]) -> list[str]:
    """Return IPv4 networks with neighbours made one."""
    networks = []
    for cidr in cidrs:
        with contextlib.suppress(ValueError):
            networks.append(ipaddress.IPv4Network(cidr))
    return [str(network) for network in ipaddress.collapse_addresses(networks)]


def first_address(network: str) -> str:
    """Return the first address of an IPv4 network that a host or service may have; empty for anything else."""
    try:
        return str(ipaddress.IPv4Network(network)[1])
    except (ValueError, IndexError):
        return ""


def decode_user_data(value: Any) -> str:
    """User data in clear text; EC2 takes it in base64."""
    encoded = text(value)
    try:
        return base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return encoded
