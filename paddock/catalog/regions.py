"""AWS regions and the letters of their availability zones."""

from __future__ import annotations

from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping


@cache
def regions() -> Mapping[str, str | None]:
    """Letters of the zones that every account has, by region; None where accounts have different ones."""
    return MappingProxyType({row["region"]: row["zones"] for row in _data.rows("regions.json")})
