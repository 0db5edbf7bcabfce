"""AWS service quotas that a GPU fleet meets."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping


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
    return MappingProxyType(
        {row["code"]: Quota(**row | {"families": tuple(row["families"])}) for row in _data.rows("quotas.json")}
    )


def quota_for(family: str, capacity: Literal["on-demand", "spot"]) -> Quota | None:
    """The quota that counts the vCPUs of an instance family (``"g4dn"``).

    None when AWS's table does not say (P6 Spot) or the catalogue does not hold the family: report it as unknown.
    """
    return next((quota for quota in quotas().values() if quota.capacity == capacity and family in quota.families), None)
