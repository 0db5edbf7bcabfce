"""Leases: who has a GPU, for how long, and what of it is left when things go wrong."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.host.processes import Host, Owner, this_host
from paddock.gpu.leases.allocation import allocate, deallocate, exports, list_leases
from paddock.gpu.leases.lease import Lease
from paddock.gpu.leases.manager import Leases, NoneFree
from paddock.gpu.leases.request import Request
from paddock.gpu.leases.store import LeasesLocked, default_folder
from tests.conftest import ROOT
from tests.support.boxes import BOOT, NAMESPACE, h100s
from tests.support.door import real
from tests.support.explore import count, examples

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="leases need Linux's /proc")


@dataclass(frozen=True, slots=True)
class _MadeUp(Host):
    """A host whose processes are those in a set."""

    living: frozenset[Owner] = frozenset()

    def alive(self, owner: Owner) -> bool | None:
        return None if owner.namespace != self.namespace else owner in self.living


class Machine:
    """A host with a clock and processes of ours, and what is leased on it."""

    def __init__(self, folder: Path, gpus: int = 4) -> None:
        self.folder = folder
        self.now = 100.0
        self.boot = BOOT
        self.living: set[Owner] = set()
        self.look = lambda: h100s(gpus)

    def process(self, pid: int) -> Owner:
        owner = Owner(pid, pid * 7, NAMESPACE)
        self.living.add(owner)
        return owner

    @property
    def leases(self) -> Leases:
        host = _MadeUp(self.boot, NAMESPACE, lambda: self.now, living=frozenset(self.living))
        return Leases(self.folder, host=host, environ={})

    def take(self, request: Request | None = None, *owners: Owner, ttl: float | None = None) -> Lease:
        return self.leases.take(request or Request(), self.look, owners=owners, ttl=ttl).lease


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path / "leases")


def held(leases: Leases) -> set[str]:
    return {lease.id for lease, state in leases.all() if state == "held"}


# How long a lease holds.


def test_no_time_to_live_ends_the_lease_of_a_living_process(machine: Machine) -> None:
    lease = machine.take(Request(count=4), machine.process(11), ttl=5)
    machine.now += 1e6
    assert machine.leases.all() == ((lease, "held"),)


def test_a_lease_without_an_owner_lasts_for_its_time_to_live(machine: Machine) -> None:
    lease = machine.take(ttl=60)
    machine.now += 59
    machine.leases.renew(lease.id)
    machine.now += 59
    assert held(machine.leases) == {lease.id}
    machine.leases.renew(lease.id, ttl=10)
    machine.now += 11
    assert [state for _, state in machine.leases.all()] == ["expired"]
    with pytest.raises(GpuInputError, match="has ended"):
        machine.leases.renew(lease.id)
    after = machine.take(ttl=60)
    assert machine.leases.all() == ((after, "held"),)


def test_an_owner_in_another_pid_namespace_lives_until_its_deadline(machine: Machine) -> None:
    far = Owner(11, 5, "pid:[4026532999]")
    lasting, timed = machine.take(None, far), machine.take(None, far, ttl=60)
    machine.now += 61
    assert dict(machine.leases.all()) == {lasting: "held", timed: "expired"}


def test_a_reboot_ends_every_lease(machine: Machine) -> None:
    owner = machine.process(11)
    machine.take(Request(count=2), owner)
    machine.take(ttl=1e9)
    machine.boot, machine.now = "another", 1.0
    assert [state for _, state in machine.leases.all()] == ["before-reboot"] * 2
    assert len(machine.take(Request(count=4), owner).devices) == 4


def test_setting_the_clock_neither_ends_nor_lengthens_a_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted from boot: the time of day is not asked."""
    leases = Leases(tmp_path, environ={})
    lease = leases.take(Request(), lambda: h100s(1), ttl=600).lease
    for wrong in (0.0, 4e9):
        monkeypatch.setattr(time, "time", lambda wrong=wrong: wrong)
        assert leases.state(lease) == "held"
    lease = leases.renew(lease.id, 0.3)
    while leases.state(lease) == "held":
        time.sleep(0.02)
    assert leases.host.clock() - lease.renewed > 0.3


