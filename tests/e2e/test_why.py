"""`inv why` against a real Kubernetes API server and scheduler, with faults as real objects, conditions and events.

AWS and GitHub are stand-ins. Controllers and simulated kubelets are ended first: what stands here, nobody mends.
"""

from __future__ import annotations

import os
import random
import signal
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.console.progress import Progress
from paddock.fleet import Stack, load
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import Cluster, lab_api
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.snapshot.read import KINDS, Sources, read
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.why.command import Why, why
from paddock.operate.why.walk import Walk, walks
from tests.support.aws_account import REGION, Account, answering
from tests.support.chain_beside import BESIDE, NEAR_MISSES, Case
from tests.support.chain_faults import FAULTS, Fault
from tests.support.chain_objects import RUNNERS, SYSTEM
from tests.support.chain_world import LATER, PARTS, World, variant
from tests.support.explore import count
from tests.support.kubernetes import as_account
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("why"), pytest.mark.usefixtures("control_plane_programs")]

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "paddock/lab/stack/charts/own/gha-runner-scale-set-controller/crds"
LEAST_INJECTED, MOST_MISSED, PAIRS = 30, 1, count(8, 25)


class Server:
    """The API server, and a reader of it as `inv why` has one."""

    def __init__(self, lab: Lab, stack: Stack) -> None:
        self.lab, self.stack = lab, stack
        self.api = lab_api(lab.kubeconfig)
        self.cluster = kubeconfig.load(lab.kubeconfig, None, stack.fleet)
        self.reader = KubernetesReader(self.cluster)
        self.before_arc: Snapshot | None = None
        """The cluster before it had ARC's kinds."""

    def at(self) -> datetime:
        """Return the time of a snapshot of what is created now: a server gives objects no age."""
        return datetime.now(UTC) + LATER

    def world(self) -> World:
        return World(self.stack, self.at())

    def inject(self, world: World) -> list[Object]:
        """Create a world, and wait for the scheduler's own verdict on each pod without a node."""
        created = world.create(self.api)
        for pod in created:
            if pod["kind"] == "Pod" and "nodeName" not in pod["spec"]:
                until(lambda pod=pod: _judged(self.api, pod))
        return created

    def remove(self, created: list[Object]) -> None:
        for item in created:
            if item["metadata"].get("finalizers"):
                self.api.patch(item, {"metadata": {"finalizers": None}})
            self.api.delete(item, gracePeriodSeconds="0")
        for event in self.api.list("v1", "Event"):  # the scheduler's own; the next world's pods have the same names
            if event["metadata"]["namespace"] in (SYSTEM, RUNNERS):
                self.api.delete({"apiVersion": "v1", "kind": "Event", **event}, gracePeriodSeconds="0")
        until(
            lambda: not [pod for pod in self.api.list("v1", "Pod") if pod["metadata"]["namespace"] in (SYSTEM, RUNNERS)]
        )

    def read(self, world: World) -> Snapshot:
        """Read cluster and AWS, as of ten minutes later."""
        account = Account(world.answers())
        snapshot = read(world.fleet, Sources(self.reader, AwsReader(REGION, account.clients)))
        dated = {
            part: replace(reading, items=tuple(map(world.dated, reading)))
            for part, reading in snapshot.readings().items()
            if part in PARTS.values() and part != "events"
        }
        # kwok executes nothing, so that no pod has a log: tests/operate/test_why_logs.py reads some over HTTP.
        logs = Reading(tuple(world.logs))
        return replace(snapshot, at=world.at, clocks={}, logs=logs, **dated, **world.at_github())

    def why(self, world: World) -> Walk:
        return walks(self.read(world), "dev", world.target)[0]

    def met(self, world: World) -> Walk:
        """Create a world, walk it, and take it away."""
        created = self.inject(world)
        try:
            return self.why(world)
        finally:
            self.remove(created)


