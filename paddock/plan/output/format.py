"""Amounts and values as text: the one place that formats money, counts and quantities for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.plan.document.model import Money

_UNITS = {
    "USD/hour": " an hour", "USD/month": " a month", "USD/job": " a job", "USD/minute": " a minute",
    "USD/GB": " a GB", "USD/GB-month": " a GB and month",
}  # fmt: skip


def count(number: int, noun: str) -> str:
    """1 -> "1 node", 2 -> "2 nodes"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def usd(value: float | None, *, sign: str = "$", whole_from: float = 1000) -> str:
    """`$1,234`, `$12.30`, `$0.0042`; cents are left out from `whole_from` on."""
    if value is None:
        return "unknown"
    digits = 0 if abs(value) >= whole_from else 2 if abs(value) >= 0.1 or value == 0 else 4
    return f"{sign}{value:,.{digits}f}"


def money(amount: Money, *, unit: bool = False) -> str:
    """Dollars; `≥ $1,234` where a part of the amount has no price, `unknown` where none has."""
    if amount.value is None:
        return "unknown"
    least = "\u2265 " if amount.missing else ""
    return f"{least}{usd(amount.value)}{_UNITS.get(amount.unit, '') if unit else ''}"


def quantity(value: float | None, unit: str = "") -> str:
    """`1,248 vCPU`, `3 addresses`, `0.4 TiB`; `unknown` without a value."""
    if value is None:
        return "unknown"
    if unit.islower() and value != 1:
        unit += "es" if unit.endswith("s") else "s"
    number = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return f"{number} {unit}".rstrip()


def cores(millicores: float, digits: int = 2) -> str:
    """3640 -> "3.64", 4000 -> "4"."""
    return f"{millicores / 1000:,.{digits}f}".rstrip("0").rstrip(".")


def gibibytes(mebibytes: float) -> str:
    """14520 -> "14.2 GiB", 180224 -> "176 GiB"; below one GiB in MiB."""
    if 0 < mebibytes < 1024:
        return f"{mebibytes:.0f} MiB"
    return f"{mebibytes / 1024:,.1f}".removesuffix(".0") + " GiB"


def words(value: Any, default: str = "") -> str:
    """Return any JSON value on one line."""
    match value:
        case None:
            return default
        case bool():
            return "yes" if value else "no"
        case float():
            return f"{value:g}"
        case list():
            return ", ".join(words(item, "unknown") for item in value)
        case Mapping():
            return ", ".join(f"{key} {words(item, 'unknown')}" for key, item in value.items())
        case _:
            return str(value)
