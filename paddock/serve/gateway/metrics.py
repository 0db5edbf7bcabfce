"""Metrics of the gateway: how requests end, how long they take, and their tokens.

Times and tokens have the names that OpenTelemetry gives them for generative AI.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from paddock.serve.gateway.record import OUTCOMES, Record
from paddock.serve.gateway.replicas import ReplicaCollector, Statistics

CONTENT_TYPE = CONTENT_TYPE_LATEST
_MODEL = "gen_ai_request_model"
_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
_TOKENS = tuple(4.0**power for power in range(14))


class Metrics:
    """Counters of one gateway. Labels are ids of instances and codes of ours: clients cannot make up new ones."""

    def __init__(self, in_flight: Callable[[], Mapping[str, int]]) -> None:
        self._registry = CollectorRegistry()
        self._in_flight = in_flight
        self._replicas = ReplicaCollector()
        self._registry.register(self._replicas)
        self._ended = self._counter("inference_requests", "Requests by their end", "outcome")
        self._errors = self._counter("inference_errors", "Stated errors by code", "code")
        self._refused = self._counter("inference_requests_refused", "Requests that were refused, by code", "code")
        self._open = self._gauge("inference_requests_open", "Requests that have not ended")
        self._running = self._gauge("inference_requests_running", "Requests at an instance", _MODEL)
        self._models = self._gauge("inference_models", "Instances by state", "state")
        self._scheduler = self._gauge("inference_scheduler_up", "Whether the scheduler answers")
        self._duration = self._histogram("gen_ai_server_request_duration_seconds", "Answered requests", _SECONDS)
        self._first = self._histogram("gen_ai_server_time_to_first_token_seconds", "To the first piece", _SECONDS)
        self._each = self._histogram(
            "gen_ai_server_time_per_output_token_seconds", "After the first token", _TOKEN_SECONDS
        )
        self._tokens = self._histogram(
            "gen_ai_client_token_usage", "Tokens of answered requests", _TOKENS, "gen_ai_token_type"
        )
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
        self._tokens.labels(record.model, "input").observe(record.prompt_tokens)
        self._tokens.labels(record.model, "output").observe(record.new_tokens)

    def text(self, models: Iterable[Mapping[str, Any]], replicas: Statistics, problem: str) -> bytes:
        """Return what Prometheus reads. `problem` is why the scheduler does not answer; empty where it does."""
        self._models.clear()
        for model in models:
            self._models.labels(model["state"]).inc()
        self._running.clear()
        for id, count in self._in_flight().items():
            self._running.labels(id).set(count)
        self._scheduler.set(not problem)
        self._replicas.statistics = replicas
        return bytes(generate_latest(self._registry))

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(name, text, labels, registry=self._registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(name, text, labels, registry=self._registry)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
        return Histogram(name, text, (_MODEL, *labels), buckets=buckets, registry=self._registry)
