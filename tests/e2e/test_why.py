"""`inv why` against a real Kubernetes API server and scheduler, with faults as real objects, conditions and events.

AWS and GitHub are stand-ins. Controllers and simulated kubelets are ended first: what stands here, nobody mends.
"""

from __future__ import annotations

import json
import os
import signal
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.fleet import Stack, load
from paddock.kube.client import Api, Object
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.progress import Progress
from paddock.operate.chain.walk import Walk, walks
from paddock.operate.cli import why
from paddock.operate.cli.connect import Access
from paddock.operate.snapshot.model import Reading
from paddock.operate.snapshot.read import KINDS, Sources, read
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.kubeconfig import Cluster
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.terminal import JsonOutput
from tests.support.aws_account import REGION, Account
from tests.support.chain_faults import FAULTS, Fault
from tests.support.chain_world import LATER, RUNNERS, SYSTEM, World
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("why"), pytest.mark.usefixtures("control_plane_programs")]

ROOT = Path(__file__).resolve().parents[2]
CRDS = ROOT / "paddock/lab/stack/charts/own/gha-runner-scale-set-controller/crds"
LEAST_INJECTED, MOST_MISSED = 30, 1


class Server:
    """The API server, and a reader of it as `inv why` has one."""

    def __init__(self, lab: Lab, stack: Stack) -> None:
        self.lab, self.stack = lab, stack
        self.api = Api.of(lab.kubeconfig)
        self.cluster = kubeconfig.load(lab.kubeconfig, None, stack.fleet)
        self.reader = KubernetesReader(self.cluster)

    def world(self) -> World:
        return World(self.stack, datetime.now(UTC) + LATER)

    def inject(self, world: World) -> list[Object]:
        """Create a world, and wait for the scheduler's own verdict on each pod without a node."""
        created = world.create(self.api)
        for pod in created:
            if pod["kind"] == "Pod" and "nodeName" not in pod["spec"]:
                until(lambda pod=pod: _judged(self.api, pod))
        return created

    def remove(self, created: list[Object]) -> None:
        for item in created:
            self.api.delete(item, grace_seconds=0)
        until(
            lambda: not [pod for pod in self.api.list("v1", "Pod") if pod["metadata"]["namespace"] in (SYSTEM, RUNNERS)]
        )

    def why(self, world: World) -> Walk:
        """Read cluster and AWS, and walk as of ten minutes later: a server gives objects no age."""
        account = Account(world.answers())
        snapshot = read(self.stack.fleet, Sources(self.reader, AwsReader(REGION, account.clients)))
        jobs = Reading(tuple(world.jobs)) if world.jobs else snapshot.jobs
        runners = Reading(tuple(world.github_runners))
        # kwok executes nothing, so that no pod has a log: tests/operate/test_why_logs.py reads some over HTTP.
        logs = Reading(tuple(world.logs))
        shifted = replace(snapshot, at=world.at, jobs=jobs, github_runners=runners, logs=logs)
        (result,) = walks(shifted, "dev", world.target)
        return result


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


def test_injected_faults_are_named_and_no_wrong_link_is(server: Server) -> None:
    missed, wrong = [], []
    for fault in FAULTS:
        world = server.world()
        fault.change(world)
        created = server.inject(world)
        try:
            result = server.why(world)
        finally:
            server.remove(created)
        line = _line(fault, result)
        if result.verdict == "broken" and result.link != fault.link:
            wrong.append(line)
        elif result.verdict != "broken" or result.outcomes[result.link].runbook != fault.runbook:
            missed.append(line)
    assert wrong == []
    assert len(missed) <= MOST_MISSED, "\n".join(missed)
    assert len(FAULTS) >= LEAST_INJECTED


def _line(fault: Fault, result: Walk) -> str:
    evidence = "\n".join(f"    {key} {one.status} {one.evidence}" for key, one in result.outcomes.items())
    return f"{fault.name}: {fault.link} expected, {result.verdict} at {result.link or 'no link'}\n{evidence}"


def test_a_fleet_at_work_has_no_broken_link(server: Server) -> None:
    world = server.world()
    created = server.inject(world)
    try:
        result = server.why(world)
    finally:
        server.remove(created)
    assert {one.status for key, one in result.outcomes.items() if key != "github"} == {"ok"}, _line(FAULTS[0], result)


def test_the_command_names_a_fault_and_exits_with_1(server: Server, tmp_path: Path) -> None:
    (fault,) = (fault for fault in FAULTS if fault.name == "image_is_not_there")
    world = server.world()
    fault.change(world)
    created = server.inject(world)
    try:
        access = Access(server.lab.kubeconfig, clients=Account(world.answers()).clients)
        code = why.run(ROOT, "dev", "gpu", access, json=JsonOutput.parse(str(tmp_path / "why.json")))
    finally:
        server.remove(created)
    document = json.loads((tmp_path / "why.json").read_text())
    assert code == 1
    (walk,) = document["walks"]
    assert (walk["link"], walk["runbook"]) == ("image-pull", "image-not-there")
    assert walk["ephemeral_runner"] == "arc-runners/gpu-abc12-runner-x1"
    assert set(document["unknown"]) == {"jobs", "github_runners"}


def test_a_forbidden_list_names_verb_and_resource(server: Server) -> None:
    weak = server.api.as_account("node-mark", RUNNERS)
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


def test_a_thousand_nodes_are_read_within_five_seconds_of_work(server: Server) -> None:
    """Measured in processor time of the reader: what else the machine does takes no part in it."""
    world = server.world()
    template = world.get("Node", "t4-spot-1")
    names = [f"many-{number}" for number in range(1000)]
    for name in names:
        labels = {**template["metadata"]["labels"], "kubernetes.io/hostname": name}
        server.api.create({**template, "metadata": {"name": name, "labels": labels}})
    try:
        began = time.process_time()
        snapshot = read(server.stack.fleet, Sources(server.reader))
        took = time.process_time() - began
    finally:
        for name in names:
            server.api.delete(_node(name))
    assert len(snapshot.nodes.items) == 1000
    assert took < 5


def _node(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
