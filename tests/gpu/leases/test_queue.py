"""The queue of those who wait for GPUs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from paddock.gpu.errors import GpuInputError
from paddock.gpu.leases.allocation import allocate, list_leases
from paddock.gpu.leases.manager import Leases, NoneFree
from paddock.gpu.leases.request import Request
from tests.conftest import ROOT
from tests.support.boxes import h100s
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")

WAIT = textwrap.dedent("""
    import json, sys
    from pathlib import Path
    from paddock.gpu.leases.allocation import allocate
    from paddock.gpu.leases.manager import Leases
    from paddock.gpu.leases.request import Request
    from tests.support.boxes import h100s

    folder, name, gpus, priority, request = sys.argv[1:]
    leases = Leases(Path(folder), environ={})
    lease = allocate(
        Request.from_dict(json.loads(request)), wait=300, ttl=600, priority=int(priority), command=name, leases=leases,
        read_inventory=lambda: h100s(int(gpus)),
    )["lease"]
    print(lease["id"], flush=True)
""")

Waiter = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def leases(tmp_path: Path) -> Leases:
    return Leases(tmp_path / "leases", environ={})


@pytest.fixture
def waiter(leases: Leases) -> Iterator[Waiter]:
    """Start a process that waits for GPUs, and return once it is in the queue."""
    processes: list[subprocess.Popen[str]] = []

    def start(name: str, *, gpus: int = 1, priority: int = 0, **request: object) -> subprocess.Popen[str]:
        arguments = (leases.path, name, gpus, priority, json.dumps(request))
        process = subprocess.Popen(
            [sys.executable, "-c", WAIT, *map(str, arguments)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        processes.append(process)
        until(lambda: name in names(leases) or process.poll() is not None)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def names(leases: Leases) -> list[str]:
    return [ticket.command for ticket in leases.queue()]


def holders(leases: Leases) -> list[str]:
    return [lease.command for lease in leases.held()]


def take(leases: Leases, gpus: int = 1, **request: object) -> str:
    return leases.take(Request(**request), lambda: h100s(gpus), ttl=600, command="first").lease.id  # type: ignore[arg-type]


def test_those_who_wait_are_served_in_order_of_arrival(leases: Leases, waiter: Waiter) -> None:
    held = take(leases)
    order = ["a", "b", "c", "d"]
    processes = [waiter(name) for name in order]
    assert names(leases) == order
    for place, process in enumerate(processes):
        leases.release(held)
        assert process.stdout is not None
        held = process.stdout.readline().strip()
        assert holders(leases) == [order[place]]
        assert names(leases) == order[place + 1 :]


def test_a_higher_priority_is_served_first(leases: Leases, waiter: Waiter) -> None:
    held = take(leases)
    waiter("usual")
    urgent = waiter("urgent", priority=10)
    assert names(leases) == ["urgent", "usual"]
    leases.release(held)
    assert urgent.wait(120) == 0
    assert holders(leases) == ["urgent"]


def test_the_queue_goes_on_when_one_who_waits_is_killed(leases: Leases, waiter: Waiter) -> None:
    held = take(leases)
    first, second = waiter("first"), waiter("second")
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert names(leases) == ["second"]
    leases.release(held)
    assert second.wait(120) == 0


def test_a_large_request_is_not_overtaken_by_small_ones(leases: Leases, waiter: Waiter) -> None:
    held = [take(leases, 4), take(leases, 4)]
    large = waiter("large", gpus=4, count=4)
    with pytest.raises(NoneFree, match=r"kept for .*large.*who waits for it"):
        take(leases, 4)
    leases.release(*held)
    assert large.wait(120) == 0
    assert holders(leases) == ["large"]


def test_gpus_that_nobody_waits_for_are_leased_at_once(leases: Leases, waiter: Waiter) -> None:
    first = take(leases, 2, uuids=(h100s(2).gpus[0].uuid,))
    waiter("same", gpus=2, uuids=[h100s(2).gpus[0].uuid])
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


def test_a_ticket_of_another_user_cannot_outrank_all(leases: Leases, waiter: Waiter) -> None:
    take(leases)
    waiter("a")
    (path,) = leases.path.glob("*.ticket")
    forged = {**json.loads(path.read_text()), "id": "00000000", "priority": 10**9}
    with ticket(leases, json.dumps(forged)):
        assert names(leases) == ["a"]


def test_a_priority_out_of_bounds_is_bad_input(leases: Leases) -> None:
    with pytest.raises(GpuInputError, match="a priority of 101\n    expected: a whole number, -100 to 100"):
        allocate(Request(), ttl=60, priority=101, leases=leases, read_inventory=lambda: h100s(1))


def test_the_list_of_leases_names_those_who_wait(leases: Leases, waiter: Waiter) -> None:
    from paddock.gpu.actions import text

    take(leases)
    process = waiter("train", priority=3)
    document = list_leases(leases)
    (entry,) = document["waiting"]
    assert (entry["gpus"], entry["priority"], entry["command"], entry["pid"]) == (1, 3, "train", process.pid)
    assert any(line.split()[:3] == [entry["id"], "1", "3"] for line in text.leases(document))
