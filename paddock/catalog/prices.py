"""Prices that do not depend on an instance type: control plane, network, storage, GitHub's own runners."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

ANYWHERE = "*"


class UnknownPrice(_data.UnknownName):
    """No price of that key; `suggestions` are the nearest keys."""

    kind = "price"


@dataclass(frozen=True, slots=True)
class FixedPrice:
    """`value` in `unit` (``USD/hour``, ``USD/GB-month``, ...) in `region`; ``*`` is one price everywhere."""

    key: str
    value: float
    unit: str
    region: str
    what: str
    source: str
    as_of: date


@cache
def fixed_prices() -> Mapping[tuple[str, str], FixedPrice]:
    """Every price by (key, region)."""
    return MappingProxyType(
        {
            (row["key"], row["region"]): FixedPrice(**row | {"as_of": _data.day(row["as_of"])})
            for row in _data.rows("fixed_prices.json")
        }
    )


def fixed_price(key: str, region: str) -> FixedPrice | None:
    """The price of `key` in `region`, None where nobody read it: another region's price is not this one's.

    Raises UnknownPrice where no region has that key.
    """
    prices = fixed_prices()
    price = prices.get((key, region)) or prices.get((key, ANYWHERE))
    if price is None and all(name != key for name, _ in prices):
        raise UnknownPrice(key, {name for name, _ in prices})
    return price
