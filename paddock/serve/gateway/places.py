"""Places at the instances: who runs, who waits, the pauses of an instance's mode, and what is counted of each.

An instance takes as many requests at once as it has slots; more wait in their order. With pauses, a request begins at
least `min_request_interval_ms` after the one before, and where the engine itself cannot keep to its part c of the time,
the slot of a request that ran for t seconds rests for t (1 / c - 1).

A policy's limits of an application and of a user hold in addition to those of the machine: who waits for one of
them lets the others pass.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from paddock.modes.alerts import raised
from paddock.modes.config import ResourceConfig
from paddock.modes.limiter import Statistics
from paddock.modes.policy import Share, of_text
from paddock.serve.admission.limits import RequestError
from paddock.serve.gateway.exchange import NOBODY, OUTCOMES, Outcome, Record, Who
from paddock.serve.gateway.listing import Row, concurrency

_LOOK_S = 1.0
"""Seconds after which a request that waits looks whether its instance still serves."""
_KEPT = 1024
"""Requests whose times the percentiles are of."""
_LEAST = 0.01
_MOST_PACES = 4096
_policy = lru_cache(maxsize=256)(of_text)


class Moved(Exception):
    """The instance went before the request was sent."""


@dataclass(slots=True)
class _Pace:
    """One application's or user's requests: those that run, and when the next may begin."""

    running: int = 0
    free_at: float = 0.0

    def due(self, share: Share, now: float) -> float:
        """Return when the next request may begin; endless while as many run as may."""
        full = share.max_batch_size is not None and self.running >= share.max_batch_size
        return math.inf if full else max(now, self.free_at)


@dataclass(slots=True, eq=False)
class _Waiting:
    since: float
    turn: asyncio.Future[None]
    who: Who
    paused_at: float | None = None


def _times() -> deque[float]:
    return deque(maxlen=_KEPT)


@dataclass(slots=True)
class Places:
    """Places of one instance. `queue` is how many may wait; None for any number. `row` is as it was listed last."""

    row: Row
    queue: int | None
    running: int = 0
    resting: int = 0
    waiting: deque[_Waiting] = field(default_factory=deque)
    ends: Counter[Outcome] = field(default_factory=Counter)
    out_of_memory: int = 0
    begun: int = 0
    throttled: int = 0
    prompt_tokens: int = 0
    new_tokens: int = 0
    busy_seconds: float = 0.0
    paused_seconds: float = 0.0
    occupied_seconds: float = 0.0
    _next: float = 0.0
    _seen: float = 0.0
    _timer: asyncio.TimerHandle | None = None
    _paces: dict[tuple[str, str], _Pace] = field(default_factory=dict)
    _queued: deque[float] = field(default_factory=_times)
    _first: deque[float] = field(default_factory=_times)
    _each: deque[float] = field(default_factory=_times)

    @property
    def load(self) -> float:
        """Return how many requests it has for each that it answers at once."""
        return (self.running + len(self.waiting)) / concurrency(self.row)

    async def enter(self, serves: Callable[[], Awaitable[bool]], who: Who = NOBODY) -> float:
        """Wait for a place, and return when it was got. Raises RequestError where too many wait, and Moved."""
        loop = asyncio.get_running_loop()
        mine = _Waiting(loop.time(), loop.create_future(), who)
        self.waiting.append(mine)
        self._pump()
        # One that waits for a pause while a slot is free has no other before it.
        waiting = self.running + len(self.waiting) - self._most(self._limits())
        if not mine.turn.done() and self.queue is not None and waiting > self.queue:
            self.waiting.remove(mine)
            raise RequestError(f"{self.row['id']} has as many requests as it answers and queues", 503, "queue_full")
        try:
            while not mine.turn.done():
                await asyncio.wait([mine.turn], timeout=_LOOK_S)
                if not mine.turn.done() and not await serves():
                    raise Moved
        except BaseException:
            if mine.turn.done():
                self.leave(loop.time(), who)
            else:
                self.waiting.remove(mine)
            raise
        return loop.time()

    def leave(self, began: float, who: Who = NOBODY) -> None:
        """Give a place back that was got then."""
        now = self._tick()
        self.running -= 1
        for key, share in self._shares(who):
            pace = self._paces.setdefault(key, _Pace(1))
            pace.running = max(0, pace.running - 1)
            rest = (now - began) * (1 / max(_LEAST, share.max_compute_usage_percent) - 1)
            pace.free_at = max(pace.free_at, now + rest)
        self._forget(now)
        if rest := (now - began) * (1 / self._part() - 1):
            self.resting += 1
            asyncio.get_running_loop().call_later(rest, self._rested)
        self._pump()

    def count(self, record: Record) -> None:
        """Count a request that has ended here."""
        self.ends[record.outcome] += 1
        self.out_of_memory += record.out_of_memory
        self.prompt_tokens += record.prompt_tokens
        self.new_tokens += record.new_tokens
        if record.first_s is not None:
            self._first.append(record.first_s)
            if record.new_tokens > 1:
                self._each.append((record.seconds - record.first_s) / (record.new_tokens - 1))

    def statistics(self) -> dict[str, Any]:
        """Return its counts as JSON types, with the alerts that hold. Times are seconds, or None."""
        limits = Statistics(
            self.begun, self.throttled, self.paused_seconds, self.busy_seconds, vram_limit_errors=self.out_of_memory
        )
        slots, busy = concurrency(self.row), self.busy_seconds
        own = ("out_of_memory", "running", "prompt_tokens", "new_tokens", "throttled")
        return {
            "requests": sum(self.ends.values()) + self.running + len(self.waiting),
            **{outcome: self.ends[outcome] for outcome in OUTCOMES}, **{name: getattr(self, name) for name in own},
            "waiting": len(self.waiting), "slots": slots,
            "batch_occupancy": round(self.occupied_seconds / busy / slots, 4) if busy else None,
            "throttle_rate": round(limits.throttle_rate, 4), "busy_seconds": round(busy, 3),
            "paused_seconds": round(self.paused_seconds, 3), "queue_seconds": _percentiles(self._queued),
            "first_token_seconds": _percentiles(self._first), "token_seconds": _percentiles(self._each),
            "alerts": [{"name": alert.name, "summary": alert.summary, "fix": alert.fix} for alert in raised(limits)],
        }  # fmt: skip

    def _pump(self) -> None:
        """Let those begin that may: as many as run at once, and no sooner than the interval allows."""
        now = self._tick()
        limits = self._limits()
        most = self._most(limits)
        while self.waiting and self.running < most:
            dues = [(self._due_of(waiting.who, now), waiting) for waiting in self.waiting]
            due, first = min(dues, key=lambda pair: pair[0])  # of equal ones the one that came first
            if self.running + self.resting >= most or (due := max(due, self._next)) > now:
                first.paused_at = first.paused_at or now
                if now < due < math.inf and self._timer is None:
                    self._timer = asyncio.get_running_loop().call_later(due - now, self._due)
                return
            self.waiting.remove(first)
            self.running += 1
            self.begun += 1
            self._queued.append(now - first.since)
            if first.paused_at is not None:
                self.throttled += 1
                self.paused_seconds += now - first.paused_at
            if limits and limits.enable_auto_throttle:
                self._next = now + limits.min_request_interval_ms / 1000
            for key, share in self._shares(first.who):
                pace = self._paces.setdefault(key, _Pace())
                pace.running += 1
                pace.free_at = max(pace.free_at, now + share.min_request_interval_ms / 1000)
            first.turn.set_result(None)

    def _due_of(self, who: Who, now: float) -> float:
        """Return when the limits of an application and a user let a request begin."""
        return max((self._paces.get(key, _Pace()).due(share, now) for key, share in self._shares(who)), default=now)

    def _shares(self, who: Who) -> list[tuple[tuple[str, str], Share]]:
        """Return the policy's limits of an application and of a user."""
        policy = _policy(str(self.row.get("mode") or ""))
        if policy is None:
            return []
        own = policy.applications.get(who.application)
        user = policy.users.get(who.user, policy.each_user) if who.user else None
        found = (("application", who.application), own), (("user", who.user), user)
        return [(key, share) for key, share in found if share]

    def _forget(self, now: float) -> None:
        """Forget users who ask nothing: their names are as many as clients make up."""
        if len(self._paces) > _MOST_PACES:
            self._paces = {key: pace for key, pace in self._paces.items() if pace.running or pace.free_at > now}

    def _due(self) -> None:
        self._timer = None
        self._pump()

    def _rested(self) -> None:
        self.resting -= 1
        self._pump()

    def _tick(self) -> float:
        """Count the time since the last change, and return the time."""
        now = asyncio.get_running_loop().time()
        if self.running:
            self.busy_seconds += now - self._seen
            self.occupied_seconds += (now - self._seen) * self.running
        self._seen = now
        return now

    def _limits(self) -> ResourceConfig | None:
        policy = _policy(str(self.row.get("mode") or ""))
        return policy.current()() if policy else None

    def _most(self, limits: ResourceConfig | None) -> int:
        """Return how many may run now: the batch of the mode that the schedule has, and never more than the slots."""
        slots = concurrency(self.row)
        return min(slots, limits.max_batch_size) if limits else slots

    def _part(self) -> float:
        """Return the part of the time that a slot may be busy, 0.01 to 1."""
        limits = self._limits()
        if not limits or not limits.enable_auto_throttle:
            return 1.0
        part = limits.max_compute_usage_percent if self.row.get("paced") else 1.0
        throttle = self.row.get("throttle")
        return max(_LEAST, min(1.0, part * (1.0 if throttle is None else throttle)))


def _percentiles(times: Iterable[float]) -> dict[str, float | None]:
    values = sorted(times)
    return {
        name: round(values[min(len(values) - 1, int(part * len(values)))], 6) if values else None
        for name, part in (("p50", 0.5), ("p95", 0.95))
    }
