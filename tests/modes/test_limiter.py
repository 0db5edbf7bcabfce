"""Pauses between requests, on a clock that only sleeping and working move."""

from __future__ import annotations

import datetime as dt
import threading
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.modes.config import PRESETS, ResourceConfig
from paddock.modes.limiter import BatchTooLarge, Limiter
from paddock.modes.policy import Policy, Share, Window, of_mode


@dataclass
class Clock:
    """Time in seconds; `sleeps` are the pauses."""

    now: float = 100.0
    sleeps: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.sleeps.append(seconds)
        self.now += seconds


def limiter(policy: Policy) -> tuple[Limiter, Clock]:
    clock = Clock()
    return Limiter(policy, clock=clock, sleep=clock.sleep), clock


def serve(limiter: Limiter, clock: Clock, seconds: float, application: str = "", user: str = "") -> float:
    with limiter.request(application=application, user=user) as admitted:
        clock.now += seconds
    return admitted.paused


def test_a_pause_keeps_the_duty_cycle() -> None:
    limits, clock = limiter(of_mode("conservative"))
    assert serve(limits, clock, 0.3) == 0
    assert serve(limits, clock, 0.3) == pytest.approx(0.2)  # 0.3 (1 / 0.6 - 1)
    assert limits.statistics().throttle_rate == 0.5


def test_the_interval_counts_from_start_to_start() -> None:
    limits, clock = limiter(of_mode("conservative"))
    serve(limits, clock, 0.01)
    assert serve(limits, clock, 0.01) == pytest.approx(0.09)
    clock.now += 5
    assert serve(limits, clock, 0.01) == 0


def test_without_throttling_nothing_waits() -> None:
    limits, clock = limiter(of_mode("aggressive"))
    assert [serve(limits, clock, 1.0) for _ in range(5)] == [0] * 5
    assert limits.statistics().total == 5


@given(st.floats(0.05, 1), st.lists(st.floats(0.001, 20), min_size=1, max_size=20))
def test_the_busy_part_never_exceeds_the_limit(part: float, runs: list[float]) -> None:
    config = ResourceConfig(max_compute_usage_percent=part, min_request_interval_ms=0)
    limits, clock = limiter(Policy(resources=config))
    start = clock.now
    for seconds in [*runs, 0.0]:
        serve(limits, clock, seconds)
    assert sum(runs) <= part * (clock.now - start) * (1 + 1e-6)


def test_one_applications_pause_does_not_delay_another() -> None:
    policy = Policy(resources=PRESETS["aggressive"], applications={"batch": Share(max_compute_usage_percent=0.25)})
    limits, clock = limiter(policy)
    serve(limits, clock, 1.0, "batch")
    assert serve(limits, clock, 0.5, "chat") == 0
    assert serve(limits, clock, 1.0, "batch") == pytest.approx(2.5)
    assert (limits.statistics("batch").throttled, limits.statistics().total) == (1, 3)


def test_each_user_has_an_own_limit() -> None:
    policy = Policy(
        resources=PRESETS["aggressive"],
        users={"operator": Share()},
        each_user=Share(min_request_interval_ms=1000, max_batch_size=1),
    )
    limits, clock = limiter(policy)
    assert [serve(limits, clock, 0.0, user=name) for name in ("ada", "ben", "ada")] == [0, 0, 1]
    assert [serve(limits, clock, 0.0, user="operator") for _ in range(2)] == [0, 0]
    with pytest.raises(BatchTooLarge, match="at most 1"), limits.request(2, user="ada"):
        pass


def test_requests_of_many_threads_run_one_at_a_time() -> None:
    limits, running, most = Limiter(of_mode("aggressive")), [], []

    def work() -> None:
        with limits.request():
            running.append(1)
            most.append(len(running))
            running.pop()

    threads = [threading.Thread(target=work) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (max(most), limits.statistics().total, limits.statistics().throttled) == (1, 16, 0)


def test_a_request_that_fails_frees_the_turn() -> None:
    limits, clock = limiter(of_mode("aggressive"))
    with pytest.raises(ZeroDivisionError), limits.request():
        raise ZeroDivisionError
    assert serve(limits, clock, 0.1) == 0


def test_the_night_has_its_own_mode() -> None:
    night = Window(start="22:00", end="06:00", mode="aggressive", days=("fri",))
    policy = Policy(resources=PRESETS["conservative"], schedule=(night,))
    friday = dt.datetime(2026, 11, 27, 22, 0)
    hours = {0: 16, 7: 16, 8: 2, -1: 2, 24: 2}
    assert {h: policy.at(friday + dt.timedelta(hours=h)).max_batch_size for h in hours} == hours


def test_a_request_that_runs_counts_as_busy_up_to_now() -> None:
    policy = Policy(resources=PRESETS["aggressive"], applications={"batch": Share()})
    limits, clock = limiter(policy)
    serve(limits, clock, 0.5, "batch")
    with limits.request(application="batch"):
        clock.now += 0.7
        assert limits.statistics().busy_seconds == pytest.approx(1.2)
        assert limits.statistics("batch").busy_seconds == pytest.approx(1.2)
        assert limits.statistics("chat").busy_seconds == 0
    assert limits.statistics().busy_seconds == pytest.approx(1.2)
