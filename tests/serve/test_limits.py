"""Limits of users and queues, on a clock of the test's."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from paddock.serve.admission.limits import Limits, RequestError, Users


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_user_may_ask_again_when_a_request_is_a_minute_old() -> None:
    clock = Clock()
    users = Users(Limits(user_per_minute=2), clock)
    for clock.now in (0.0, 20.0):
        with users.request("ann"):
            pass
    clock.now = 30.5
    with pytest.raises(RequestError) as error, users.request("ann"):
        pass
    assert (error.value.status, error.value.code, error.value.retry_s) == (429, "rate_limit_exceeded", 30)
    clock.now = 60.5
    with users.request("ann"):
        pass


def test_a_request_that_ends_makes_room_for_the_users_next() -> None:
    users = Users(Limits(user_in_flight=2))
    with ExitStack() as held:
        held.enter_context(users.request("ann"))
        with users.request("ann"), users.request("bob"), pytest.raises(RequestError, match="2 requests of this user"):
            held.enter_context(users.request("ann"))
        held.enter_context(users.request("ann"))


def test_users_of_long_ago_are_forgotten() -> None:
    clock = Clock()
    users = Users(Limits(user_per_minute=1), clock)
    for number in range(1000):
        with users.request(f"user-{number}"):
            pass
    clock.now = 61.0
    with users.request("ann"):
        pass
    assert list(users._begun) == ["ann"]
