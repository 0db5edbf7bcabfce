"""Verification with stand-ins for the cluster's Jobs: what fails is said, and everything is taken away."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from invoke.parser import Parser, ParserContext

from paddock.fleet import Stack, load
from paddock.operate.sources.github import Answer, GitHubReader
from paddock.operate.sources.unavailable import Unavailable
from paddock.operate.verify.canary import Canary
from paddock.operate.verify.phases import budgets, phases
from paddock.operate.verify.report import Report, junit
from paddock.operate.verify.run import Verification
from paddock.operate.verify.workloads import NVIDIA_SMI, gpu_job
from paddock.tasks.machine.smoke import smoke
from paddock.terminal import BadFlag
from tests.support.chain_world import NODE, World

AT = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
Object = dict[str, Any]


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(Path(__file__).parents[2], "dev")


@pytest.fixture
def world(stack: Stack) -> World:
    return World(stack, AT)


class StandInForJobs:
    """Jobs whose pods end at once in a phase, or stay where `finish` is empty."""

    def __init__(self, finish: str = "Succeeded", log: str = "GPU 0: Tesla T4", sticky: bool = False) -> None:
        self.finish, self.text, self.sticky = finish, log, sticky
        self.created: list[Object] = []
        self.closed = False

    def create(self, job: Any) -> None:
        self.created.append(dict(job))

    def job(self, name: str) -> Object:
        return next(job for job in self.created if job["metadata"]["name"] == name)

    def pods(self) -> list[Object]:
        return [self._pod(job) for job in self.created]

    def _pod(self, job: Object) -> Object:
        name = job["metadata"]["name"]
        meta = {"name": f"{name}-x", "namespace": "arc-runners", "creationTimestamp": "2026-11-24T11:59:00Z"}
        meta["ownerReferences"] = [{"kind": "Job", "name": name}]  # type: ignore[assignment]
        spec = {**job["spec"]["template"]["spec"], "nodeName": NODE}
        return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": self.finish or "Running"}}

    def events(self, pod: str) -> list[Object]:
        return []

    def log(self, pod: str) -> str:
        return self.text

    def remove(self) -> None:
        if not self.sticky:
            self.created.clear()

    def left(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.created]

    def close(self) -> None:
        self.closed = True


def verify(world: World, jobs: StandInForJobs, **more: Any) -> Report:
    fleet, snapshot = world.fleet, world.snapshot
    return Verification(fleet, "dev", "lab", snapshot, lambda namespace, label: jobs, poll=0.01, **more).verify()


def states(report: Report) -> list[str]:
    return [step.state for step in report.steps]


def test_a_fleet_at_work_passes(world: World) -> None:
    jobs = StandInForJobs()
    report = verify(world, jobs)
    assert states(report) == ["pass", "pass", "pass", "skip"], report
    assert "Tesla T4" in report.steps[1].message
    assert (report.failed, report.left_behind, jobs.closed) == (False, (), True)


def test_a_failed_pod_says_its_log_and_ends_the_tests(world: World) -> None:
    report = verify(world, StandInForJobs("Failed", "nvidia-smi: \x1b[31mno devices"))
    assert states(report) == ["pass", "fail", "skip", "skip"]
    assert "no devices" in report.steps[1].message
    suite = ElementTree.fromstring(junit(report))
    assert (suite.get("failures"), suite.get("skipped")) == ("1", "2")


def test_a_node_without_gpus_fails_with_its_link(world: World) -> None:
    for part in ("allocatable", "capacity"):
        del world.get("Node", NODE)["status"][part]["nvidia.com/gpu"]
    report = verify(world, StandInForJobs())
    assert report.steps[0].state == "fail"
    assert "no usable GPU" in report.steps[0].message


def test_an_interrupt_takes_everything_away(world: World) -> None:
    jobs, count = StandInForJobs(finish=""), 0

    def read() -> Any:
        nonlocal count
        count += 1
        if count == 3:
            assert jobs.created
            raise KeyboardInterrupt
        return world.snapshot()

    report = Verification(world.fleet, "dev", "lab", read, lambda n, label: jobs, poll=0.001).verify()
    assert (report.interrupted, report.failed, jobs.created) == (True, True, [])


def test_what_stays_behind_fails(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.operate.verify.run._CLEANING_SECONDS", 0.01)
    report = verify(world, StandInForJobs(sticky=True))
    assert len(report.left_behind) == 2
    assert report.failed


def test_a_test_pod_is_placed_and_secured_as_a_job(world: World) -> None:
    job = gpu_job(world.fleet, world.fleet.runners["gpu"], world.get("AutoscalingRunnerSet"), "t", "r", NVIDIA_SMI, 60)
    spec, own = job["spec"]["template"]["spec"], world.pod["spec"]
    for key in ("nodeSelector", "tolerations", "securityContext"):
        assert spec[key] == own[key]
    assert spec["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert spec["containers"][0]["securityContext"] == own["containers"][0]["securityContext"]


def test_torch_is_tested_with_the_python_of_jobs_and_has_to_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.operate.verify.run._CLEANING_SECONDS", 0.01)
    jobs = StandInForJobs(sticky=True)
    verify(world, jobs)
    program, task, *flags = jobs.created[1]["spec"]["template"]["spec"]["containers"][0]["command"]
    assert (program, task) == ("paddock", "smoke")
    (parsed,) = Parser([ParserContext("smoke", args=smoke.get_arguments())]).parse_argv(["smoke", *flags])
    given = {flag.name: flag.value for flag in parsed.args.values() if flag.got_value}
    assert given == {"tier": 2, "python": "python3", "must_run": True, "expect": "1"}


@pytest.mark.parametrize(("gpus", "memory"), [(1, "6Gi"), (8, "34Gi")])
def test_a_test_pod_has_memory_for_each_gpu(world: World, gpus: int, memory: str) -> None:
    runner = world.fleet.runners["gpu"].model_copy(update={"gpus": gpus})
    job = gpu_job(world.fleet, runner, world.get("AutoscalingRunnerSet"), "t", "r", NVIDIA_SMI, 60)
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == (memory, memory)


def test_a_part_over_its_budget_is_exceeded(world: World) -> None:
    def at(seconds: float) -> str:
        return (AT + timedelta(seconds=seconds)).isoformat()

    pod = {
        "metadata": {"creationTimestamp": at(0)},
        "status": {
            "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(800)}],
            "containerStatuses": [{"name": "test", "state": {"running": {"startedAt": at(805)}}}],
        },
    }
    ready = [{"type": "Ready", "status": "True", "lastTransitionTime": at(700)}]
    node = {"metadata": {"creationTimestamp": at(70)}, "status": {"conditions": ready}}
    events = [{"reason": "TriggeredScaleUp", "metadata": {}, "lastTimestamp": at(5)}]
    limits = budgets(world.fleet, world.fleet.pools["t4"])
    parts = {part.name: part for part in phases(pod, node, events, AT + timedelta(seconds=790), limits)}
    seconds = {name: part.seconds for name, part in parts.items()}
    assert seconds == {
        "node claimed": 5,
        "instance running": 65,
        "kubelet ready": 630,
        "GPU allocatable": 90,
        "scheduled": 10,
        "image pulled": None,
        "first step": 5,
    }
    assert [name for name, part in parts.items() if part.exceeded] == ["kubelet ready"]


class StandInForGitHub(GitHubReader):
    """GitHub that starts a run and ends it."""

    def __init__(self, conclusion: str) -> None:
        super().__init__("https://github.invalid", "none")
        self.conclusion, self.dispatched = conclusion, False

    def ask(self, method: str, path: str, body: Object | None = None) -> Answer:
        now = datetime.now(UTC).isoformat()
        if method == "POST":
            self.dispatched = True
            return Answer(None)
        if "/jobs" in path:
            steps = [{"started_at": now}]
            return Answer({"jobs": [{"created_at": now, "started_at": now, "steps": steps}]})
        if "/workflows/" in path:
            return Answer({"workflow_runs": [{"id": 5, "created_at": now}] if self.dispatched else []})
        return Answer({"id": 5, "status": "completed", "conclusion": self.conclusion, "html_url": "https://run"})


@pytest.mark.parametrize(("conclusion", "state"), [("success", "pass"), ("failure", "fail")])
def test_the_canary_ends_as_its_run_does(world: World, conclusion: str, state: str) -> None:
    canary = Canary.parse("acme/app/gpu.yml@main", StandInForGitHub(conclusion))
    report = verify(world, StandInForJobs(), canary=canary)
    assert states(report)[-1] == state
    assert [part.name for part in report.steps[-1].phases] == ["assigned and online", "first step"]


def test_a_canary_without_the_right_says_so(world: World) -> None:
    class Denied(StandInForGitHub):
        def ask(self, method: str, path: str, body: Object | None = None) -> Answer:
            raise Unavailable("GitHub answers 403 to POST")

    report = verify(world, StandInForJobs(), canary=Canary.parse("acme/app/gpu.yml", Denied("")))
    assert "Actions: write" in report.steps[-1].fix


def test_a_bad_canary_is_refused() -> None:
    with pytest.raises(BadFlag, match=r"--canary gpu\.yml names no workflow"):
        Canary.parse("gpu.yml", StandInForGitHub(""))