def test_the_last_of_several_owners_to_end_ends_the_lease(machine: Machine) -> None:
    first, second = machine.process(11), machine.process(12)
    lease = machine.take(None, first, second)
    machine.living.remove(first)
    assert machine.leases.all() == ((lease, "held"),)
    machine.living.remove(second)
    assert machine.leases.all() == ((lease, "owner-ended"),)


def test_a_process_that_is_watched_becomes_an_owner(tmp_path: Path) -> None:
    leases = Leases(tmp_path, environ={})
    lease = leases.take(Request(), lambda: h100s(1), owners=(leases.host.owner(os.getpid()),)).lease
    watched = leases.watch(lease.id, os.getppid())
    assert watched == replace(lease, owners=(*lease.owners, leases.host.owner(os.getppid())))
    assert leases.all() == ((watched, "held"),)


class Book(RuleBasedStateMachine):
    """Taking, giving back, dying, time and reboots in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.lent: dict[str, Lease] = {}

    @initialize()
    def start(self) -> None:
        import tempfile

        self.folder = tempfile.TemporaryDirectory()
        self.machine = Machine(Path(self.folder.name), gpus=3)
        self.pids = iter(range(2, 10_000))

    def teardown(self) -> None:
        self.folder.cleanup()

    @rule(count=st.integers(1, 3), share=st.sampled_from([None, 0.3, 0.5]), ttl=st.sampled_from([None, 10.0, 50.0]))
    def take(self, count: int, share: float | None, ttl: float | None) -> None:
        owners = () if ttl == 50.0 else (self.machine.process(next(self.pids)),)
        request = Request(count=count, share=share)
        used: dict[str, float] = {f"GPU-{n:08d}-aaaa": 0 for n in range(3)}
        for lease in self.living():
            for device in lease.devices:
                used[device.uuid] += lease.share or 1
        could = sum(total + (share or 1) <= 1 + 1e-9 for total in used.values()) >= count
        try:
            lease = self.machine.take(request, *owners, ttl=ttl)
        except NoneFree:
            assert not could
        else:
            assert could
            self.lent[lease.id] = lease

    @precondition(lambda self: self.lent)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        id = list(self.lent)[data.draw(st.integers(0, len(self.lent) - 1))]  # ids are random, their order is not
        try:
            self.machine.leases.release(id)
        except GpuInputError:
            assert self.lent[id] not in self.living(), "only what ended is cleared away by others"
        del self.lent[id]

    @precondition(lambda self: self.machine.living)
    @rule(data=st.data())
    def die(self, data: st.DataObject) -> None:
        pid = data.draw(st.sampled_from(sorted(process.pid for process in self.machine.living)))
        self.machine.living = {process for process in self.machine.living if process.pid != pid}

    @rule(seconds=st.sampled_from([1, 20, 60]))
    def pass_time(self, seconds: int) -> None:
        self.machine.now += seconds

    @rule()
    def reboot(self) -> None:
        self.machine.boot += "'"
        self.machine.now, self.machine.living = 3.0, set()

    def living(self) -> list[Lease]:
        return [
            lease
            for lease in self.lent.values()
            if lease.boot_id == self.machine.boot
            and (
                self.machine.living.intersection(lease.owners)
                if lease.owners
                else self.machine.now - lease.renewed <= (lease.ttl or 0)
            )
        ]

    @invariant()
    def a_gpu_is_never_lent_beyond_itself(self) -> None:
        if not hasattr(self, "machine"):
            return
        there = [lease for lease, state in self.machine.leases.all() if state == "held"]
        assert {lease.id for lease in there} == {lease.id for lease in self.living()}
        for uuid in {device.uuid for lease in there for device in lease.devices}:
            parts = [lease.share or 1 for lease in there if any(device.uuid == uuid for device in lease.devices)]
            assert math.fsum(parts) <= 1 + 1e-9


TestBook = pytest.mark.at_length(Book.TestCase)
TestBook.settings = settings(max_examples=count(20, 400), stateful_step_count=25)


# Whose it is.


def test_real_processes_are_distinguished_from_ended_ones() -> None:
    host = this_host()
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    owner = host.owner(child.pid)
    assert host.alive(owner)
    assert host.alive(replace(owner, start=owner.start + 1)) is False
    assert replace(host, namespace="pid:[2]").alive(replace(owner, namespace="pid:[1]")) is None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert host.alive(owner) is False, "a zombie has ended"
    child.communicate()
    assert host.alive(owner) is False
    with pytest.raises(GpuInputError, match="no process has the pid"):
        host.owner(child.pid)


def _namespaced(proc: Path, pid: int, start: int, *inside: int) -> None:
    (proc / str(pid)).mkdir(parents=True)
    after = ["S", "1", "1", "1", *"0" * 13, "1", "0", str(start), *"0" * 40]
    (proc / str(pid) / "stat").write_text(f"{pid} (python) {' '.join(after)}")
    (proc / str(pid) / "status").write_text(f"Name: python\nNSpid: {pid} {' '.join(map(str, inside))}\n")


def test_the_host_looks_into_other_pid_namespaces(tmp_path: Path) -> None:
    for pid, start, inside in ((1, 1, ()), (700, 5, (1,)), (812, 9, (40, 7)), (813, 8, (12,))):
        _namespaced(tmp_path, pid, start, *inside)
    host = Host(BOOT, NAMESPACE, lambda: 1.0, tmp_path)
    container = "pid:[4026532999]"
    assert [host.alive(Owner(pid, 9, container)) for pid in (40, 7, 12, 13)] == [True, True, False, False]
    assert host.alive(Owner(12, None, container)) is True
    assert replace(host, namespace="pid:[7]").alive(Owner(7, 9, container)) is None, "a container cannot look"
    (tmp_path / "1/stat").unlink()
    assert host.alive(Owner(13, 9, container)) is None, "/proc hides other users' processes"


def test_the_lease_of_a_container_that_was_killed_is_taken_over(tmp_path: Path) -> None:
    """The container is a pid namespace of its own, whose init ends with all that is in it."""
    host = this_host()
    words = [real("unshare"), "--pid", "--fork", "--kill-child", "sleep", "60"]
    container = subprocess.Popen(words, stderr=subprocess.PIPE)
    try:
        for _ in range(500):
            inside = Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text().split()
            if inside or container.poll() is not None:
                break
            time.sleep(0.01)
        if not inside or not host.sees_driver_pids:
            pytest.skip("this user may make no pid namespace, or tests run in one")
        namespace = os.readlink(f"/proc/{inside[0]}/ns/pid")
        start = host.owner(int(inside[0])).start
        leases = Leases(tmp_path, environ={})
        lease = leases.take(Request(), lambda: h100s(1), owners=(Owner(1, start, namespace),)).lease
        assert leases.state(lease) == "held"
        assert lease.holder.endswith(f"(pid 1 in {namespace})")
    finally:
        container.kill()
        container.communicate()
    deadline = time.monotonic() + 10
    while leases.state(lease) == "held" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert leases.state(lease) == "owner-ended"


def test_a_lease_taken_in_a_container_needs_a_time_to_live(machine: Machine) -> None:
    inside = replace(machine.leases.host, namespace="pid:[4026532999]")
    leases, owner = Leases(machine.folder, host=inside, environ={}), Owner(11, 5, "pid:[4026532999]")
    with pytest.raises(GpuInputError, match=r"pid 11 in pid:\[4026532999\] is in a container(.|\n)*fix: --ttl"):
        leases.take(Request(), machine.look, owners=(owner,))
    assert leases.take(Request(), machine.look, owners=(owner,), ttl=60).lease.ttl == 60


def test_a_process_whose_main_thread_has_ended_lives() -> None:
    code = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=lambda: (print(1, flush=True), time.sleep(60))).start()\n"
        "ctypes.CDLL(None).syscall(60 if __import__('os').uname().machine == 'x86_64' else 93, 0)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        host, stat_file = this_host(), Path(f"/proc/{child.pid}/stat")
        while stat_file.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)
        assert host.alive(host.owner(child.pid))
    finally:
        child.kill()
        child.communicate()


def test_the_caller_is_the_shell_and_no_passing_copy_of_it(tmp_path: Path) -> None:
    say = f"{sys.executable} -c 'from paddock.gpu.host.processes import this_host; print(this_host().caller().pid)'"
    script = tmp_path / "job.sh"
    script.write_text(f"echo $$\n{say}\necho $({say})\n{say} | cat\n({say}; true) | cat\ntimeout 60 {say}\n")
    result = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=True, cwd=ROOT)
    assert len(set(result.stdout.split())) == 1, result.stdout


def test_processes_of_a_lease_are_known_by_their_descent() -> None:
    host = replace(this_host(), namespace=NAMESPACE)
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    descent = host.descent([child.pid, os.getpid(), 1], [os.getpid()])
    child.communicate(b"\n")
    assert descent == {child.pid: frozenset({os.getpid()}), os.getpid(): frozenset({os.getpid()}), 1: frozenset()}
    assert replace(host, namespace="pid:[7]").descent([1], [1]) == {}


def test_an_unreadable_proc_is_reported(tmp_path: Path) -> None:
    with pytest.raises(GpuError, match="does not show which processes run"):
        this_host(tmp_path)


# The folder.


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"schema": 2}', "[" * 5000, '{"schema": 1, "id": "other"}', "\xff"]
)
def test_an_unreadable_lease_file_blocks_leasing_and_is_named(machine: Machine, text: str) -> None:
    machine.take(None, machine.process(11))
    (machine.folder / "aaaa0001.json").write_text(text, encoding="latin-1")
    with pytest.raises(GpuError, match=r"aaaa0001\.json is not a lease that can be read.*\n.*\n    fix: remove"):
        machine.take(None, machine.process(12))


@examples(30, 500)
@given(st.data())
def test_a_lease_with_any_value_broken_is_refused_or_right(data: st.DataObject) -> None:
    from paddock.gpu.leases import lease as leased
    from tests.support.boxes import lease

    whole = leased.data(lease("GPU-1", share=0.5))
    key = data.draw(st.sampled_from(sorted(whole)))
    whole[key] = data.draw(st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([{}]))
    try:
        parsed = leased.parse(json.loads(json.dumps(whole)), "aaaa0001")
    except (ValueError, TypeError, KeyError):
        return
    assert leased.data(parsed).keys() == whole.keys()
    assert parsed.devices
    assert parsed.owners or parsed.ttl is not None


def test_a_folder_that_others_can_change_at_will_is_not_trusted(machine: Machine) -> None:
    machine.folder.mkdir()
    machine.folder.chmod(0o777)
    with pytest.raises(GpuError, match="any user may remove its files"):
        machine.take(None, machine.process(11))
    machine.folder.chmod(0o1777)
    lease = machine.take(None, machine.process(11))
    assert stat.S_IMODE((machine.folder / f"{lease.id}.json").stat().st_mode) == 0o644


@pytest.mark.skipif(os.geteuid() != 0, reason="gives a folder away, which only root may")
def test_a_folder_of_another_user_is_not_trusted(machine: Machine) -> None:
    machine.folder.mkdir()
    os.chown(machine.folder, 12345, 12345)
    with pytest.raises(GpuError, match=r"belongs to another user \(uid 12345\)"):
        machine.leases.all()


def test_a_link_in_a_shared_folder_is_not_followed(machine: Machine) -> None:
    machine.take(None, machine.process(11))
    secret = machine.folder.parent / "secret"
    secret.write_text("{}")
    (machine.folder / "link.json").symlink_to(secret)
    with pytest.raises(GpuError, match="Too many levels of symbolic links"):
        machine.leases.all()


def test_a_link_that_another_user_may_have_made_is_not_followed(tmp_path: Path) -> None:
    own, shared = tmp_path / "own", tmp_path / "shared"
    (own / "leases").mkdir(parents=True, mode=0o700)
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "way").symlink_to(own)
    (shared / "leases").symlink_to(own / "leases")
    for place in (shared / "leases", shared / "way" / "leases", shared / "way" / "new"):
        with pytest.raises(GpuError, match="that another user may have made"):
            Leases(place, environ={}).take(Request(), lambda: h100s(1), ttl=60)
    assert list((own / "leases").iterdir()) == []
    (tmp_path / "mine").symlink_to(own)
    assert Leases(tmp_path / "mine" / "leases", environ={}).take(Request(), lambda: h100s(1), ttl=60)


def test_tidying_removes_only_partial_leases(machine: Machine) -> None:
    machine.take(None, machine.process(11))
    for name in ("thesis.part", ".part", ".aaaa0001.part", "notes"):
        (machine.folder / name).touch()
    machine.take(ttl=60)
    kept = {file.name for file in machine.folder.iterdir() if file.suffix != ".json"}
    assert kept == {".lock", "thesis.part", ".part", "notes"}


@pytest.mark.parametrize("name", [".lock", "aaaa0001.json"])
def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(machine: Machine, name: str) -> None:
    machine.folder.mkdir()
    os.mkfifo(machine.folder / name)
    with pytest.raises(GpuError, match="is not a regular file"):
        machine.take(None, machine.process(11))


def test_text_of_other_users_is_read_without_control_characters(machine: Machine) -> None:
    taken = machine.take(None, machine.process(11))
    file = machine.folder / f"{taken.id}.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps(document | {"user": "eve\x1b[2J\u202e", "command": "a\nb\x9b"}))
    with pytest.raises(NoneFree) as refused:
        machine.take(Request(count=4), machine.process(12))
    assert all(char.isprintable() or char == "\n" for char in str(refused.value))
    (machine.folder / "\x1b[2J.json").write_text("{}")
    with pytest.raises(GpuError) as unreadable:
        machine.leases.all()
    assert "\x1b" not in str(unreadable.value)


def test_listing_leases_creates_nothing(machine: Machine) -> None:
    assert machine.leases.all() == ()
    assert not machine.folder.exists()


@pytest.mark.parametrize(("call", "code"), [
    ("write", errno.ENOSPC),
    ("fsync", errno.EIO),
    ("rename", errno.EROFS),
    ("open", errno.EROFS),
])  # fmt: skip
def test_a_full_folder_is_one_message_and_leases_nothing(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    machine.take(None, machine.process(11))
    before = sorted(machine.folder.iterdir())
    real = getattr(os, call)

    def fails(first: object, *rest: object, **named: object) -> object:
        if call == "open" and not (isinstance(first, str) and first.endswith(".part")):
            return real(first, *rest, **named)
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, call, fails)
        with pytest.raises(
            GpuError, match=f"cannot write the GPU leases in .*{os.strerror(code)}\n.*\n    fix: "
        ) as raised:
            machine.take(None, machine.process(12))
    assert raised.value.__suppress_context__
    assert sorted(machine.folder.iterdir()) == before
    assert len(machine.take(Request(count=3), machine.process(12)).devices) == 3


def test_a_full_disk_of_the_kernel_s_own_making(machine: Machine) -> None:
    code = (
        "import resource; from paddock.gpu.leases.manager import Leases\n"
        "from paddock.gpu.leases.request import Request\n"
        "from tests.support.boxes import h100s; from pathlib import Path; import sys\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (64, 64))\n"
        "Leases(Path(sys.argv[1]), environ={}).take(Request(), lambda: h100s(1), ttl=60)\n"
    )
    words = [sys.executable, "-c", code, str(machine.folder)]
    result = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert "GpuError: cannot write the GPU leases" in result.stderr
    assert "File too large" in result.stderr
    assert [file.name for file in machine.folder.iterdir()] == [".lock"]


def test_a_lock_that_is_held_for_too_long_is_said(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.gpu.leases.store._LOCK_SECONDS", 0.05)
    with (
        machine.leases._folder.locked(),
        pytest.raises(GpuError, match=r"have been locked for 0\.05 s"),
    ):
        machine.take(None, machine.process(11))
    machine.take(None, machine.process(11))


def test_waiting_counts_the_time_for_the_lock(machine: Machine) -> None:
    machine.take(None, machine.process(11))
    start = time.monotonic()
    with machine.leases._folder.locked(), pytest.raises(LeasesLocked, match=r"have been locked for 0\.\d+ s"):
        allocate(Request(), ttl=60, wait=0.3, leases=machine.leases, read_inventory=machine.look)
    assert 0.3 <= time.monotonic() - start < 15


def test_a_lock_on_a_replaced_file_does_not_count(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.take(None, machine.process(11))
    real, lock = fcntl.flock, machine.folder / ".lock"

    def replaced_first(fd: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", real)
        lock.unlink()
        lock.touch()
        real(fd, how)

    monkeypatch.setattr(fcntl, "flock", replaced_first)
    with machine.leases._folder.locked(), lock.open() as file, pytest.raises(BlockingIOError):
        real(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_default_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    assert default_folder({"PADDOCK_GPU_LEASES": "/x", "XDG_RUNTIME_DIR": "/y"}) == Path("/x")
    monkeypatch.setattr(os, "access", lambda path, mode: True)
    assert default_folder({"XDG_RUNTIME_DIR": "/y"}) == Path("/run/paddock/gpu")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert default_folder({"XDG_RUNTIME_DIR": "/y"}) == Path("/y/paddock/gpu")
    assert default_folder({}).name == f"paddock-gpu-{os.geteuid()}"


# What a caller is told.


def test_allocate_and_deallocate_are_plain_documents(machine: Machine) -> None:
    document = allocate(Request(count=2), ttl=60, leases=machine.leases, read_inventory=machine.look)
    assert json.loads(json.dumps(document)) == document
    uuids = "GPU-00000000-aaaa,GPU-00000001-aaaa"
    assert document["environment"] == {
        "PADDOCK_GPU_LEASE": document["lease"]["id"],
        "CUDA_VISIBLE_DEVICES": uuids,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "NVIDIA_VISIBLE_DEVICES": uuids,
    }
    assert f"export CUDA_VISIBLE_DEVICES={uuids}\n" in exports(document["environment"])
    assert [entry["state"] for entry in list_leases(machine.leases)["leases"]] == ["held"]
    back = deallocate(leases=machine.leases, environ=document["environment"])
    assert [entry["id"] for entry in back["released"]] == [document["lease"]["id"]]
    assert list_leases(machine.leases)["leases"] == []


def test_a_lease_is_released_by_its_exclusive_uuid(machine: Machine) -> None:
    first = machine.take(Request(share=0.5), machine.process(11))
    assert deallocate(["GPU-00000000-aaaa"], leases=machine.leases)["released"][0]["id"] == first.id
    for _ in range(2):
        machine.take(Request(share=0.5), machine.process(11))
    with pytest.raises(GpuInputError, match="is shared"):
        deallocate(["GPU-00000000-aaaa"], leases=machine.leases)


@pytest.mark.parametrize("which", [["nope"], ["GPU-00000003-aaaa"], []])
def test_what_is_not_leased_cannot_be_given_back(machine: Machine, which: list[str]) -> None:
    machine.take(None, machine.process(11))
    with pytest.raises(GpuInputError, match="\n    expected: "):
        deallocate(which, leases=machine.leases, environ={})
    assert len(held(machine.leases)) == 1


def test_the_environment_narrows_the_choice_and_a_message_says_so(machine: Machine) -> None:
    leases = Leases(machine.folder, host=machine.leases.host, environ={"CUDA_VISIBLE_DEVICES": "2"})
    document = allocate(Request(), ttl=60, leases=leases, read_inventory=machine.look)
    assert [device["index"] for device in document["taken"]] == [2]
    assert document["notes"] == ["CUDA_VISIBLE_DEVICES=2 leaves 1 GPU."]
    with pytest.raises(NoneFree, match="the environment hides it"):
        allocate(Request(), ttl=60, leases=leases, read_inventory=machine.look)


def test_waiting_ends_at_once_where_it_helps_nothing(machine: Machine) -> None:
    machine.take(Request(count=4), machine.process(11))
    start = time.monotonic()
    with pytest.raises(NoneFree, match="ask for less") as raised:
        allocate(Request(count=5), ttl=60, wait=60, leases=machine.leases, read_inventory=machine.look)
    assert "--wait" not in str(raised.value)
    assert time.monotonic() - start < 30


def test_a_lease_needs_something_that_ends_it(machine: Machine) -> None:
    for ttl in (None, 0, -1, math.nan, math.inf):
        with pytest.raises(GpuInputError, match="\n    expected: "):
            machine.take(ttl=ttl)
    assert not machine.folder.exists()


def test_gpus_of_the_driver_are_leased_except_the_lost_one(machine: Machine, driver: Callable[[str], object]) -> None:
    """nvidia-ml-py is the real one, the driver below it made up."""
    driver("lost")
    every = allocate(Request(count=7), ttl=60, leases=machine.leases)
    assert [refused["reason"] for refused in every["refused"] if refused["reason"].startswith("it is lost")]
    with pytest.raises(NoneFree, match="1 GPU requested, and none available"):
        allocate(Request(), ttl=60, leases=machine.leases)
