"""Life of an instance: how agents and replicas change it, and what a new scheduler makes of it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.models.presets import preset
from paddock.serve.agents.members import Agent
from paddock.serve.deployment.instances.instance import Instance, declared, observed, placed
from paddock.serve.deployment.instances.reconcile import Reconciler
from paddock.serve.deployment.instances.registry import FILE, Registry, read, write
from paddock.serve.deployment.row import InstanceRow
from paddock.serve.deployment.scheduler import Scheduler
from paddock.serve.errors import ServeError
from paddock.serve.placement.device import Backend, Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import ModelPlacement
from paddock.serve.placement.request import Policy, Request
from paddock.serve.replica.status import Status
from tests.support.waiting import until

TINY = Request(preset("tiny"), None, 256)
SERVING = Status("serving", port=4711, key="secret-of-the-engine", engine="llama.cpp", version="1")


def device(agent: str, backend: Backend, index: int = 0, mib: int = 4096) -> Device:
    return Device(agent, backend, index, mib, mib, f"{agent} {backend}")


BOX, HEAD = device("box", "cuda"), device("head", "cpu")


class Cluster:
    """Stand-in for Ray: agents, and the actors of replicas, which change as a test says."""

    def __init__(self, *devices: Device) -> None:
        self.devices = list(devices)
        self.actors: dict[str, tuple[Status | None, str]] = {}
        self.problems: dict[str, str] = {}
        self.started: list[str] = []
        self.ending: list[str] = []
        self.refuses = ""
        self.broken = ""

    # As Members.

    def alive(self) -> frozenset[str]:
        return frozenset(device.agent for device in self.devices)

    def agents(self) -> tuple[Agent, ...]:
        return tuple(
            Agent(name, "cpu", name, True, () if name in self.problems else self._of(name), self.problems.get(name, ""))
            for name in sorted(self.alive())
        )

    def _of(self, name: str) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.agent == name)

    def diagnosis(self, agent: str, backend: Backend, own_engine: bool) -> str:
        return self.broken if own_engine else ""

    # As Replicas.

    def start(self, instance: Instance, plan: ModelPlacement) -> None:
        if self.refuses:
            raise ServeError(self.refuses)
        self.started.append(instance.actor)
        self.actors[instance.actor] = (None, "")

    def statuses(self, names: Iterable[str]) -> dict[str, tuple[Status | None, str]]:
        return {name: self.actors.get(name, (None, "there is no process of it")) for name in names}

    def end(self, name: str) -> None:
        if name not in self.ending:
            self.ending.append(name)

    def names(self) -> frozenset[str]:
        return frozenset(self.actors)

    def sweep(self) -> None:
        pass

    def lives(self, name: str) -> bool:
        return name in self.actors

    # What happens on it.

    def says(self, status: Status) -> None:
        self.actors[self.started[-1]] = (status, "")

    def ends(self, how: str) -> None:
        self.actors[self.started[-1]] = (None, how)

    def loses(self, agent: str) -> None:
        self.devices = [device for device in self.devices if device.agent != agent]


class Run:
    """A registry and its reconciler on such a cluster, whose checks a test makes."""

    def __init__(self, cluster: Cluster, file: Path | None = None) -> None:
        self.cluster, self.registry = cluster, Registry(file)
        self._reconciler = Reconciler(self.registry, cluster, cluster)  # type: ignore[arg-type]

    def load(self, policy: Policy | None = None) -> None:
        policy = policy or Policy()
        result = place(TINY, self.registry.free(self.cluster.agents()), policy)
        instance = declared(self.registry.new_id("tiny"), TINY, policy, "tiny", 600, result, time.time())
        self.registry.add(instance)
        if isinstance(result, ModelPlacement):
            self.cluster.start(instance, result)

    def check(self, count: int = 1) -> Instance:
        for _ in range(count):
            self._reconciler.check()
        return self.registry.instances()[0]

    def serve(self, policy: Policy | None = None) -> Instance:
        self.load(policy)
        self.cluster.says(SERVING)
        return self.check()


def test_a_model_of_a_lost_agent_is_placed_anew() -> None:
    run = Run(Cluster(BOX, HEAD))
    assert run.serve().devices == ("box/cuda:0",)
    run.cluster.loses("box")
    lost = run.check()
    assert (lost.state, lost.reason, lost.upstream()) == ("lost", "agent box is gone", None)
    moved = run.check()
    assert (moved.state, moved.devices, moved.moves) == ("loading", ("head/cpu:0",), 1)
    run.cluster.says(SERVING)
    serving = run.check()
    assert (serving.state, serving.failures) == ("serving", 0)
    assert serving.recovered_seconds is not None
    assert "it ran on cuda before" in serving.reason


def test_a_replica_that_ends_starts_again_on_its_device() -> None:
    run = Run(Cluster(BOX, HEAD))
    first = run.serve()
    run.cluster.ends("killed by signal 9")
    again = run.check()
    assert (again.state, again.devices, again.moves) == ("loading", first.devices, 0)
    assert again.reason == "its replica has ended (killed by signal 9), and starts again"
    assert run.cluster.started == [first.actor, again.actor]
    run.cluster.says(SERVING)
    assert run.check().state == "serving"
    run.cluster.ends("killed by signal 9")
    run.check()
    run.cluster.ends("killed by signal 9")
    ended = run.check()
    assert (ended.state, ended.reason) == ("lost", "killed by signal 9")


def test_an_engine_that_starts_again_is_followed() -> None:
    run = Run(Cluster(BOX))
    run.serve()
    run.cluster.says(Status("loading", "llama.cpp has ended: killed; it starts again in 1 s"))
    loading = run.check()
    assert (loading.state, loading.upstream()) == ("loading", None)
    assert "it starts again in 1 s" in loading.reason
    run.cluster.says(SERVING)
    assert run.check().recovered_seconds is not None


def test_a_backend_that_the_user_names_is_kept_after_a_loss() -> None:
    run = Run(Cluster(BOX, HEAD))
    run.serve(Policy("cuda"))
    run.cluster.loses("box")
    lost = run.check(2)
    assert lost.state == "lost"
    assert lost.reason == "agent box is gone; no cuda device is available: there is 1 cpu"
    run.cluster.devices.append(replace(BOX, agent="other"))
    assert run.check().devices == ("other/cuda:0",)


def test_the_reason_says_what_the_devices_lack() -> None:
    run = Run(Cluster(device("head", "cpu", mib=2)))
    run.load()
    assert "head/cpu:0 lacks " in run.check().reason
    run.cluster.devices = [replace(HEAD, unavailable="the driver hangs")]
    run._reconciler._asked.clear()
    assert run.check().reason.endswith("head/cpu:0: the driver hangs")


def test_a_scheduler_that_starts_anew_adopts_what_runs_and_ends_the_rest(tmp_path: Path) -> None:
    file, cluster = tmp_path / FILE, Cluster(BOX, HEAD)
    before = Run(cluster, file).serve()
    cluster.actors["replica-orphan.1"] = (SERVING, "")
    after = Run(cluster, file)
    (again,) = after.registry.instances()
    assert (again.state, again.plan) == ("lost", before.plan)
    assert after.check().state == "loading"
    serving = after.check()
    assert (serving.state, serving.devices, serving.moves) == ("serving", before.devices, 0)
    assert cluster.started == [before.actor]
    assert cluster.ending == ["replica-orphan.1"]
    cluster.loses("box")
    assert after.check(2).devices == ("head/cpu:0",), "its agent is no longer awaited"


def test_a_replica_that_has_started_again_is_adopted(tmp_path: Path) -> None:
    file, cluster = tmp_path / FILE, Cluster(BOX)
    run = Run(cluster, file)
    run.serve()
    for _ in range(2):
        cluster.ends("killed by signal 9")
        run.check()
    after = Run(cluster, file)
    after.check(2)
    assert after.registry.instances()[0].actor == cluster.started[-1]
    assert cluster.started[-1] not in cluster.ending


def test_no_key_of_an_engine_is_written_or_shown(tmp_path: Path) -> None:
    file = tmp_path / FILE
    run = Run(Cluster(BOX), file)
    run.serve()
    assert SERVING.key not in f"{file.read_text()}{run.registry.rows()}{run.registry.instances()}"
    (route,) = run.registry.routes()
    assert (route["upstream"].key, route["upstream"].url) == (SERVING.key, "http://127.0.0.1:4711")


def test_a_new_head_waits_for_the_former_agents(tmp_path: Path) -> None:
    file, cluster = tmp_path / FILE, Cluster(BOX, HEAD)
    Run(cluster, file).serve()
    cluster.actors.clear()
    cluster.loses("box")
    after = Run(cluster, file)
    assert after.check(2).reason == "the head has restarted"
    cluster.devices.append(BOX)
    assert after.check().devices == ("box/cuda:0",)


def test_a_failed_load_gives_its_device_back_and_says_what_is_broken() -> None:
    run = Run(Cluster(BOX))
    run.load()
    run.cluster.broken = "build is broken: llama.cpp here is built for the CPU alone"
    run.cluster.says(Status("failed", "CUDA is not available"))
    run.check()
    until(lambda: "build is broken" in run.registry.instances()[0].reason)
    (failed,) = run.registry.instances()
    assert failed.state == "failed"
    assert failed.reason.startswith("CUDA is not available; on box, build is broken")
    assert run.cluster.ending == [failed.actor]
    assert run.registry.used() == {}


def test_a_named_servers_failure_is_not_paddocks_build() -> None:
    run = Run(Cluster(BOX))
    run.cluster.broken = "build is broken: llama.cpp here is built for the CPU alone"
    run.load(Policy(server="/opt/llama-server"))
    run.cluster.says(Status("failed", "CUDA error: out of memory"))
    failed = run.check()
    run._reconciler._diagnose(failed)
    assert run.registry.instances()[0].reason == "CUDA error: out of memory"


def test_a_replica_whose_process_does_not_begin_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.serve.deployment.instances.instance._START_S", -1.0)
    run = Run(Cluster(BOX))
    run.load()
    failed = run.check()
    assert failed.state == "failed"
    assert failed.reason.startswith("its replica's process has not started within")


def test_a_model_leaves_a_device_that_has_failed() -> None:
    run = Run(Cluster(BOX, HEAD))
    run.serve()
    run.cluster.devices[0] = replace(BOX, unavailable="Xid 79: off the bus")
    assert run.check().state == "serving", "its replica still answers"
    run.cluster.says(Status("loading", "llama.cpp has ended: CUDA error"))
    left = run.check()
    assert (left.state, left.reason) == ("lost", "box/cuda:0: Xid 79: off the bus")
    assert run.check().devices == ("head/cpu:0",)


def test_a_model_that_served_is_placed_once_more_when_it_fails() -> None:
    run = Run(Cluster(BOX))
    run.serve()
    run.cluster.says(Status("failed", "no lease of the GPU"))
    assert [run.check().state for _ in range(2)] == ["lost", "loading"]
    run.cluster.says(Status("failed", "no lease of the GPU"))
    assert run.check().state == "failed"


def test_an_unloaded_model_is_listed_until_its_replica_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.serve.deployment.scheduler._WATCH_S", 0.02)
    cluster = Cluster(BOX)
    scheduler = Scheduler(None, cluster, cluster)  # type: ignore[arg-type]
    assert scheduler.load(TINY, Policy(), "tiny").row is not None
    cluster.says(SERVING)
    until(lambda: scheduler.models()[0]["state"] == "serving")
    assert scheduler.unload("absent") is None
    unloaded = scheduler.unload("tiny")
    assert unloaded is not None
    assert unloaded["state"] == "unloading"
    assert scheduler.load(TINY, Policy(), "tiny").row is None, "its device is not free"
    assert cluster.ending == cluster.started
    cluster.actors.clear()
    until(lambda: scheduler.models() == [])
    assert scheduler.load(TINY, Policy(), "tiny").row is not None


def test_a_model_that_cannot_be_started_is_not_declared() -> None:
    cluster = Cluster(BOX)
    scheduler = Scheduler(None, cluster, cluster)  # type: ignore[arg-type]
    cluster.refuses = "Ray has gone"
    with pytest.raises(ServeError, match="tiny cannot be deployed: Ray has gone"):
        scheduler.load(TINY, Policy(), "tiny")
    assert scheduler.models() == []


def test_agents_that_do_not_answer_are_named() -> None:
    cluster = Cluster(BOX, HEAD)
    cluster.problems["box"] = "no answer within 30 s"
    scheduler = Scheduler(None, cluster, cluster)  # type: ignore[arg-type]
    answer = scheduler.plan(TINY, Policy())
    assert answer.unanswered == ("box: no answer within 30 s",)
    assert isinstance(answer.result, ModelPlacement)
    assert answer.result.backend == "cpu"


def test_a_replica_that_starts_after_its_unload_ends() -> None:
    run = Run(Cluster(BOX))
    run.load()
    instance = run.registry.instances()[0]
    run.registry.change(instance, replace(instance, state="unloading"))
    assert run.check().state == "unloading"
    assert run.cluster.ending == run.cluster.started
    run.cluster.actors.clear()
    run._reconciler.check()
    assert run.registry.instances() == []


@pytest.mark.parametrize("state", ["lost", "failed", "pending"])
def test_only_devices_that_are_in_use_serve_a_model(state: str) -> None:
    cluster = Cluster(BOX)
    run = Run(cluster)
    instance = run.serve()
    run.registry.change(instance, replace(instance, state=state))  # type: ignore[arg-type]
    assert run.registry.used() == {}


def test_instances_are_saved_with_their_plans(tmp_path: Path) -> None:
    file = tmp_path / FILE
    plan = place(TINY, [BOX, HEAD], Policy("cuda", across_agents=True, share=0.5))
    assert isinstance(plan, ModelPlacement)
    instance = placed(declared("tiny", TINY, plan.policy, "/m.gguf", 60, plan, 1.0), plan, 2.0)
    write(file, [instance])
    assert read(file) == (instance,)
    file.write_text('{"schema": 3, "models": [{}]}')
    assert read(file) == ()
    file.write_text('{"schema": 1, "models": []}')
    assert read(file) == ()
    assert read(tmp_path / "absent") == ()


def test_every_row_has_the_same_keys() -> None:
    run = Run(Cluster(BOX))
    run.load()
    (row,) = run.registry.rows()
    assert row["class"] == "HomogeneousCuda"
    assert set(row) == set(InstanceRow("a", "b", "serving", None, None, None, None, None, 1, 0.0).document())


def test_a_serving_instance_stays_as_it_is() -> None:
    run = Run(Cluster(BOX))
    serving = run.serve()
    assert observed(serving, SERVING, "", time.time()) == serving
