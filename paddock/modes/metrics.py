"""Metrics of the limiter: for Prometheus with underscores, as values with their dots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from paddock.modes.errors import ModeError, ModeInputError
from paddock.modes.limiter import Statistics

REQUESTS, THROTTLED, RATE = "inference.requests.total", "inference.requests.throttled", "inference.throttle_rate"
VRAM_ERRORS = "inference.vram_limit_errors.total"
_LOOPBACK = "127.0.0.1"
_HELP = {
    REQUESTS: "Requests so far.",
    THROTTLED: "Requests that a pause delayed.",
    RATE: "Part of the requests that a pause delayed, 0 to 1.",
    VRAM_ERRORS: "Models and requests refused for want of GPU memory.",
}


def values(statistics: Statistics) -> dict[str, float]:
    """Return the metrics by name."""
    return {
        REQUESTS: statistics.total,
        THROTTLED: statistics.throttled,
        RATE: statistics.throttle_rate,
        VRAM_ERRORS: statistics.vram_limit_errors,
    }


class Collector:
    """Collector for prometheus_client: `REGISTRY.register(Collector(limiter.statistics))`."""

    def __init__(self, statistics: Callable[[], Statistics]) -> None:
        self._statistics = statistics

    def collect(self) -> Iterator[Any]:
        """Yield the metrics of now."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        for name, value in values(self._statistics()).items():
            # A counter's name ends in _total in that format; the others keep theirs as gauges.
            form = CounterMetricFamily if name.endswith(".total") else GaugeMetricFamily
            yield form(name.replace(".", "_"), _HELP[name], value=value)


@contextmanager
def served(statistics: Callable[[], Statistics], port: int) -> Iterator[None]:
    """Serve the metrics over HTTP on this machine's own address while the block runs.

    Raises ModeError where prometheus_client is not installed, and ModeInputError for a port that is taken.
    """
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ModuleNotFoundError:
        raise ModeError(
            "prometheus_client is not installed here, so metrics cannot be served"
            "\n    fix: ./inv bench in a checkout installs it, or pip install 'paddock[bench]'"
        ) from None
    registry = CollectorRegistry()
    registry.register(Collector(statistics))
    try:
        server, thread = start_http_server(port, addr=_LOOPBACK, registry=registry)
    except OSError as error:
        raise ModeInputError(
            f"--metrics {port}: {error.strerror or error}\n    expected: a free port of this machine"
            "\n    fix: choose another"
        ) from None
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
