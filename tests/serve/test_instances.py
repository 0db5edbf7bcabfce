"""Life of an instance: how agents and applications change it, and what a new scheduler makes of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.models.presets import preset
from paddock.serve.agents.members import Agent
from paddock.serve.deployment.bounded import Bounded
from paddock.serve.deployment.instances import applications, saved
from paddock.serve.deployment.instances.applications import most_ongoing, reason
from paddock.serve.deployment.instances.instance import Application, Instance, declared, observed, placed
from paddock.serve.deployment.instances.reconcile import Reconciler
from paddock.serve.deployment.instances.registry import Registry
from paddock.serve.deployment.row import InstanceRow
from paddock.serve.deployment.scheduler import Scheduler
from paddock.serve.errors import ServeError
from paddock.serve.placement.device import Backend, Device
from paddock.serve.placement.place import place
from paddock.serve.placement.plan import Plan
from paddock.serve.placement.request import Policy, Request
from tests.support.waiting import until

TINY = Request(preset("tiny"), "fp32", 256)
SERVE_SAYS = """The deployment failed to start 3 times in a row. This may be due to a problem with its constructor.
See controller logs for details. Error:
ray::ServeReplica:model-tiny:replica.initialize_and_get_metadata() (pid=1, ip=192.0.2.2)
  File "replica.py", line 40, in __init__
    self._info = engine.load(spec)
{}"""


def device(agent: str, backend: Backend, index: int = 0, mib: int = 4096) -> Device:
    return Device(agent, backend, index, mib, mib, f"{agent} {backend}")


BOX, HEAD = device("box", "cuda"), device("head", "cpu")


class Cluster:
    """Stand-in for Ray: agents, and the applications of Ray Serve, which change as a test says."""

    def __init__(self, *devices: Device) -> None:
        self.devices = list(devices)
        self.applications: dict[str, Application] = {}
        self.problems: dict[str, str] = {}
        self.asked = 0
        self.deployed: list[str] = []
        self.refuses = ""
        self.broken = ""

    # As Members.

    def alive(self) -> frozenset[str]:
        return frozenset(device.agent for device in self.devices)

    def agents(self) -> tuple[Agent, ...]:
        self.asked += 1
        return tuple(
            Agent(name, "cpu", name, True, () if name in self.problems else self._of(name), self.problems.get(name, ""))
            for name in sorted(self.alive())
        )

    def _of(self, name: str) -> tuple[Device, ...]:
        return tuple(device for device in self.devices if device.agent == name)

    def diagnosis(self, agent: str, backend: Backend) -> str:
        return self.broken

    # As Applications.

    def all(self) -> dict[str, Application]:
        if self.refuses:
            raise ServeError(self.refuses)
        return dict(self.applications)

    def deploy(self, instance: Instance, plan: Plan) -> None:
        if self.refuses:
            raise ServeError(self.refuses)
        self.deployed.append(instance.application)
        self.applications[instance.application] = Application("DEPLOYING")

    def delete(self, name: str) -> None:
        if name in self.applications:
            self.applications[name] = Application("DELETING")

    def end_requests(self, name: str) -> None: ...

    # What happens on it.

    def runs(self, name: str = "model-tiny") -> None:
        self.applications[name] = Application("RUNNING")

    def fails(self, why: str, name: str = "model-tiny") -> None:
        self.applications[name] = Application("DEPLOY_FAILED", why)

    def has_ended(self, name: str = "model-tiny") -> None:
        del self.applications[name]

    def loses(self, agent: str) -> None:
        self.devices = [device for device in self.devices if device.agent != agent]


class Run:
    """A registry and its reconciler on such a cluster, whose checks a test makes."""

    def __init__(self, cluster: Cluster, file: Path | None = None) -> None:
        self.cluster, self.registry = cluster, Registry(file)
        self._reconciler = Reconciler(self.registry, cluster, cluster)  # type: ignore[arg-type]

    def load(self, policy: Policy | None = None, seconds: float = 600) -> None:
        policy = policy or Policy()
        result = place(TINY, self.registry.free(self.cluster.agents()), policy)
        instance = declared(self.registry.new_id("tiny"), TINY, policy, "", seconds, result, time.time())
        self.registry.add(instance)
        if isinstance(result, Plan):
            self.cluster.deploy(instance, result)

    def check(self, count: int = 1) -> Instance:
        for _ in range(count):
            self._reconciler.check()
        return self.registry.instances()[0]

    def serve(self, policy: Policy | None = None) -> Instance:
        self.load(policy)
        self.cluster.runs()
        return self.check()


def test_a_model_is_placed_anew_only_when_its_replica_has_ended() -> None:
    run = Run(Cluster(BOX, HEAD))
    assert run.serve().devices == ("box/cuda:0",)
    run.cluster.loses("box")
    lost = run.check()
    assert (lost.state, lost.reason) == ("lost", "agent box has gone")
    assert run.check(3).state == "lost", "its application has not ended"
    run.cluster.has_ended()
    moved = run.check()
    assert (moved.state, moved.devices, moved.moves) == ("loading", ("head/cpu:0",), 1)
    run.cluster.runs()
    serving = run.check()
    assert (serving.state, serving.failures) == ("serving", 0)
    assert serving.recovered_seconds is not None
    assert "it ran on cuda before" in serving.reason


def test_a_backend_that_the_user_names_is_kept_after_a_loss() -> None:
    run = Run(Cluster(BOX, HEAD))
    run.serve(Policy("cuda"))
    run.cluster.loses("box")
    run.check()
    run.cluster.has_ended()
    lost = run.check(2)
    assert lost.state == "lost"
    assert lost.reason == "agent box has gone; no cuda device is available: there is 1 cpu"
    run.cluster.devices.append(replace(BOX, agent="other"))
    assert run.check().devices == ("other/cuda:0",)


def test_the_reason_says_what_the_devices_lack() -> None:
    run = Run(Cluster(device("head", "cpu", mib=8)))
    run.load()
    assert "head/cpu:0 lacks " in run.check().reason
    run.cluster.devices = [replace(HEAD, unavailable="torch is broken")]
    run._reconciler._asked.clear()
    assert run.check().reason.endswith("head/cpu:0: torch is broken")


def test_a_scheduler_that_starts_anew_adopts_what_runs_and_ends_the_rest(tmp_path: Path) -> None:
    file, cluster = tmp_path / saved.FILE, Cluster(BOX, HEAD)
    before = Run(cluster, file).serve()
    cluster.runs("model-orphan")
    after = Run(cluster, file)
    (again,) = after.registry.instances()
    assert (again.state, again.plan) == ("lost", before.plan)
    assert after.check().state == "loading"
    serving = after.check()
    assert (serving.state, serving.devices, serving.moves) == ("serving", before.devices, 0)
    assert cluster.deployed == ["model-tiny"]
    assert cluster.applications["model-orphan"].status == "DELETING"


def test_a_new_head_waits_for_the_former_agents(tmp_path: Path) -> None:
    file, cluster = tmp_path / saved.FILE, Cluster(BOX, HEAD)
    Run(cluster, file).serve()
    cluster.applications.clear()
    cluster.loses("box")
    after = Run(cluster, file)
    assert after.check(2).reason == "the head has started anew"
    cluster.devices.append(BOX)
    assert after.check().devices == ("box/cuda:0",)


def test_a_failed_load_gives_its_device_back_and_says_what_is_broken() -> None:
    run = Run(Cluster(BOX))
    run.load()
    run.cluster.broken = "build is broken: torch is for the processor alone"
    run.cluster.fails("CUDA is not available")
    run.check()
    until(lambda: "build is broken" in run.registry.instances()[0].reason)
    (failed,) = run.registry.instances()
    assert failed.state == "failed"
    assert failed.reason.startswith("CUDA is not available; on box, build is broken")
    assert run.cluster.applications["model-tiny"].status == "DELETING"
    assert run.registry.used() == {}


def test_a_load_beyond_its_deadline_fails_and_ends() -> None:
    run = Run(Cluster(BOX))
    run.load(seconds=0.01)
    time.sleep(0.02)
    failed = run.check()
    assert (failed.state, failed.reason) == ("failed", "it was not loaded within 0.01 s: ")
    assert run.cluster.applications["model-tiny"].status == "DELETING"


def test_a_model_leaves_a_device_that_has_failed() -> None:
    run = Run(Cluster(BOX, HEAD))
    run.serve()
    run.cluster.devices[0] = replace(BOX, unavailable="Xid 79: off the bus")
    assert run.check().state == "serving", "its replica still answers"
    run.cluster.applications["model-tiny"] = Application("UNHEALTHY", "the last 3 requests failed in the engine")
    left = run.check()
    assert (left.state, left.reason) == ("lost", "box/cuda:0: Xid 79: off the bus")
    run.cluster.has_ended()
    assert run.check().devices == ("head/cpu:0",)


def test_a_model_that_served_is_placed_once_more_when_it_fails() -> None:
    run = Run(Cluster(BOX))
    run.serve()
    run.cluster.fails("no lease of the GPU")
    assert [run.check().state for _ in range(2)] == ["loading", "lost"]
    run.cluster.has_ended()
    assert run.check().state == "loading"
    run.cluster.fails("no lease of the GPU")
    assert run.check().state == "failed"


def test_an_unloaded_model_is_listed_until_its_replica_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.serve.deployment.scheduler._WATCH_S", 0.02)
    cluster = Cluster(BOX)
    scheduler = Scheduler(4, None, cluster, cluster)  # type: ignore[arg-type]
    assert scheduler.load(TINY, Policy(), "").row is not None
    cluster.runs()
    until(lambda: scheduler.models()[0]["state"] == "serving")
    assert scheduler.unload("absent") is None
    unloaded = scheduler.unload("tiny")
    assert unloaded is not None
    assert unloaded["state"] == "unloading"
    until(lambda: cluster.applications["model-tiny"].status == "DELETING")
    assert scheduler.load(TINY, Policy(), "").row is None, "its device is not free"
    cluster.has_ended()
    until(lambda: scheduler.models() == [])
    assert scheduler.load(TINY, Policy(), "").row is not None


def test_a_model_that_cannot_be_deployed_is_not_declared() -> None:
    cluster = Cluster(BOX)
    scheduler = Scheduler(4, None, cluster, cluster)  # type: ignore[arg-type]
    cluster.refuses = "Ray Serve's controller does not answer within 30 s"
    with pytest.raises(ServeError, match="tiny cannot be deployed: Ray Serve's controller does not answer"):
        scheduler.load(TINY, Policy(), "")
    assert scheduler.models() == []


def test_agents_that_do_not_answer_are_named() -> None:
    cluster = Cluster(BOX, HEAD)
    cluster.problems["box"] = "no answer within 30 s"
    scheduler = Scheduler(4, None, cluster, cluster)  # type: ignore[arg-type]
    answer = scheduler.plan(TINY, Policy())
    assert answer.unanswered == ("box: no answer within 30 s",)
    assert isinstance(answer.result, Plan)
    assert answer.result.backend == "cpu"


@pytest.mark.parametrize("state", ["lost", "failed", "pending"])
def test_only_devices_that_are_in_use_serve_a_model(state: str) -> None:
    cluster = Cluster(BOX)
    run = Run(cluster)
    instance = run.serve()
    run.registry.change(instance, replace(instance, state=state))  # type: ignore[arg-type]
    assert run.registry.used() == {}


def test_instances_are_saved_with_their_plans(tmp_path: Path) -> None:
    file = tmp_path / saved.FILE
    plan = place(replace(TINY, dtype="int8"), [BOX, HEAD], Policy("cuda", across_agents=True, share=0.5))
    assert isinstance(plan, Plan)
    instance = placed(declared("tiny", TINY, plan.policy, "/m.gguf", 60, plan, 1.0), plan, 2.0)
    saved.write(file, [instance])
    assert saved.read(file) == (instance,)
    file.write_text('{"schema": 2, "models": [{}]}')
    assert saved.read(file) == ()
    file.write_text('{"schema": 1, "models": []}')
    assert saved.read(file) == ()
    assert saved.read(tmp_path / "absent") == ()


def test_every_row_has_the_same_keys() -> None:
    run = Run(Cluster(BOX))
    run.load()
    (row,) = run.registry.rows()
    assert row["class"] == "HomogeneousCuda"
    assert set(row) == set(InstanceRow("a", "b", "serving", None, None, None, None, None, 1, 0.0).document())


def test_a_replica_takes_its_queue_and_its_statistics() -> None:
    assert [most_ongoing(4, queue) for queue in (0, 1, 64)] == [5, 6, 69]


def test_a_call_that_hangs_keeps_nobody_waiting_beyond_its_limit() -> None:
    released = threading.Event()
    bounded = Bounded("Ray Serve's controller", 0.2)
    works: list[Callable[[], bool]] = [released.wait, lambda: True]
    for work in works:
        with pytest.raises(ServeError, match=r"Ray Serve's controller does not answer within 0\.2 s"):
            bounded(work)
    released.set()
    until(lambda: bounded._turn.acquire(blocking=False))


def test_a_call_with_a_limit_gives_the_result_or_the_error_of_its_work() -> None:
    bounded = Bounded("Ray Serve's controller", 60)
    assert bounded(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        bounded(lambda: 1 / 0)


def test_an_application_is_built_after_the_call_before_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray Serve marks modules of this process while it writes a class down; what is built then finds the mark gone."""
    release, started, built = threading.Event(), threading.Event(), threading.Event()

    def other_call() -> dict[str, Application]:
        started.set()
        release.wait(60)
        return {}

    monkeypatch.setattr(applications, "_applications", other_call)
    monkeypatch.setattr(applications, "_application", lambda *_: built.set())
    monkeypatch.setattr(applications, "_run", lambda *_: None)
    serve, plan = applications.Applications(queue=1), place(TINY, [BOX])
    assert isinstance(plan, Plan)
    instance = declared("tiny", TINY, Policy(), "", 60.0, plan, time.time())
    threads = [threading.Thread(target=serve.all), threading.Thread(target=serve.deploy, args=(instance, plan))]
    threads[0].start()
    assert started.wait(60)
    threads[1].start()
    early = built.wait(0.3)
    release.set()
    for thread in threads:
        thread.join(60)
    assert (early, built.is_set()) == (False, True)


def test_a_serving_instance_stays_as_it_is() -> None:
    run = Run(Cluster(BOX))
    serving = run.serve()
    assert observed(serving, Application("RUNNING"), time.time()) is serving


def test_the_reason_of_a_failed_replica_is_its_error_without_traceback() -> None:
    full = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert reason([SERVE_SAYS.format(full)]) == full
    ours = "ServeInputError: --model: cannot read /m\n    expected: a folder\n    fix: fetch it again"
    assert reason([SERVE_SAYS.format(ours)]) == (
        "ServeInputError: --model: cannot read /m; expected: a folder; fix: fetch it again"
    )
    assert reason(["", ""]) == "Ray Serve does not say why"
