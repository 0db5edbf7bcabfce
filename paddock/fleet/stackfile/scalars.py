"""YAML scalars as Go reads them and writes them as JSON: the text that Pulumi hands to a program.

The rules are resolve.go of gopkg.in/yaml.v3 and encoding/json.
"""

from __future__ import annotations

import json
import math
import re
from datetime import date
from decimal import Decimal
from typing import Any

_BOOLS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
_NULLS = {"", "~", "null", "Null", "NULL"}
_INTEGER = re.compile(r"^[-+]?(0[xX][0-9a-fA-F]+|0[bB][01]+|0[oO]?[0-7]+|0|[1-9][0-9]*)$")
_FLOAT = re.compile(r"^[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?$")
_DATE = re.compile(
    r"^(\d{4})-(\d\d?)-(\d\d?)"
    r"(?:[Tt](\d\d?):(\d\d?):(\d\d?)(\.\d{1,9})?(Z|[-+]\d\d:\d\d)| (\d\d?):(\d\d?):(\d\d?)(\.\d{1,9})?)?$"
)


class Moment:
    """A date or time written without quotes, in the words that Go prints it with."""

    def __init__(self, text: str) -> None:
        self.text = text


def resolve(text: str) -> Any:
    """Return a plain scalar as Go reads it: null, a bool, a number, a moment or text."""
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if moment := _moment(text):
        return moment
    plain = text.replace("_", "") if text[:1] in "+-0123456789" else text
    integer = _integer(plain) if _INTEGER.match(plain) else None
    if integer is not None:
        return integer
    value = float(plain) if _FLOAT.match(plain) else math.inf
    if math.isinf(value):
        return text
    written = go_float(value)
    return int(written) if written.lstrip("-").isdigit() else value


def _integer(plain: str) -> int | None:
    """A number that Go holds as an integer; None for one that is too large, which may still be a float."""
    digits = plain.lstrip("+-").lower()
    base = {"0x": 16, "0b": 2, "0o": 8}.get(digits[:2], 8 if digits[:1] == "0" and len(digits) > 1 else 10)
    if len(digits) > 70:
        return None
    number = int(digits[2:] if digits[:2] in {"0x", "0b", "0o"} else digits, base) * (-1 if plain[:1] == "-" else 1)
    return number if -(2**63) <= number < 2**64 else None


def _moment(text: str) -> Moment | None:
    match = _DATE.match(text)
    if match is None:
        return None
    year, month, day = int(match[1]), int(match[2]), int(match[3])
    hour, minute, second = (int(match[i] or match[i + 5] or 0) for i in (4, 5, 6))
    try:
        date(year, month, day)
    except ValueError:
        return None
    if hour > 23 or minute > 59 or second > 59:
        return None
    fraction = (match[7] or match[12] or "").rstrip("0").rstrip(".")
    zone = match[8] or "Z"
    offset = "+0000 UTC" if zone == "Z" else f"{zone.replace(':', '')} {zone.replace(':', '')}"
    return Moment(f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction} {offset}")


def go_float(value: float) -> str:
    """A float as Go's encoding/json writes it: 1000, 1.1, 1e-7, 1e+21."""
    if value == 0:
        return "0"
    if 1e-6 <= abs(value) < 1e21:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa, _, exponent = repr(value).partition("e")
    return f"{mantissa.removesuffix('.0')}e{'-' if exponent[0] == '-' else '+'}{int(exponent.lstrip('+-'))}"


def go_json(value: Any) -> str:
    """A value as Pulumi hands it to a program: compact JSON with sorted keys, escaped as for HTML."""
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if -(2**63) <= value < 2**63 else go_float(float(value))
        case float():
            return go_float(value)
        case dict():
            return "{" + ",".join(f"{_quoted(name)}:{go_json(value[name])}" for name in sorted(value)) + "}"
        case list():
            return "[" + ",".join(go_json(item) for item in value) + "]"
        case str():
            return _quoted(value)
        case _:
            return "null"


def go_text(value: Any) -> str:
    """A top-level value of the configuration as `pulumi.Config` returns it."""
    match value:
        case str():
            return value
        case None:
            return ""
        case int() if not isinstance(value, bool) and -(2**63) <= value < 2**64:
            return str(value)
        case _:
            return go_json(value)


_HTML = str.maketrans({char: f"\\u{ord(char):04x}" for char in "<>&\u2028\u2029"})


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).translate(_HTML)
