"""Physical names that a provider makes up: the logical one with seven hexadecimal digits, as Pulumi's bridge does."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from paddock.lab.providers.diff import DEFAULTS

DIGITS = 7


def digits(urn: str, serial: int) -> str:
    """Return digits that distinguish resources with one URN: a replacement exists next to the resource it replaces."""
    return hashlib.sha256(f"{urn}#{serial}".encode()).hexdigest()[:DIGITS]


def named(
    inputs: Mapping[str, Any], property_: str | None, name: str, seed: bytes, old: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the inputs with a name in `property_`: the given one, the old one that was made up, or a new one.

    `seed` is the engine's: another one for every new resource, the same one when a preview becomes an update.
    """
    if property_ is None or inputs.get(property_) is not None or inputs.get(f"{property_}Prefix") is not None:
        return {**inputs, DEFAULTS: []}
    previous = old.get(property_) if property_ in old.get(DEFAULTS, ()) else None
    return {**inputs, property_: previous or f"{name}-{seed.hex()[:DIGITS].ljust(DIGITS, '0')}", DEFAULTS: [property_]}
