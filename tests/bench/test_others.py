"""Processor time of other programs, on made-up counters."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest

from tests.support.packages import need

need("psutil")

import psutil

from paddock.bench.measurement import others

Times = namedtuple("Times", "user system idle iowait guest")
Own = namedtuple("Own", "user system")


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A machine of 4 processors: what its counters say, and the seconds of the clock."""
    now: dict[str, Any] = {"all": Times(100, 10, 500, 50, 20), "own": Own(1, 0), "clock": 5.0}
    monkeypatch.setattr(psutil, "cpu_times", lambda: now["all"])
    monkeypatch.setattr(psutil.Process, "cpu_times", lambda _: now["own"])
    monkeypatch.setattr(psutil, "cpu_count", lambda: 4)
    monkeypatch.setattr(others.time, "monotonic", lambda: now["clock"])
    return now


def test_what_others_took_is_without_idle_guests_and_ourselves(machine: dict[str, Any]) -> None:
    watch = others.Others()
    with watch.watched():
        # Ten seconds of four processors: 16 by all programs, guests among them once, 12 of them ours.
        machine.update({"all": Times(114, 12, 510, 64, 22), "own": Own(12, 1), "clock": 15.0})
    machine.update({"all": Times(154, 12, 510, 64, 22), "clock": 25.0})  # not watched: the other benchmark's turn
    assert watch.part() == pytest.approx((16 - 12) / 40)


def test_a_machine_that_does_not_count_is_unknown(machine: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def absent() -> None:
        raise FileNotFoundError("/proc/stat")

    monkeypatch.setattr(psutil, "cpu_times", absent)
    watch = others.Others()
    with watch.watched():
        machine["clock"] = 15.0
    assert watch.part() is None
