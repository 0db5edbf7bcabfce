"""AWS regions and the letters of their availability zones."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

from paddock.catalog import _data


@cache
def regions() -> Mapping[str, str | None]:
    """Letters of the zones that every account has, by region; None where accounts have different ones."""
    return MappingProxyType({row["region"]: row["zones"] for row in _data.rows("regions.json")})
