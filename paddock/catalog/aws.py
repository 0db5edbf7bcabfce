"""AWS: regions with their zones, quotas, and prices that do not depend on an instance type, GitHub's runners' too."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date


@cache
def regions() -> Mapping[str, str | None]:
    """Letters of the zones that every account has, by region; None where accounts have different ones."""
    return MappingProxyType({row["region"]: row["zones"] for row in _data.rows("regions.json")})


@dataclass(frozen=True, slots=True)
class Quota:
    """One quota, per region. `default` is what a new account has, in `unit`.

    `families` are the catalogue's instance families whose vCPUs count in it; empty, with `capacity` None, for a quota
    that does not count instances.
    """

    code: str
    service: str
    name: str
    families: tuple[str, ...]
    capacity: Literal["on-demand", "spot"] | None
    unit: str
    default: float


@cache
def quotas() -> Mapping[str, Quota]:
    """Every quota by code (``"L-DB2E81BA"``)."""
    return _data.keyed(Quota, "code", "quotas.json")


def quota_for(family: str, capacity: Literal["on-demand", "spot"]) -> Quota | None:
    """The quota that counts the vCPUs of an instance family (``"g4dn"``).

    None when AWS's table does not say (P6 Spot) or the catalogue does not hold the family: report it as unknown.
    """
    return next((quota for quota in quotas().values() if quota.capacity == capacity and family in quota.families), None)


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
    prices = _data.records(FixedPrice, "fixed_prices.json")
    return MappingProxyType({(price.key, price.region): price for price in prices})


def fixed_price(key: str, region: str) -> FixedPrice | None:
    """The price of `key` in `region`, None where nobody read it: another region's price is not this one's.

    Raises UnknownPrice where no region has that key.
    """
    prices = fixed_prices()
    price = prices.get((key, region)) or prices.get((key, ANYWHERE))
    if price is None and all(name != key for name, _ in prices):
        raise UnknownPrice(key, {name for name, _ in prices})
    return price