def _judged(api: Api, pod: Object) -> bool:
    status = api.get("v1", "Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])["status"]
    return any(condition["type"] == "PodScheduled" for condition in status.get("conditions") or [])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, control_plane_programs: None) -> Iterator[Server]:
    lab, _ = servers.up(tmp_path_factory.mktemp("lab"), progress=Progress(quiet=True))
    try:
        server = Server(lab, load(ROOT, "dev"))
        for namespace in (SYSTEM, RUNNERS):
            server.api.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        server.before_arc = read(server.stack.fleet, Sources(server.reader))
        for file in sorted(CRDS.iterdir()):
            server.api.create(yaml.safe_load(file.read_text()))
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "node-mark", "namespace": RUNNERS},
        }
        server.api.create(account)
        for namespace in (SYSTEM, RUNNERS, "kube-system"):
            until(lambda namespace=namespace: server.api.find("v1", "ServiceAccount", "default", namespace))
        until(lambda: all(_served(server.api, kind) for version, kind, _ in KINDS.values() if "actions" in version))
        for name in ("kube-controller-manager", "kwok"):
            os.kill(lab.running[name].pid, signal.SIGKILL)
        yield server
        server.api.close()
    finally:
        servers.down(lab.folder)


def _served(api: Api, kind: str) -> bool:
    try:
        api.list("actions.github.com/v1alpha1", kind)
    except Exception:  # not served yet
        return False
    return True


def test_at_least_29_of_30_faults_are_named_and_none_wrongly(server: Server) -> None:
    wrong, missed = [], []
    injected = [fault for fault in FAULTS if fault.name != "cluster_has_no_arc"]  # the server has ARC's kinds
    for fault in injected:
        result = server.met(fault.world(server.at()))
        line = _line(fault, result)
        if result.verdict == "broken" and result.link != fault.link:
            wrong.append(line)
        elif result.verdict != "broken" or result.outcomes[result.link].runbook != fault.runbook:
            missed.append(line)
    assert wrong == []
    assert len(missed) <= MOST_MISSED, "\n".join(missed)
    assert len(injected) >= LEAST_INJECTED


@pytest.mark.at_length
def test_pairs_of_faults_name_one_of_the_two(server: Server) -> None:
    """A sample: tests/operate/test_why.py meets all of them, without a server."""
    chosen = random.Random(20261124)
    changes = [*FAULTS, *BESIDE]
    wrong, met = [], 0
    while met < PAIRS:
        one, other = chosen.choice(FAULTS), chosen.choice(changes)
        if one.alone or (isinstance(other, Fault) and (other.alone or other.fleet != one.fleet)):
            continue
        world = _both(server, one, other)
        if world is None:
            continue
        met += 1
        result = server.met(world)
        links = {one.link, other.link} - {""}
        if result.verdict != "broken" or result.link not in links:
            wrong.append(f"with {other.name}: {_line(one, result)}")
    assert wrong == []


def _both(server: Server, one: Fault, other: Fault | Case) -> World | None:
    """Return a world with two changes; None where they cannot both be."""
    for keep in (False, True):
        world = World(variant(one.fleet), server.at(), keep=keep)
        try:
            one.change(world)
            other.change(world)
        except (AssertionError, ValueError, KeyError, IndexError):
            continue
        return world
    return None


@pytest.mark.parametrize(
    "name",
    [
        "fallback_is_launched_after_spot_failed",
        "full_node_with_a_bad_gpu_while_another_boots",
        "idle_runner_gets_no_job",
        "job_of_two_sets",
        "listener_was_made_anew_just_now",
        "mounts_failed_before_the_pull",
        "node_is_cordoned_while_another_boots",
        "pods_fail_without_an_event",
        "runner_starts_after_a_long_pull",
        "runners_are_asked_for_and_not_made",
        "session_is_dead_beside_a_job",
    ],
)
def test_a_near_miss_is_not_called_broken(server: Server, name: str) -> None:
    (case,) = (case for case in NEAR_MISSES if case.name == name)
    result = server.met(case.world(server.at()))
    assert (result.verdict, result.link) == (case.verdict, case.link), _line(case, result)


def test_a_cluster_without_arc_says_so(server: Server) -> None:
    assert server.before_arc is not None
    assert (server.before_arc.runner_sets.known, server.before_arc.runner_sets.absent) == (True, True)
    (result,) = walks(server.before_arc, "dev", "gpu")
    assert (result.verdict, result.outcomes["scale-set"].runbook) == ("broken", "arc-not-installed")


