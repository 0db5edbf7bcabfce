"""The scheduler on labelled nodes of a real Ray: placement, loss of the primary backend, agents that join late."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.models.presets import preset
from paddock.ray_labels import AGENT, BACKEND, HEAD
from paddock.serve.agents.members import Agent, Members
from paddock.serve.deployment.cluster import SchedulerClient
from paddock.serve.errors import ServeError
from paddock.serve.placement.plan import ModelPlacement
from paddock.serve.placement.request import Policy, Request
from tests.support.packages import need
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

SECONDS = 300
TINY = Request(preset("tiny"), "int8", 256, 1)
AGENTS = {HEAD: ("cpu", 1), "box": ("cuda", 2), "mac": ("metal", 1)}


class Nodes:
    """Nodes of a real Ray, each labelled as an agent that reports the devices of a file."""

    def __init__(self, devices: Path) -> None:
        from ray.cluster_utils import Cluster

        self.cluster = Cluster()
        self._devices = str(devices)
        self._nodes: dict[str, Any] = {}

    def add(self, agent: str, devices: str = "") -> None:
        self._nodes[agent] = self.cluster.add_node(
            num_cpus=1,
            object_store_memory=80 * 2**20,
            labels={AGENT: agent, BACKEND: AGENTS.get(agent, ("cpu", 1))[0]},
            resources={f"agent:{agent}": 1000},
            env_vars={"PADDOCK_SERVE_DEVICES": devices or self._devices},
        )

    def remove(self, agent: str) -> None:
        self.cluster.remove_node(self._nodes.pop(agent), allow_graceful=False)


@pytest.fixture(scope="module")
def nodes(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    """Yield nodes labelled cpu (the head), cuda and metal."""
    need("ray", "xllamacpp")
    file = tmp_path_factory.mktemp("nodes") / "lab.json"
    rows = [
        {"agent": agent, "backend": backend, "index": index, "memory_mib": 4096, "name": f"{backend} device"}
        for agent, (backend, count) in AGENTS.items()
        for index in range(count)
    ]
    file.write_text(json.dumps({"devices": rows}))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("RAY_AUTH_MODE", "disabled"), ("RAY_USAGE_STATS_ENABLED", "0"), ("PYTHONPATH", str(root)),
            ("PADDOCK_SERVE_DEVICES", str(file)), ("XDG_CACHE_HOME", str(file.parent / "cache")),
        ):  # fmt: skip
            patch.setenv(name, value)
        import ray

        nodes = Nodes(file)
        for agent in AGENTS:
            nodes.add(agent)
        ray.init(address=nodes.cluster.address, namespace="paddock", logging_level="ERROR", log_to_driver=False)
        yield nodes
        ray.shutdown()
        nodes.cluster.shutdown()


@pytest.fixture(scope="module")
def scheduler(nodes: Nodes) -> Callable[..., Any]:
    """Return the calls of a real scheduler, whose models llama.cpp computes."""
    import ray

    from paddock.serve.deployment.scheduler import NAME, NAMESPACE, Scheduler

    ray.remote(Scheduler).options(
        name=NAME, namespace=NAMESPACE, lifetime="detached", num_cpus=0, max_concurrency=8, label_selector={AGENT: HEAD}
    ).remote(None)
    return SchedulerClient(ray)


def row(scheduler: Callable[..., Any], id: str) -> dict[str, Any]:
    return next(dict(row) for row in scheduler("models") if row["id"] == id)


def serving(scheduler: Callable[..., Any], id: str) -> dict[str, Any]:
    """Return the row of a model once it serves."""
    until(lambda: row(scheduler, id)["state"] == "serving", SECONDS)
    return row(scheduler, id)


def test_each_node_reports_its_devices_under_its_label(scheduler: Callable[..., Any]) -> None:
    assert {agent["agent"]: [device["device"] for device in agent["devices"]] for agent in scheduler("nodes")} == {
        "head": ["head/cpu:0"], "box": ["box/cuda:0", "box/cuda:1"], "mac": ["mac/metal:0"],
    }  # fmt: skip


def test_the_primary_backend_is_the_one_with_most_devices(scheduler: Callable[..., Any]) -> None:
    answer = scheduler("plan", TINY, Policy())
    assert isinstance(answer.result, ModelPlacement)
    assert (answer.result.kind, answer.unanswered) == ("HomogeneousCuda", ())
    assert [(unused.device.label, bool(unused.suggestion)) for unused in answer.result.unused] == [
        ("head/cpu:0", True), ("mac/metal:0", True)
    ]  # fmt: skip
    scheduler("load", TINY, Policy(tensor_parallel=1), "tiny")
    assert serving(scheduler, "tiny")["backend"] == "cuda"
    scheduler("load", TINY, Policy("cuda", tensor_parallel=1), "tiny")
    assert serving(scheduler, "tiny-2")["backend"] == "cuda"


def test_a_lost_primary_moves_its_models_or_leaves_them_waiting(nodes: Nodes, scheduler: Callable[..., Any]) -> None:
    nodes.remove("box")
    until(lambda: row(scheduler, "tiny")["moves"] == 1, SECONDS)
    moved = serving(scheduler, "tiny")
    assert (moved["class"], moved["devices"]) == ("HomogeneousMetal", ["mac/metal:0"])
    assert "it ran on cuda before" in moved["reason"]
    until(lambda: "no cuda device is available" in row(scheduler, "tiny-2")["reason"], SECONDS)
    assert row(scheduler, "tiny-2")["state"] == "lost"


def test_an_agent_that_joins_late_gets_the_model_that_waits(nodes: Nodes, scheduler: Callable[..., Any]) -> None:
    nodes.add("box")
    late = serving(scheduler, "tiny-2")
    assert (late["backend"], late["moves"]) == ("cuda", 1)
    assert row(scheduler, "tiny")["devices"] == ["mac/metal:0"], "a model that serves stays where it is"


def test_devices_of_an_unloaded_model_hold_the_next_one(scheduler: Callable[..., Any]) -> None:
    scheduler("unload", "tiny-2")
    until(lambda: {row["id"] for row in scheduler("models")} == {"tiny"}, SECONDS)
    answer = scheduler("load", TINY, Policy("cuda", tensor_parallel=1), "tiny")
    assert answer.row is not None
    assert serving(scheduler, answer.row["id"])["backend"] == "cuda"


def test_a_scheduler_that_hangs_is_said_at_the_deadline(scheduler: Callable[..., Any]) -> None:
    import ray

    from paddock.serve.deployment.scheduler import NAME, NAMESPACE

    actor = ray.get_actor(NAME, namespace=NAMESPACE)
    pid = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(ServeError, match="the scheduler does not answer within 2 s"):
            SchedulerClient(ray, seconds=2)("models")
    finally:
        os.kill(pid, signal.SIGCONT)
    assert scheduler("models")


def test_an_agent_that_hangs_is_asked_once_and_keeps_nobody_waiting_twice(nodes: Nodes, tmp_path: Path) -> None:
    import ray

    pipe = tmp_path / "devices.json"
    os.mkfifo(pipe)  # whoever reads it waits for a writer
    nodes.add("slow", str(pipe))
    members = Members(seconds=60)
    until(lambda: "slow" in members.alive(), SECONDS)
    members = Members(seconds=5)

    def slow() -> Agent:
        return next(agent for agent in members.agents() if agent.name == "slow")

    assert slow().problem == "no answer within 5 s"
    (node,) = [row["NodeID"] for row in ray.nodes() if row["Labels"].get(AGENT) == "slow"]
    probe = members._probes[node]
    until(lambda: members._overdue(probe))
    assert slow().problem == "no answer within 5 s"
    assert members._probes[node] is probe, "it is the same question"
    text = '{"devices": [{"agent": "slow", "backend": "cpu", "index": 0, "memory_mib": 8}]}'
    pipe.write_text(text)
    pipe.unlink()
    pipe.write_text(text)  # now a file: a further question is answered at once
    until(lambda: [device.label for device in slow().devices] == ["slow/cpu:0"], SECONDS)
    nodes.remove("slow")


def test_two_machines_of_one_name_are_reported(nodes: Nodes) -> None:
    second = nodes.cluster.add_node(num_cpus=1, labels={AGENT: "mac"}, object_store_memory=80 * 2**20)
    members = Members()
    try:
        agents = [agent for agent in members.agents() if agent.name == "mac" and agent.alive]
        assert len(agents) == 2
        for agent in agents:
            assert agent.devices == ()
            assert "another machine has this name" in agent.problem
    finally:
        nodes.cluster.remove_node(second, allow_graceful=False)
