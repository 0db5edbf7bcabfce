"""An amount of US dollars that knows where it came from, and what it leaves out.

A price that the catalogue lacks is not zero: it is missing by name. A sum keeps the names of what is
missing, and is then a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.fleet.model.pool import GP3_IOPS, GP3_THROUGHPUT

HOURS_A_MONTH = 730
"""AWS's own convention: 8760 hours a year over 12."""


@dataclass(frozen=True, slots=True)
class Money:
    """`value` in `unit`; None where nothing of it is known.

    `sources` are keys of the catalogue's price sources, `as_of` the day of the oldest one. `missing` names what is not
    in `value`, which is then the least that will be paid.
    """

    value: float | None
    unit: str
    sources: tuple[str, ...] = ()
    as_of: date | None = None
    missing: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Return whether nothing is missing from the value."""
        return self.value is not None and not self.missing

    def __add__(self, other: Money) -> Money:
        return total((self, other), self.unit)

    def times(self, factor: float, unit: str | None = None) -> Money:
        """Return the amount for `factor` of it. None of a thing costs nothing, whatever its price."""
        unit = unit or self.unit
        if factor == 0:
            return Money(0.0, unit)
        value = None if self.value is None else self.value * factor
        return Money(value, unit, self.sources, self.as_of, self.missing)


def total(amounts: Iterable[Money], unit: str) -> Money:
    """Return the sum of what is known; None when nothing is. What is missing from a part is missing from the sum."""
    parts = tuple(amounts)
    values = [part.value for part in parts if part.value is not None]
    return Money(
        sum(values) if values or not parts else None,
        unit,
        tuple(dict.fromkeys(source for part in parts for source in part.sources)),
        min((part.as_of for part in parts if part.as_of), default=None),
        tuple(dict.fromkeys(name for part in parts for name in part.missing)),
    )


def unknown(name: str, unit: str) -> Money:
    """Return an amount for a price that the catalogue lacks."""
    return Money(None, unit, missing=(name,))


def least(amounts: Iterable[Money]) -> Money | None:
    """Return the smallest known amount; an unknown one when none is known, None when there are none."""
    parts = tuple(amounts)
    return min(parts, key=lambda part: (part.value is None, part.value or 0.0), default=None)


def most(amounts: Iterable[Money]) -> Money | None:
    """Return the largest known amount; an unknown one when none is known, None when there are none."""
    parts = tuple(amounts)
    return max(parts, key=lambda part: -1.0 if part.value is None else part.value, default=None)


def fixed(key: str, region: str) -> Money:
    """Return a price of the catalogue that does not depend on an instance type, in its own unit."""
    price = catalog.fixed_price(key, region)
    if price is None:
        unit = next(price_entry.unit for (name, _), price_entry in catalog.fixed_prices().items() if name == key)
        return unknown(f"{key} in {region}", unit)
    return Money(price.value, price.unit, (price.source,), price.as_of)


def on_demand(instance: InstanceType, region: str) -> Money:
    """USD/hour of an instance, Linux, on demand."""
    price = instance.price(region)
    return _instance(price.on_demand, price.on_demand_source, f"{instance.name} on demand in {region}")


def spot(instance: InstanceType, region: str) -> Money:
    """USD/hour of an instance, Linux, on spot: the lowest zone of the region, or as its source says."""
    price = instance.price(region)
    return _instance(price.spot, price.spot_source, f"{instance.name} on spot in {region}")


def volume(size_gib: float, iops: int, throughput: int, region: str) -> Money:
    """USD/hour of a gp3 volume: its size, and the IOPS and MiB/s beyond those included.

    AWS bills by the second, and counts a GiB as a GB.
    """
    parts = [fixed("ebs.gp3.storage", region).times(size_gib)]
    if iops > GP3_IOPS:
        parts.append(fixed("ebs.gp3.iops", region).times(iops - GP3_IOPS))
    if throughput > GP3_THROUGHPUT:
        parts.append(fixed("ebs.gp3.throughput", region).times(throughput - GP3_THROUGHPUT))
    return total(parts, "USD/month").times(1 / HOURS_A_MONTH, "USD/hour")


def _instance(value: float | None, source: str | None, name: str) -> Money:
    if value is None or source is None:
        return unknown(name, "USD/hour")
    read = catalog.price_sources()[source]
    return Money(value, "USD/hour", (source,), read.as_of)
