"""Metrics of the gateway: how requests end, how long they take, their tokens, and the counts of each instance.

Times and tokens have the names that OpenTelemetry gives them for generative AI. An instance that is unloaded takes its
series with it. Loaded again it counts from 0, as counters may.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from paddock.serve.gateway.exchange import OUTCOMES, Record
from paddock.serve.gateway.listing import Row

CONTENT_TYPE = CONTENT_TYPE_LATEST
_MODEL = "gen_ai_request_model"
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(4.0**power for power in range(14))

Statistics = Mapping[str, Mapping[str, Any]]
"""What is counted of each instance, by its id."""

_LABELS = (_MODEL,)
_COUNTERS = {
    "inference_vram_limit_errors_total": ("out_of_memory", "Requests refused for lack of the device's memory"),
    "inference_busy_seconds_total": ("busy_seconds", "Seconds in which a request was at the engine"),
    "inference_paused_seconds_total": ("paused_seconds", "Seconds in which requests waited for a mode's pause"),
    "inference_tokens_total": ("new_tokens", "Tokens of answers"),
}
_GAUGES = {
    "inference_requests_throttled": ("throttled", "Requests that a pause delayed"),
    "inference_throttle_rate": ("throttle_rate", "Part of the requests that a pause delayed, 0 to 1"),
    "inference_requests_waiting": ("waiting", "Requests that wait for a slot"),
    "inference_requests_running": ("running", "Requests at an instance"),
    "inference_batch_occupancy": ("batch_occupancy", "Part of the slots that are taken while any is, 0 to 1"),
}
_NOT_A_NAME = re.compile(r"[^a-zA-Z0-9_]")


class InstanceCollector:
    """Collector for prometheus_client of what was read last."""

    def __init__(self) -> None:
        self.statistics: Statistics = {}
        self.rows: Sequence[Row] = ()

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each count; a value that is not known is left out."""
        for families, kind in ((_COUNTERS, CounterMetricFamily), (_GAUGES, GaugeMetricFamily)):
            for name, (key, text) in families.items():
                family = kind(name, text, labels=_LABELS)
                for id, counts in self.statistics.items():
                    if counts.get(key) is not None:
                        family.add_metric([id], counts[key])
                yield family
        yield from self._engines()

    def _engines(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for row in self.rows:
            for said, value in (row.get("engine_metrics") or {}).items():
                if type(value) not in (int, float):
                    continue
                name = f"inference_engine_{_NOT_A_NAME.sub('_', said)}"
                families.setdefault(name, GaugeMetricFamily(name, "As the engine says", labels=_LABELS)).add_metric(
                    [row["id"]], value
                )
        yield from families.values()


class Metrics:
    """Counters of one gateway. Labels are ids of instances and codes of ours: clients cannot make up new ones."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._instances = InstanceCollector()
        self._registry.register(self._instances)
        counter, gauge = partial(Counter, registry=self._registry), partial(Gauge, registry=self._registry)
        timed = partial(Histogram, labelnames=_LABELS, registry=self._registry)
        self._ended = counter("inference_requests", "Requests by their end", ["outcome"])
        self._errors = counter("inference_errors", "Stated errors by code", ["code"])
        self._refused = counter("inference_requests_refused", "Requests that were refused, by code", ["code"])
        self._open = gauge("inference_requests_open", "Requests that have not ended")
        self._models = gauge("inference_models", "Instances by state", ["state"])
        self._scheduler = gauge("inference_scheduler_up", "Whether the scheduler answers")
        self._duration = timed("gen_ai_server_request_duration_seconds", "Answered requests", buckets=_SECONDS)
        self._first = timed("gen_ai_server_time_to_first_token_seconds", "To the first piece", buckets=_SECONDS)
        self._each = timed(
            "gen_ai_server_time_per_output_token_seconds", "After the first token", buckets=_TOKEN_SECONDS
        )
        self._tokens = timed(
            "gen_ai_client_token_usage", "Tokens of answered requests", labelnames=(_MODEL, "gen_ai_token_type"),
            buckets=_TOKENS,
        )  # fmt: skip
        for outcome in OUTCOMES:
            self._ended.labels(outcome)

    def begin(self) -> None:
        self._open.inc()

    def end(self, record: Record) -> None:
        """Count a request, once, with all that is known of it."""
        self._open.dec()
        self._ended.labels(record.outcome).inc()
        if record.code:
            self._errors.labels(record.code).inc()
        if record.outcome == "refused":
            self._refused.labels(record.code).inc()
        if record.outcome != "answered":
            return
        self._duration.labels(record.model).observe(record.seconds)
        if record.first_s is not None:
            self._first.labels(record.model).observe(record.first_s)
            if record.new_tokens > 1:
                per_token = (record.seconds - record.first_s) / (record.new_tokens - 1)
                self._each.labels(record.model).observe(per_token)
        if record.judged:
            self._tokens.labels(record.model, "input").observe(record.prompt_tokens)
            self._tokens.labels(record.model, "output").observe(record.new_tokens)

    def text(self, rows: Sequence[Row], statistics: Statistics, problem: str) -> bytes:
        """Return what Prometheus reads. `problem` is why the scheduler does not answer; empty where it does."""
        self._models.clear()
        for row in rows:
            self._models.labels(row["state"]).inc()
        self._scheduler.set(not problem)
        self._instances.statistics, self._instances.rows = statistics, rows
        return bytes(generate_latest(self._registry))