def test_a_clock_that_is_ahead_makes_nothing_older(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ahead(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:
            return datetime.now(tz) + timedelta(minutes=5)

    (fault,) = (fault for fault in FAULTS if fault.name == "scale_set_is_not_registered")
    world = fault.world(server.at())
    created = server.inject(world)
    try:
        monkeypatch.setattr("paddock.operate.snapshot.read.datetime", Ahead)
        snapshot = read(server.stack.fleet, Sources(server.reader))
        assert abs(snapshot.clocks["machine"] - snapshot.at - timedelta(minutes=5)) < timedelta(seconds=30)
        (result,) = walks(snapshot, "dev", "gpu")
        assert (result.verdict, result.link) == ("waits", "scale-set"), _line(fault, result)
    finally:
        server.remove(created)


def _line(fault: Fault | Case, result: Walk) -> str:
    evidence = "\n".join(f"    {key} {one.status} {one.evidence}" for key, one in result.outcomes.items())
    return f"{fault.name}: {fault.link} expected, {result.verdict} at {result.link or 'no link'}\n{evidence}"


def test_a_fleet_at_work_has_no_broken_link(server: Server) -> None:
    result = server.met(server.world())
    judged = {one.status for key, one in result.outcomes.items() if key not in ("github", "job")}
    assert judged == {"ok"}, _line(FAULTS[0], result)


def test_the_command_names_a_fault_and_exits_with_1(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_ROOT", str(ROOT))
    (fault,) = (fault for fault in FAULTS if fault.name == "image_is_not_there")
    world = fault.world(server.at())
    created = server.inject(world)
    try:
        answering(monkeypatch, Account(world.answers()))
        report = why(Why(target="gpu", kubeconfig=server.lab.kubeconfig))
    finally:
        server.remove(created)
    document = report.document()
    assert report.exit_code == 1
    (walk,) = document["walks"]
    assert (walk["link"], walk["runbook"]) == ("image-pull", "image-not-there")
    assert walk["ephemeral_runner"] == "arc-runners/gpu-abc12-runner-x1"
    assert set(document["unknown"]) == {"jobs", "github_runners"}


def test_a_forbidden_list_names_verb_and_resource(server: Server) -> None:
    weak = as_account(server.api, "node-mark", RUNNERS)
    cluster = replace(server.cluster, token=weak._token)
    snapshot = read(server.stack.fleet, Sources(KubernetesReader(cluster)))
    assert snapshot.nodes.permission == "list nodes"
    assert snapshot.listeners.permission == "list autoscalinglisteners.actions.github.com"
    (result,) = walks(snapshot, "dev", "gpu")
    assert result.verdict == "unknown"


def test_an_unreachable_server_is_unknown_with_its_reason(server: Server) -> None:
    cluster = Cluster("nowhere", "https://127.0.0.1:1", ssl.create_default_context(), "none")
    snapshot = read(server.stack.fleet, Sources(KubernetesReader(cluster)))
    assert "does not answer" in snapshot.pods.reason
    assert [walk.verdict for walk in walks(snapshot, "dev")] == ["unknown"]


@pytest.mark.explore
def test_a_pod_that_waits_for_one_of_a_thousand_nodes_takes_five_seconds_of_work(server: Server) -> None:
    """Measured in processor time of the reader: what else the machine does takes no part in it.

    In every run tests/operate/test_why.py has as many, without a server.
    """
    world = server.world()
    world.pending()
    template = world.add_node("many")
    world.drop("Node", "many")
    gpu = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    names = [f"many-{number}" for number in range(1000)]
    for name in names:
        labels = {**template["metadata"]["labels"], "kubernetes.io/hostname": name}
        server.api.create({**template, "metadata": {"name": name, "labels": labels}})
        work = {"nodeName": name, "containers": [{"name": "x", "image": "any", "resources": gpu}]}
        server.api.create({**_pod(name), "spec": work})
    created = server.inject(world)
    try:
        began = time.process_time()
        snapshot = server.read(world)
        (result,) = walks(snapshot, "dev", "gpu")
        took = time.process_time() - began
    finally:
        for name in names:
            server.api.delete(_pod(name), gracePeriodSeconds="0")
            server.api.delete(_node(name))
        server.remove(created)
    assert len(snapshot.nodes.items) == 1001
    assert (result.verdict, result.link) == ("unknown", "node-group"), _line(FAULTS[0], result)
    assert took < 5


def _pod(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"}}


def _node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
