"""Pace of a loop: the pauses of a resource mode between steps, and between the starts of requests.

After a prompt or step of t seconds the next waits t (1 / c - 1), so that at most the part c of the time is busy. A
request starts no sooner than the interval after the one before. A batch is as large as the mode allows at that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from paddock.modes.config import PRESETS, ResourceConfig


@dataclass(slots=True)
class Pace:
    """Times of the last step and request, and the limits of the moment. Seconds of the loop's clock.

    `paused_seconds` are those in which a request was there and nothing ran.
    """

    current: Callable[[], ResourceConfig] = lambda: PRESETS["aggressive"]
    busy_seconds: float = 0.0
    paused_seconds: float = 0.0
    _resumes: float = 0.0
    _next_start: float = 0.0

    def batch_limit(self) -> int:
        """Return the most rows that may run now."""
        return self.current().max_batch_size

    def due(self, *, joining: bool) -> float:
        """Return when the next step may begin, or the next request may join."""
        return max(self._resumes, self._next_start) if joining else self._resumes

    def begin(self, now: float) -> None:
        """Note the start of a request."""
        config = self.current()
        if config.enable_auto_throttle:
            self._next_start = now + config.min_request_interval_ms / 1000

    def end(self, began: float, now: float) -> None:
        """Note a prompt that was read, or a step of all rows."""
        config, busy = self.current(), now - began
        self.busy_seconds += busy
        if config.enable_auto_throttle:
            self._resumes = max(self._resumes, now) + busy * (1 / config.max_compute_usage_percent - 1)

    def waited(self, seconds: float) -> None:
        """Note a pause that a request has waited for."""
        self.paused_seconds += seconds
