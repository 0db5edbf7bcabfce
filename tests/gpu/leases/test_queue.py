"""The queue of those who wait for GPUs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.errors import GpuInputError
from paddock.gpu.leases.allocation import allocate, list_leases
from paddock.gpu.leases.manager import Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.model import Inventory
from tests.conftest import ROOT
from tests.support.boxes import h100s
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")


WAIT = textwrap.dedent("""
    import sys
    from pathlib import Path
    from paddock.gpu.leases.allocation import Leases, Request, allocate
    from tests.support.boxes import h100s

    leases = Leases(Path(sys.argv[1]), environ={})
    allocate(Request(), wait=300, ttl=600, command="first", leases=leases, read_inventory=lambda: h100s(1))
""")


class Waiter(threading.Thread):
    """One who waits for GPUs, in a thread."""

    def __init__(self, leases: Leases, name: str, gpus: int, priority: int, request: dict[str, Any]) -> None:
        super().__init__(daemon=True)
        self.lease: str | None = None
        self._wait: dict[str, Any] = {"wait": 300, "ttl": 600, "priority": priority, "command": name, "leases": leases}
        self._request, self._gpus = Request(**request), gpus

    def run(self) -> None:
        self.lease = allocate(self._request, read_inventory=lambda: h100s(self._gpus), **self._wait)["lease"]["id"]

    def served(self) -> str:
        """Wait until it has a lease, and return its id."""
        return str(until(lambda: self.lease))


Wait = Callable[..., Waiter]


@pytest.fixture
def waiter(leases: Leases) -> Iterator[Wait]:
    """Let somebody wait for GPUs, and return once they are in the queue."""
    waiters: list[Waiter] = []

    def start(name: str, *, gpus: int = 1, priority: int = 0, **request: Any) -> Waiter:
        waiters.append(Waiter(leases, name, gpus, priority, request))
        waiters[-1].start()
        until(lambda: name in names(leases))
        return waiters[-1]

    yield start
    for waiting in waiters:
        while waiting.is_alive():
            leases.release(*(lease.id for lease in leases.held()))
            waiting.join(0.05)


def names(leases: Leases) -> list[str]:
    return [ticket.command for ticket in leases.queue()]


def holders(leases: Leases) -> list[str]:
    return [lease.command for lease in leases.held()]


def take(leases: Leases, gpus: int = 1, **request: object) -> str:
    return leases.take(Request(**request), lambda: h100s(gpus), ttl=600, command="first").lease.id  # type: ignore[arg-type]


def test_those_who_wait_are_served_in_order_of_arrival(leases: Leases, waiter: Wait) -> None:
    held = take(leases)
    order = ["a", "b", "c", "d"]
    waiters = [waiter(name) for name in order]
    assert names(leases) == order
    for place, waiting in enumerate(waiters):
        leases.release(held)
        held = waiting.served()
        assert holders(leases) == [order[place]]
        assert names(leases) == order[place + 1 :]


def test_a_higher_priority_is_served_first(leases: Leases, waiter: Wait) -> None:
    held = take(leases)
    waiter("usual")
    urgent = waiter("urgent", priority=10)
    assert names(leases) == ["urgent", "usual"]
    leases.release(held)
    urgent.served()
    assert holders(leases) == ["urgent"]


def test_the_queue_goes_on_when_one_who_waits_is_killed(leases: Leases, waiter: Wait) -> None:
    held = take(leases)
    first = subprocess.Popen(
        [sys.executable, "-c", WAIT, str(leases.path)], env={**os.environ, "PYTHONPATH": str(ROOT)}
    )
    until(lambda: names(leases) == ["first"])
    second = waiter("second")
    first.kill()
    first.wait()
    assert names(leases) == ["second"]
    leases.release(held)
    second.served()


def test_a_large_request_is_not_overtaken_by_small_ones(leases: Leases, waiter: Wait) -> None:
    held = [take(leases, 4), take(leases, 4)]
    large = waiter("large", gpus=4, count=4)
    with pytest.raises(NoneFree, match=r"kept for .*large.*who waits for it"):
        take(leases, 4)
    leases.release(*held)
    large.served()
    assert holders(leases) == ["large"]


def test_gpus_that_nobody_waits_for_are_leased_at_once(leases: Leases, waiter: Wait) -> None:
    first = take(leases, 2, uuids=(h100s(2).gpus[0].uuid,))
    waiter("same", gpus=2, uuids=(h100s(2).gpus[0].uuid,))
    take(leases, 2)
    assert names(leases) == ["same"]
    leases.release(first)


def test_who_gives_up_leaves_the_queue(leases: Leases) -> None:
    take(leases)
    with pytest.raises(NoneFree):
        allocate(Request(), ttl=60, wait=0.2, leases=leases, read_inventory=lambda: h100s(1))
    assert leases.queue() == ()
    assert [path.name for path in leases.path.glob("*.ticket")] == []


@contextmanager
def ticket(leases: Leases, content: str) -> Iterator[Path]:
    path = leases.path / "00000000.ticket"
    path.write_text(content)
    yield path
    path.unlink(missing_ok=True)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": 1, "id": "00000000"}', "null"])
def test_a_file_that_is_no_ticket_keeps_nobody_waiting(leases: Leases, content: str) -> None:
    leases.release(take(leases))
    with ticket(leases, content):
        assert leases.queue() == ()
        take(leases)


def test_a_ticket_of_another_user_cannot_outrank_all(leases: Leases, waiter: Wait) -> None:
    take(leases)
    waiter("a")
    (path,) = leases.path.glob("*.ticket")
    forged = {**json.loads(path.read_text()), "id": "00000000", "priority": 10**9}
    with ticket(leases, json.dumps(forged)):
        assert names(leases) == ["a"]


def test_a_priority_out_of_bounds_is_bad_input(leases: Leases) -> None:
    with pytest.raises(GpuInputError, match="a priority of 101\n    expected: a whole number, -100 to 100"):
        allocate(Request(), ttl=60, priority=101, leases=leases, read_inventory=lambda: h100s(1))


def test_the_list_of_leases_names_those_who_wait(leases: Leases, waiter: Wait) -> None:
    from paddock.gpu.views.leases import LeasesView

    take(leases)
    waiter("train", priority=3)
    document = list_leases(leases)
    (entry,) = document["waiting"]
    assert (entry["gpus"], entry["priority"], entry["command"], entry["pid"]) == (1, 3, "train", os.getpid())
    assert any(line.split()[:3] == [entry["id"], "1", "3"] for line in LeasesView(found=document).text())


def test_starting_the_driver_does_not_hold_the_lock(leases: Leases, monkeypatch: pytest.MonkeyPatch) -> None:
    """One who waits for a slow driver keeps nobody from the leases."""
    entered, started = threading.Event(), threading.Event()

    def slow_first(**_: object) -> Inventory:
        if not entered.is_set():
            entered.set()
            started.wait(60)
        return h100s(2)

    monkeypatch.setattr("paddock.gpu.inventory.inventory", slow_first)
    slow = threading.Thread(target=lambda: allocate(Request(), ttl=60, leases=leases))
    slow.start()
    try:
        entered.wait(60)
        assert allocate(Request(), ttl=60, wait=30, leases=leases)["lease"]
        assert slow.is_alive()
    finally:
        started.set()
        slow.join()
    assert len(leases.held()) == 2
