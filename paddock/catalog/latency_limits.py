"""Latency limits of serving benchmarks: MLPerf Inference's, by workload."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from paddock.catalog import _data


@dataclass(frozen=True, slots=True)
class LatencyLimit:
    """Limits in milliseconds: of the time to the first token, and of the time for each one after it."""

    name: str
    ttft_ms: float
    tpot_ms: float
    source: str
    """Name and address of the source, with the day of its state."""


@cache
def latency_limits() -> Mapping[str, LatencyLimit]:
    """Every limit by name (``"llama3.1-8b-server"``)."""
    document = _data.document("latency_limits.json")
    sources = {row["key"]: f"{row['name']} of {row['as_of']} ({row['url']})" for row in document["sources"]}
    return MappingProxyType(
        {row["name"]: LatencyLimit(**row | {"source": sources[row["source"]]}) for row in document["rows"]}
    )
