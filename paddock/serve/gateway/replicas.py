"""Counts of the replicas for Prometheus, under the names that GoGrid gives them, one series a replica.

They are counted where requests run. A replica that ends takes its series with it: counts of several together would fall
then, which Prometheus takes for a new beginning.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from paddock.serve.gateway.listing import Row

Statistics = Mapping[str, Sequence[Mapping[str, Any]]]
"""What each replica of an instance counts, by the instance's id."""
ReadStatistics = Callable[[Sequence[Row]], Awaitable[Statistics]]

_LABELS = ("gen_ai_request_model", "replica")
_COUNTERS = {
    "inference_vram_limit_errors_total": ("out_of_memory", "Requests refused for want of the device's memory"),
    "inference_busy_seconds_total": ("busy_seconds", "Seconds in which a prompt was read or a step computed"),
    "inference_paused_seconds_total": ("paused_seconds", "Seconds in which requests waited for a mode's pause"),
    "inference_tokens_total": ("new_tokens", "Tokens of answers"),
}
_GAUGES = {
    "inference_requests_throttled": ("throttled", "Requests that a pause delayed"),
    "inference_throttle_rate": ("throttle_rate", "Part of the requests that a pause delayed, 0 to 1"),
    "inference_requests_waiting": ("waiting", "Requests that wait for a row"),
    "inference_batch_occupancy": ("batch_occupancy", "Part of the rows that a step computes, 0 to 1"),
}


async def no_statistics(instances: Sequence[Row]) -> Statistics:
    """Return none: nobody counts."""
    return {}


class ReplicaCollector:
    """Collector for prometheus_client of what was read last."""

    def __init__(self) -> None:
        self.statistics: Statistics = {}

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each count; a value that a replica does not know is left out."""
        for families, kind in ((_COUNTERS, CounterMetricFamily), (_GAUGES, GaugeMetricFamily)):
            for name, (key, text) in families.items():
                family = kind(name, text, labels=_LABELS)
                for id, replicas in self.statistics.items():
                    for row in replicas:
                        if row.get(key) is not None:
                            family.add_metric([id, str(row["replica"])], row[key])
                yield family
