"""Copies between GPUs: pairs that are connected alike should be about as fast as each other."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from paddock.gpu.model import Pair
from paddock.smoke.verdict.model import Measurement, PairSpeed

ALIKE = 0.6
"""Part of the median of its like below which a pair is reported."""
_SOURCE = "Paddock: six tenths of the median of the pairs that are connected alike"
_SHOWN = 4


def speeds(document: Sequence[Mapping[str, Any]], indexes: Sequence[int]) -> tuple[PairSpeed, ...]:
    """Return the copies that the worker measured, by the GPUs' indexes; `indexes` are in the worker's order."""
    return tuple(
        PairSpeed(indexes[pair["from"]], indexes[pair["to"]], float(pair["gbs"]), bool(pair["direct"]))
        for pair in document
    )


def with_floors(pairs: Sequence[PairSpeed], topology: Sequence[Pair]) -> tuple[PairSpeed, ...]:
    """Return the pairs, each with the speed below which it is slow for its connection; None where that is not known.

    NVLinks, distance and direct access make a connection: on machines such as those with V100s, pairs differ by design.
    """
    known = {
        frozenset((pair.a, pair.b)): (pair.nvlinks, pair.closeness)
        for pair in topology
        if pair.nvlinks or pair.closeness
    }
    alike: dict[Any, list[float]] = defaultdict(list)
    for pair in pairs:
        alike[_connection(pair, known)].append(pair.gbs)
    floors = {connection: ALIKE * statistics.median(speeds) for connection, speeds in alike.items() if connection}
    return tuple(replace(pair, floor=floors.get(_connection(pair, known))) for pair in pairs)


def _connection(pair: PairSpeed, known: Mapping[frozenset[int], Any]) -> Any:
    connection = known.get(frozenset((pair.source, pair.target)))
    return None if connection is None else (connection, pair.direct)


def measurement(pairs: Sequence[PairSpeed]) -> Measurement:
    """Return the pair that is slowest for its connection, with its limit."""
    slowest = min(pairs, key=lambda pair: pair.gbs / pair.floor if pair.floor else 1.0)
    name = f"slowest of {len(pairs)} pairs ({slowest.source} to {slowest.target})"
    return Measurement(name, slowest.gbs, "GB/s", slowest.floor, None, _SOURCE)


def detours(pairs: Sequence[PairSpeed], topology: Sequence[Pair]) -> str:
    """Return what is wrong with pairs that NVLinks join and that copy through the host all the same; else nothing."""
    linked = {frozenset((pair.a, pair.b)) for pair in topology if pair.nvlinks}
    around = [pair for pair in pairs if not pair.direct and frozenset((pair.source, pair.target)) in linked]
    return f"NVLinks join them, and copies go through the host: {_listed(around)}" if around else ""


def slow(pairs: Sequence[PairSpeed]) -> str:
    """Return the pairs that are slow for their connection."""
    slow = [pair for pair in pairs if pair.floor is not None and pair.gbs < pair.floor]
    return f"slow for their connection: {_listed(slow)}" if slow else ""


def _listed(pairs: Sequence[PairSpeed]) -> str:
    shown = [f"{pair.source} to {pair.target} ({pair.gbs:.3g} GB/s)" for pair in pairs[:_SHOWN]]
    return ", ".join(shown) + (f" and {len(pairs) - _SHOWN} more" if len(pairs) > _SHOWN else "")
