"""Leases among processes that race for the same GPUs, and are killed at any moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from paddock.gpu.leases.manager import Leases
from paddock.gpu.leases.request import Request
from tests.conftest import ROOT
from tests.support.boxes import h100s
from tests.support.explore import EXPLORING, count

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")

RACERS, GPUS, TAKES = 4, 2, count(80, 600)

RACE = textwrap.dedent("""
    import os, sys, time
    from pathlib import Path
    from paddock.gpu.leases.manager import Leases, NoneFree
    from paddock.gpu.leases.request import Request
    from tests.support.boxes import h100s

    folder, claims, number, takes = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    leases, machine = Leases(folder, environ={}), h100s(int(sys.argv[5]))
    me = (leases.host.owner(os.getpid()),)
    print("ready", flush=True)
    sys.stdin.readline()
    taken = refused = 0
    while taken < takes:
        # Some take two, some a half, some never give back and leave that to their death.
        request = Request(count=1 + (number % 3 == 1), share=0.5 if number % 3 == 2 else None)
        try:
            lease = leases.take(request, lambda: machine, owners=me).lease
        except NoneFree:
            refused += 1
            time.sleep(0.003)
            continue
        marks = []
        for device in lease.devices:
            # Two halves to a GPU: a claim is a file that only one can make, and a whole GPU is both.
            for half in ("a", "b"):
                mark = claims / f"{device.uuid}.{half}"
                try:
                    os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    if request.share is None or half == "b":
                        print("TWICE", device.uuid, flush=True)
                        sys.exit(3)
                    continue
                marks.append(mark)
                if request.share:
                    break
        taken += 1
        time.sleep(0.001)  # so that others ask while it has them, also where one core runs all
        for mark in marks:
            os.unlink(mark)
        leases.release(lease.id)
    print(taken, refused, flush=True)
""")


def _python(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.at_length
def test_processes_that_race_for_fewer_gpus_never_get_the_same_one(tmp_path: Path) -> None:
    folder, claims = tmp_path / "leases", tmp_path / "claims"
    claims.mkdir()
    racers = [_python(RACE, folder, claims, number, TAKES // RACERS, GPUS) for number in range(RACERS)]
    for racer in racers:
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        racer.stdin.write("go\n")
        racer.stdin.flush()
    outputs = [racer.communicate() for racer in racers]
    assert [racer.returncode for racer in racers] == [0] * RACERS, outputs
    assert sum(int(out.split()[0]) for out, _ in outputs) == TAKES
    assert sum(int(out.split()[1]) for out, _ in outputs) > 0, "they did race"
    leases = Leases(folder, environ={})
    assert leases.all() == ()
    assert len(leases.take(Request(count=GPUS), lambda: h100s(GPUS), ttl=60).lease.devices) == GPUS


KILLED = textwrap.dedent("""
    import fcntl, os, signal, sys
    from pathlib import Path
    from paddock.gpu.leases.manager import Leases
    from paddock.gpu.leases.request import Request
    from tests.support.boxes import h100s

    folder, owner = Path(sys.argv[1]), int(sys.argv[2])
    leases, machine = Leases(folder, environ={}), h100s(4)
    whose = leases.host.owner(owner)
    calls, last = 0, -1

    def counted(real):
        def call(*arguments, **named):
            global calls
            calls += 1
            if calls == last:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **named)
        return call

    for name in "open close read write fsync fchmod rename unlink listdir fstat stat".split():
        setattr(os, name, counted(getattr(os, name)))
    fcntl.flock = counted(fcntl.flock)

    for line in sys.stdin:
        wanted = int(line)
        child = os.fork()
        if child == 0:
            calls, last = 0, wanted
            lease = leases.take(Request(count=2), lambda: machine, owners=(whose,)).lease
            leases.watch(lease.id, owner)
            leases.renew(lease.id, 60)
            if wanted:
                leases.release(lease.id)
            os._exit(calls)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
""")
"""Leads a life of a lease for each number it reads, killed at that call of the file system; 0 is not killed, and does
not give back. Prints how many calls a whole life took."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """With one lease that lives: of GPU 0, by this process."""
    leases = Leases(tmp_path / "leases", environ={})
    leases.take(Request(uuids=("GPU-00000000",)), lambda: h100s(4), owners=(leases.host.owner(os.getpid()),))
    return tmp_path / "leases"


@pytest.mark.at_length
def test_killed_at_any_step_no_gpu_is_leased_twice(folder: Path) -> None:
    """Its owner, this process, lives on. Three steps in an ordinary run: before the lease is there, and after."""
    leases = Leases(folder, environ={})
    ((own, _),) = leases.all()
    victims = _python(KILLED, folder, os.getpid())
    last = _live(victims, 1000)
    assert last > 60, "every call was met"
    outcomes = set()
    for call in range(1, last + 1) if EXPLORING else (2, last // 2, last):
        assert _live(victims, call) == -signal.SIGKILL
        there = [lease for lease, state in leases.all() if state == "held"]
        foreign = [lease for lease in there if lease != own]
        assert len(there) == len(foreign) + 1
        new = leases.take(Request(count=3 - 2 * len(foreign)), lambda: h100s(4), ttl=60).lease
        uuids = [device.uuid for lease in (*there, new) for device in lease.devices]
        assert len(uuids) == len(set(uuids)) == 4
        assert {file.name for file in folder.iterdir()} == {".lock", *(f"{lease.id}.json" for lease in (*there, new))}
        leases.release(new.id, *(lease.id for lease in foreign))
        outcomes.add(len(foreign))
    victims.communicate()
    assert outcomes == {0, 1}


def test_whoever_dies_with_a_lease_loses_it_and_nothing_leaks(folder: Path) -> None:
    leases = Leases(folder, environ={})
    ended = _python("input()")
    victims = _python(KILLED, folder, ended.pid)
    assert _live(victims, 0) > 0
    victims.communicate()
    assert [state for _, state in leases.all()] == ["held", "held"]
    ended.kill()
    ended.communicate()
    assert sorted(state for _, state in leases.all()) == ["held", "owner-ended"]
    assert len(leases.take(Request(count=3), lambda: h100s(4), ttl=60).lease.devices) == 3
    assert len(leases.all()) == 2


def _live(victims: subprocess.Popen[str], call: int) -> int:
    victims.stdin.write(f"{call}\n")
    victims.stdin.flush()
    return int(victims.stdout.readline())
