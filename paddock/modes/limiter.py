"""Pauses between requests: a duty cycle, an interval and a batch limit, of the machine, an application and a user.

After a request that ran for t seconds the next waits until both hold::

    end + t (1 / c - 1)      so that at most the part c of the time is busy
    start + interval

One request runs at a time, a batch being one request: with two the GPU would never pause.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import astuple, dataclass, field, replace

from paddock.modes.config import ResourceConfig
from paddock.modes.errors import ModeError
from paddock.modes.policy import Policy, Share

_MOST_USERS = 1024
"""Users remembered; those whose pause is over are forgotten beyond that."""


class BatchTooLarge(ModeError):
    """A request has more sequences than a batch may have."""


@dataclass(frozen=True, slots=True)
class Statistics:
    """Requests so far. Waiting for one's turn is not throttling; a pause is. Seconds.

    `busy_seconds` counts the request that runs, up to now.
    """

    total: int = 0
    throttled: int = 0
    paused_seconds: float = 0.0
    busy_seconds: float = 0.0
    vram_limit_errors: int = 0

    def __add__(self, other: Statistics) -> Statistics:
        """Return the statistics of the requests of both."""
        return Statistics(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))

    @property
    def throttle_rate(self) -> float:
        """Part of the requests that a pause delayed, 0 to 1."""
        return self.throttled / self.total if self.total else 0.0


@dataclass(slots=True)
class _Pace:
    """Pause after the last request of one group, as times of the clock."""

    started: float | None = None
    ended: float = 0.0
    busy: float = 0.0

    def due(self, share: Share) -> float:
        """Return when the next request may start."""
        if self.started is None:
            return 0.0
        rest = self.busy * (1 / share.max_compute_usage_percent - 1)
        return max(self.ended + rest, self.started + share.min_request_interval_ms / 1000)


@dataclass(slots=True)
class _Counts:
    total: int = 0
    throttled: int = 0
    paused: float = 0.0
    busy: float = 0.0
    vram_limit_errors: int = 0

    def statistics(self) -> Statistics:
        return Statistics(self.total, self.throttled, self.paused, self.busy, self.vram_limit_errors)


@dataclass(frozen=True, slots=True)
class Admitted:
    """Request that may run: seconds it waited, and the part of them that was a pause."""

    waited: float
    paused: float


@dataclass(slots=True)
class Limiter:
    """Limits of one device on the requests of this process, from any thread."""

    policy: Policy
    current: Callable[[], ResourceConfig] | None = None
    """Limits of the moment, such as by the time of day or by others' load; by default those of the policy."""
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep
    _turn: threading.Condition = field(default_factory=threading.Condition, init=False)
    _running: tuple[str, float] | None = field(default=None, init=False)
    """Application and start of the request that runs."""
    _paces: dict[tuple[str, str], _Pace] = field(default_factory=dict, init=False)
    _counts: dict[str, _Counts] = field(default_factory=lambda: {"": _Counts()}, init=False)

    def __post_init__(self) -> None:
        self.current = self.current or self.policy.current()

    def batch_limit(self, application: str = "", user: str = "") -> int:
        """Return the largest batch that a request may have now."""
        limits = (share.max_batch_size for _, share in self._shares(application, user))
        return min(limit for limit in limits if limit is not None)

    @contextmanager
    def request(self, batch: int = 1, *, application: str = "", user: str = "") -> Iterator[Admitted]:
        """Wait until a request may run; it runs inside the block. Raises BatchTooLarge at once."""
        limit = self.batch_limit(application, user)
        if batch > limit:
            raise BatchTooLarge(
                f"a batch of {batch} is too large\n    expected: at most {limit}"
                f"\n    fix: split it into {-(-batch // limit)} requests, or raise max_batch_size"
            )
        admitted = self._start(application, user)
        try:
            yield admitted
        finally:
            self._end(application, user)

    def statistics(self, application: str = "") -> Statistics:
        """Return the statistics of all requests, or of an application's."""
        with self._turn:
            statistics = self._counts.get(application, _Counts()).statistics()
            if self._running and application in ("", self._running[0]):
                running = self.clock() - self._running[1]
                statistics = replace(statistics, busy_seconds=statistics.busy_seconds + running)
            return statistics

    def _start(self, application: str, user: str) -> Admitted:
        arrived, paused = self.clock(), 0.0
        while True:
            with self._turn:
                while self._running:
                    self._turn.wait()
                shares = self._shares(application, user)
                due = max((self._paces[key].due(share) for key, share in shares if key in self._paces), default=0.0)
                now = self.clock()
                if now >= due:
                    self._running = application, now
                    for counts in self._counts_of(application):
                        counts.total += 1
                        counts.throttled += paused > 0
                        counts.paused += paused
                    return Admitted(now - arrived, paused)
            # Outside the turn: another application's request may run during this one's pause.
            self.sleep(due - now)
            paused += self.clock() - now

    def _end(self, application: str, user: str) -> None:
        with self._turn:
            end = self.clock()
            start = self._running[1] if self._running else end
            for key, _ in self._shares(application, user):
                pace = self._paces.setdefault(key, _Pace())
                pace.started, pace.ended, pace.busy = start, end, end - start
            for counts in self._counts_of(application):
                counts.busy += end - start
            self._forget(end)
            self._running = None
            self._turn.notify_all()

    def _shares(self, application: str, user: str) -> list[tuple[tuple[str, str], Share]]:
        """Return all limits that hold for a request: the machine's first."""
        config = self.current() if self.current else self.policy.resources
        machine = Share(max_batch_size=config.max_batch_size)
        if config.enable_auto_throttle:
            machine = Share(
                max_compute_usage_percent=config.max_compute_usage_percent,
                min_request_interval_ms=config.min_request_interval_ms,
                max_batch_size=config.max_batch_size,
            )
        shares = [(("machine", ""), machine)]
        if application in self.policy.applications:
            shares.append((("application", application), self.policy.applications[application]))
        if user and (own := self.policy.users.get(user, self.policy.each_user)):
            shares.append((("user", user), own))
        return shares

    def _counts_of(self, application: str) -> list[_Counts]:
        named = [application] if application in self.policy.applications else []
        return [self._counts.setdefault(name, _Counts()) for name in ("", *named)]

    def _forget(self, now: float) -> None:
        if len(self._paces) <= _MOST_USERS:
            return
        for kind, name in list(self._paces):
            share = self.policy.users.get(name, self.policy.each_user) if kind == "user" else None
            if share and self._paces[kind, name].due(share) <= now:
                del self._paces[kind, name]
