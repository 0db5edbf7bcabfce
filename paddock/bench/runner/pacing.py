"""Limits of a resource mode inside a worker: its priority, and the pauses before its requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager

from paddock.bench.runner.jobs import Job
from paddock.gpu.inventory import inventory
from paddock.modes import priority
from paddock.modes.adaptive import Throttle, adapting
from paddock.modes.config import PRESETS
from paddock.modes.limiter import Limiter, Statistics
from paddock.modes.policy import Policy

_NO_LIMITS = Policy(resources=PRESETS["aggressive"].model_copy(update={"max_batch_size": 65536}))
Turns = Callable[[int], AbstractContextManager[float]]
"""Context in which a request of that batch runs. It waits first, and gives the seconds of the pause."""


def lower_priority(job: Job) -> tuple[str, ...]:
    """Take the priority of the resource mode, and return what the system refused of it."""
    if job.policy is None:
        return ()
    settings = priority.apply(_policy(job).current()())
    return tuple(f"{item.name} {item.value}: {item.reason}" for item in settings if not item.applied)


@contextmanager
def pacing(job: Job, report: Callable[[Statistics], None] = lambda _: None) -> Iterator[Turns]:
    """Keep a job to its resource mode: by the time of day, by others' load on its GPUs, and to its user's limits.

    `report` gets the statistics of the mode after each request.
    """
    policy = _policy(job)
    current, throttle = policy.current(), Throttle(policy.adaptive)
    limiter = Limiter(policy, lambda: throttle.apply(current()))

    @contextmanager
    def turn(batch: int) -> Iterator[float]:
        with limiter.request(batch, application=job.application, user=job.user) as admitted:
            yield admitted.paused
        report(limiter.statistics())

    with ExitStack() as stack:
        if policy.adaptive.enabled:
            for uuid in job.uuids:
                stack.enter_context(adapting(throttle, lambda: inventory(processes=True), uuid, _own(limiter)))
        yield turn


def _policy(job: Job) -> Policy:
    if job.policy is None:
        return _NO_LIMITS
    return Policy.model_validate(job.policy, strict=False)  # JSON has no tuples


def _own(limiter: Limiter) -> Callable[[], tuple[set[int], float]]:
    """Return a function that tells this benchmark's processes, and the part of the time in which it was busy."""
    import psutil

    since, busy = time.monotonic(), 0.0

    def own() -> tuple[set[int], float]:
        nonlocal since, busy
        now, total = time.monotonic(), limiter.statistics().busy_seconds
        part = (total - busy) / max(now - since, 1e-3)
        since, busy = now, total
        return {psutil.Process().pid}, part

    return own
