"""Statistics of a replica, and the alerts that follow from them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Any

from paddock.modes.alerts import raised
from paddock.modes.limiter import Statistics
from paddock.serve.engine.pace import Pace
from paddock.serve.engine.rows import OutOfMemory
from paddock.serve.errors import ServeError

_KEPT = 1024
"""Requests whose times the percentiles are of."""


def _times() -> deque[float]:
    return deque(maxlen=_KEPT)


@dataclass(slots=True)
class Counts:
    """Counts of one loop since it began. Every request is answered, failed or cancelled in the end."""

    slots: int
    requests: int = 0
    answered: int = 0
    failed: int = 0
    cancelled: int = 0
    out_of_memory: int = 0
    throttled: int = 0
    begun: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    steps: int = 0
    stepped_rows: int = 0
    queue: deque[float] = field(default_factory=_times)
    first_token: deque[float] = field(default_factory=_times)
    a_token: deque[float] = field(default_factory=_times)

    def started(self, queued: float, throttled: bool, prompt_tokens: int) -> None:
        """Count a request that joins."""
        self.begun += 1
        self.throttled += throttled
        self.prompt_tokens += prompt_tokens
        self.queue.append(queued)

    def step(self, rows: int) -> None:
        """Count one step of so many rows."""
        self.steps += 1
        self.stepped_rows += rows

    def ended(self, cancelled: bool, error: ServeError | None, tokens: int, first: float, rest: float) -> None:
        """Count a request's end. `first` are the seconds to the first token, `rest` those after it."""
        self.cancelled += cancelled
        self.failed += error is not None and not cancelled
        self.answered += error is None and not cancelled
        self.out_of_memory += isinstance(error, OutOfMemory)
        self.new_tokens += tokens
        if tokens:
            self.first_token.append(first)
        if tokens > 1:
            self.a_token.append(rest / (tokens - 1))

    def document(self, waiting: int, running: int, pace: Pace) -> dict[str, Any]:
        """Return them as JSON types, with the alerts that hold. Times are seconds; a percentile of none is None."""
        limits = Statistics(
            self.begun, self.throttled, pace.paused_seconds, pace.busy_seconds, vram_limit_errors=self.out_of_memory
        )
        return {
            "requests": self.requests,
            "answered": self.answered,
            "failed": self.failed,
            "cancelled": self.cancelled,
            "out_of_memory": self.out_of_memory,
            "waiting": waiting,
            "running": running,
            "slots": self.slots,
            "batch_occupancy": round(self.stepped_rows / self.steps / self.slots, 4) if self.steps else None,
            "prompt_tokens": self.prompt_tokens,
            "new_tokens": self.new_tokens,
            "throttled": self.throttled,
            "throttle_rate": round(limits.throttle_rate, 4),
            "busy_seconds": round(pace.busy_seconds, 3),
            "paused_seconds": round(pace.paused_seconds, 3),
            "queue_seconds": _percentiles(self.queue),
            "first_token_seconds": _percentiles(self.first_token),
            "token_seconds": _percentiles(self.a_token),
            "alerts": [{"name": alert.name, "summary": alert.summary, "fix": alert.fix} for alert in raised(limits)],
        }


def _percentiles(times: deque[float]) -> dict[str, float | None]:
    values = sorted(times)
    return {
        name: round(values[min(len(values) - 1, int(part * len(values)))], 6) if values else None
        for name, part in (("p50", 0.5), ("p95", 0.95))
    }
