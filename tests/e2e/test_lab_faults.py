"""Failures of the lab itself: each ends in one message and a next step, and nothing of a lab outlives its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from paddock.console.progress import Progress
from paddock.fleet import load
from paddock.kubernetes.errors import Unreachable
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import processes
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.simulators import nodes
from paddock.lab.stack import stack
from paddock.lab.stack.engine import ROOT, EngineError, Programs
from paddock.lab.stack.recovery import recover
from paddock.plan.engine.program import plan_graph
from tests.support.engine import export, need_engine
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("control_plane_programs")]

QUIET = Progress(quiet=True)
STARTS = "from pathlib import Path; from paddock.lab.control_plane import servers; lab, _ = servers.up(Path({!r}))"
APPLIES = (
    "from paddock.fleet import load; from paddock.lab.stack.stack import ROOT, apply; apply(lab, load(ROOT, 'dev'))"
)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "lab"
    servers.down(tmp_path / "lab")


def starting(folder: Path, before: str = "pass", after: str = "pass") -> subprocess.Popen[str]:
    """Return a command of its own that starts the lab."""
    command = [sys.executable, "-c", f"{before}; {STARTS.format(str(folder))}; {after}"]
    return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)


def left_of(folder: Path) -> dict[int, str]:
    """Return the processes with the folder in their command line or environment, or as working directory."""
    processes, named = {}, re.compile(re.escape(str(folder)).encode() + rb"[/\0]")
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            place = os.readlink(process / "cwd").encode()
            text = b"\0".join([*((process / part).read_bytes() for part in ("cmdline", "environ")), place, b""])
            if named.search(text):
                processes[int(process.name)] = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
    return processes


def killed_in_part(folder: Path) -> None:
    """With one program that starts another one, and is killed, so that nobody but the system knows of the other."""
    lab, _ = servers.up(folder, progress=QUIET)
    child = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(300)'])"
    parent = servers.spawn(folder, "parent", [sys.executable, "-c", child], {})
    until(lambda: len(left_of(folder)) == len(lab.running) + 2)
    for process in (parent, lab.running["kube-apiserver"], lab.running["kwok"]):
        os.kill(process.pid, signal.SIGKILL)


def with_half_a_state_file(folder: Path) -> None:
    servers.up(folder, progress=QUIET)
    state_file = folder / "lab.json"
    state_file.write_text(state_file.read_text()[:100])
    with pytest.raises(LabError, match=r"lab\.json is not a lab's state[\s\S]*fix: \./inv lab\.down"):
        servers.up(folder, progress=QUIET)


def killed_while_it_starts(folder: Path) -> None:
    with starting(folder) as up:
        until(lambda: "kube-apiserver" in servers.status(folder).running)
        up.kill()


def killed_while_pulumi_runs(folder: Path) -> None:
    need_engine()
    with starting(folder, after=APPLIES) as up:
        until(lambda: "paddock.lab.providers.aws" in str(left_of(folder)), 300)
        up.kill()
    assert "pulumi" in str(left_of(folder))


@pytest.mark.parametrize(
    "broken", [killed_in_part, with_half_a_state_file, killed_while_it_starts, killed_while_pulumi_runs]
)
def test_after_a_down_no_process_is_left_of_a_lab(broken: Callable[[Path], None], folder: Path) -> None:
    broken(folder)
    assert left_of(folder)
    servers.down(folder)
    assert left_of(folder) == {}
    assert not folder.exists()


def test_a_killed_lab_restarts_with_its_objects(folder: Path) -> None:
    lab, _ = servers.up(folder, progress=QUIET)
    nodes.start(lab, load(ROOT, "dev"))
    before = servers.status(folder)
    for process in before.running.values():
        os.kill(process.pid, signal.SIGKILL)
    until(lambda: not servers.status(folder).running)
    broken = servers.status(folder)
    assert (broken.up, set(broken.ended)) == (False, set(before.running))
    with lab_api(lab.kubeconfig) as api, pytest.raises(Unreachable, match=r"lab\.up"):
        api.list("v1", "Node")

    second, started = servers.up(folder, progress=QUIET)

    assert started
    assert second.ports == before.ports
    with lab_api(second.kubeconfig) as api:
        assert {"system-0", "system-1"} <= {node["metadata"]["name"] for node in api.list("v1", "Node")}


def test_one_lab_is_started_once_and_not_ended_meanwhile(folder: Path) -> None:
    with starting(folder) as first:
        until(lambda: "etcd" in servers.status(folder).running)
        for change in (servers.up, servers.down):
            with pytest.raises(LabInputError, match="another command is at work on the lab"):
                change(folder)
        first.communicate()
    assert first.returncode == 0
    lab = servers.status(folder)
    assert lab.up
    assert set(left_of(folder)) == {process.pid for process in lab.running.values()}


def test_two_labs_stand_beside_each_other(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    try:
        with ThreadPoolExecutor() as pool:
            first, two = (lab for lab, _ in pool.map(lambda folder_: servers.up(folder_, progress=QUIET), folders))
        assert not set(first.ports.values()) & set(two.ports.values())
        with lab_api(first.kubeconfig) as api, lab_api(two.kubeconfig) as other:
            api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}})
            assert other.find("v1", "Namespace", "mine") is None
            servers.down(folders[0])
            assert left_of(folders[0]) == {}
            assert servers.status(folders[1]).up
            assert other.list("v1", "Namespace")
    finally:
        for folder in folders:
            servers.down(folder)


@pytest.mark.parametrize(("bytes_", "message"), [(1 << 20, "etcd ended while it started"), (1, "make room there")])
def test_a_full_disk_is_reported_and_no_process_stays(folder: Path, bytes_: int, message: str) -> None:
    """A limit on the size of files stands for a full disk: to those who write it is the same."""
    limit = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, ({bytes_}, {bytes_}))"
    with starting(folder, before=limit) as up:
        _, errors = up.communicate()
    assert up.returncode != 0
    assert message in errors
    assert "file too large" in errors.lower()
    assert left_of(folder) == {}
    assert servers.up(folder, progress=QUIET)[1]


def helm(lab: Lab) -> dict[str, str]:
    """Releases in the cluster, with their status."""
    with lab_api(lab.kubeconfig) as api:
        releases = [record["metadata"]["labels"] for record in api.list("v1", "Secret", labelSelector="owner=helm")]
    assert len({labels["name"] for labels in releases}) == len(releases)
    return {labels["name"]: labels["status"] for labels in releases}


def test_an_up_recovers_after_losing_engine_and_api_server(folder: Path, engine_programs: Programs) -> None:
    dev = load(ROOT, "dev")
    graph = plan_graph(dev)
    lab, _ = servers.up(folder, progress=QUIET)
    nodes.start(lab, dev)
    engine = stack.lab_engine(lab, stack.overlay_with_charts(lab, dev, graph)[0])

    def apply() -> None:
        stack.apply(lab, dev, graph=graph, progress=QUIET)

    def kill_engine() -> None:
        until(lambda: "pending-install" in helm(lab).values(), 300)
        for process in processes.marked(engine.state):
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)

    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill_engine)
        with pytest.raises(EngineError, match="was killed"):
            apply()
        killing.result()
    assert "pending-install" in helm(lab).values()

    recover(engine)
    assert "pending-install" not in helm(lab).values()

    def kill_server() -> None:
        until(lambda: "pending-install" in helm(lab).values(), 300)
        os.kill(lab.running["kube-apiserver"].pid, signal.SIGKILL)

    with ThreadPoolExecutor() as pool:
        killing = pool.submit(kill_server)
        with pytest.raises(EngineError, match=r"refused|reset|unreachable|EOF") as failed:
            apply()
        killing.result()
    assert "Traceback" not in str(failed.value)
    with pytest.raises(Unreachable, match=r"fix: \./inv lab\.status"):
        helm(lab)

    assert servers.up(folder, progress=QUIET)[1]
    apply()

    assert set(helm(lab).values()) == {"deployed"}
    assert set(helm(lab)) == {"arc", "gpu", "cluster-autoscaler", "nvidia-device-plugin"}
    created = engine.created_resources()
    assert len(set(created.values())) == len(created)
    assert set(graph.resources) <= set(export(engine))
