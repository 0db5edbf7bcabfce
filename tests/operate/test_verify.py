"""Verification with stand-ins for the cluster's Jobs: what fails is said, and everything is taken away."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.console import parser
from paddock.console.output import BadFlag
from paddock.operate.snapshot.model import Reading
from paddock.operate.sources.github import Answer, GitHubReader
from paddock.operate.sources.unavailable import Unavailable
from paddock.operate.verify.canary import Canary
from paddock.operate.verify.command import Verify
from paddock.operate.verify.command import verify as verify_command
from paddock.operate.verify.phases import ColdStart, budgets, phases
from paddock.operate.verify.report import Verified, junit
from paddock.operate.verify.run import Verification
from paddock.operate.verify.workloads import NVIDIA_SMI, gpu_job
from paddock.tasks.program import contents
from tests.operate.conftest import AT
from tests.support.chain_objects import NODE, POD
from tests.support.chain_world import World, variant

Object = dict[str, Any]


class StandInForJobs:
    """Jobs whose pods end at once in a phase, or stay where `finish` is empty."""

    def __init__(self, finish: str = "Succeeded", log: str = "GPU 0: Tesla T4", sticky: bool = False) -> None:
        self.finish, self.text, self.sticky = finish, log, sticky
        self.created: list[Object] = []
        self.refusals: list[Object] = []
        """Events of Jobs that get no pod."""
        self.failed = ""
        self.closed = False

    def create(self, job: Any) -> None:
        self.created.append(dict(job))

    def job(self, name: str) -> Object:
        job = next(job for job in self.created if job["metadata"]["name"] == name)
        failed = [{"type": "Failed", "status": "True", "message": self.failed}] if self.failed else []
        return {**job, "status": {"conditions": failed}}

    def pods(self) -> list[Object]:
        return [] if self.refusals or self.failed else [self._pod(job) for job in self.created]

    def _pod(self, job: Object) -> Object:
        name = job["metadata"]["name"]
        meta = {"name": f"{name}-x", "namespace": "arc-runners", "creationTimestamp": "2026-11-24T11:59:00Z"}
        meta["ownerReferences"] = [{"kind": "Job", "name": name}]  # type: ignore[assignment]
        spec = {**job["spec"]["template"]["spec"], "nodeName": NODE}
        return {"kind": "Pod", "metadata": meta, "spec": spec, "status": {"phase": self.finish or "Running"}}

    def events(self, name: str, kind: str = "Pod") -> list[Object]:
        return self.refusals if kind == "Job" else []

    def log(self, pod: str) -> str:
        return self.text

    def remove(self) -> None:
        if not self.sticky:
            self.created.clear()

    def left(self) -> list[str]:
        return [job["metadata"]["name"] for job in self.created]

    def close(self) -> None:
        self.closed = True


def verify(world: World, jobs: StandInForJobs, **more: Any) -> Verified:
    fleet, snapshot = world.fleet, world.snapshot
    return Verification(fleet, "dev", "lab", snapshot, lambda namespace, label: jobs, poll=0.01, **more).verify()


def states(report: Verified) -> list[str]:
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


def test_a_node_with_fewer_gpus_than_its_type_fails() -> None:
    world = World(variant("four-gpus"), AT)
    for part in ("allocatable", "capacity"):
        world.get("Node", NODE)["status"][part]["nvidia.com/gpu"] = "3"
    report = verify(world, StandInForJobs())
    assert report.steps[0].state == "fail"
    assert "offers 3 of 4 GPUs" in report.steps[0].message


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


@pytest.mark.parametrize(
    ("refusal", "failed", "said"),
    [
        ('pods "x" is forbidden: violates PodSecurity "restricted"', "", "makes no pod: pods"),
        ("", "Job was active longer than specified deadline", "makes no pod: Job was active longer"),
        ("exceeded quota: pools, requested: 1", "", "makes no pod after 0 s: exceeded quota"),
    ],
)
def test_a_job_without_a_pod_says_why(world: World, refusal: str, failed: str, said: str) -> None:
    jobs = StandInForJobs()
    jobs.refusals = [{"reason": "FailedCreate", "message": refusal}] if refusal else []
    jobs.failed = failed
    patience = 0.05 if "quota" in refusal else 60.0
    report = verify(world, jobs, patience=patience)
    assert said in report.steps[1].message


def test_junit_says_interrupted_and_left_behind(world: World) -> None:
    report = replace(verify(world, StandInForJobs()), interrupted=True, left_behind=("Job x",))
    suite = ElementTree.fromstring(junit(report))
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("6", "0", "2")
    assert [error.get("message") for error in suite.iter("error")] == [
        "interrupted before the end",
        "left behind: Job x",
    ]


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
    found = contents().find("smoke")
    assert found is not None
    given = parser.parse("smoke", found[0].load(), flags).values()
    assert {name: str(value) for name, value in given.items()} == {
        "tier": "2", "python": "python3", "must_run": "True", "expect": "1",
    }  # fmt: skip


@pytest.mark.parametrize(("gpus", "memory"), [(1, "6Gi"), (8, "34Gi")])
def test_a_test_pod_has_memory_for_each_gpu(world: World, gpus: int, memory: str) -> None:
    runner = world.fleet.runners["gpu"].model_copy(update={"gpus": gpus})
    job = gpu_job(world.fleet, runner, world.get("AutoscalingRunnerSet"), "t", "r", NVIDIA_SMI, 60)
    resources = job["spec"]["template"]["spec"]["containers"][0]["resources"]
    assert (resources["requests"]["memory"], resources["limits"]["memory"]) == (memory, memory)


def test_a_part_over_its_budget_is_exceeded(world: World) -> None:
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
    parts = {part.name: part for part in phases(ColdStart(pod, node, events), limits)}
    seconds = {name: part.seconds for name, part in parts.items()}
    assert seconds == {
        "node claimed": 5,
        "instance running": None,
        "kubelet ready": 695,
        "GPU allocatable": 100,
        "scheduled": None,
        "image pulled": None,
        "first step": 5,
    }
    assert [name for name, part in parts.items() if part.exceeded] == ["kubelet ready"]
    assert parts["kubelet ready"].budget_seconds == 360, "with that of the instance, which nothing recorded"


class StandInForGitHub(GitHubReader):
    """GitHub that starts a run on a runner, and ends it after `turns` readings."""

    def __init__(self, conclusion: str = "success", *, runner: str = POD, turns: int = 2, appears: int = 1) -> None:
        super().__init__("https://github.invalid", "none")
        self.conclusion, self.runner, self.turns, self.appears = conclusion, runner, turns, appears
        self.dispatched = self.cancelled = self.refuses = False
        self.asked: list[str] = []

    def ask(self, method: str, path: str, body: Object | None = None) -> Answer:
        self.asked.append(f"{method} {path}")
        if method == "POST":
            self.dispatched = self.dispatched or path.endswith("/dispatches")
            self.cancelled = self.cancelled or path.endswith("/cancel")
            return Answer(None)
        if "/runner-groups" in path:
            there = {"id": 1, "name": "default", "visibility": "all"}
            return Answer({"runner_groups": [] if self.refuses and "visible_to" in path else [there]})
        if path.count("/") == 3 and path.startswith("/repos/"):
            owner = {"login": "acme", "id": 1}
            return Answer({"id": 2, "name": "app", "owner": owner, "created_at": at(0), "visibility": "private"})
        if "/jobs" in path:
            return Answer({"jobs": [self.job()]})
        if "/workflows/" in path:
            self.appears -= self.dispatched
            shown = self.dispatched and self.appears < 1
            return Answer({"workflow_runs": [{"id": 5, "created_at": datetime.now(UTC).isoformat()}] if shown else []})
        self.turns -= 1
        status = "completed" if self.turns < 1 or self.cancelled else "in_progress"
        conclusion, created = self.conclusion if status == "completed" else None, at(-5)
        address = "https://run"
        return Answer({"id": 5, "status": status, "conclusion": conclusion, "html_url": address, "created_at": created})

    def job(self) -> Object:
        done = self.turns < 1
        return {
            "id": 9,
            "name": "canary",
            "status": "completed" if done else "in_progress",
            "conclusion": self.conclusion if done else None,
            "runner_name": self.runner,
            "created_at": at(-3),
            "started_at": at(840),
            "steps": [{"name": "Set up job", "started_at": at(841)}],
        }


def at(seconds: float) -> str:
    return (AT + timedelta(seconds=seconds)).isoformat()


def cold(world: World) -> World:
    """Return a world in which a node came for the runner's pod, part by part."""
    runner, pod, node = world.get("EphemeralRunner"), world.pod, world.get("Node", NODE)
    runner["metadata"]["creationTimestamp"], pod["metadata"]["creationTimestamp"] = at(2), at(4)
    node["metadata"]["creationTimestamp"] = at(100)
    node["spec"]["providerID"] = "aws:///us-west-2a/i-0123456789abcdef0"
    node["status"]["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": at(130)}]
    pod["status"]["conditions"] = [{"type": "PodScheduled", "status": "True", "lastTransitionTime": at(200)}]
    world.event("Pod", POD, "TriggeredScaleUp", "pod triggered scale-up")
    world.event("Pod", POD, "Pulled", "pulled")
    for event in world.objects:
        if event["kind"] == "Event":
            event["lastTimestamp"] = at(20) if event["reason"] == "TriggeredScaleUp" else at(800)
    return world


LAUNCHED = {"Description": "Launching a new EC2 instance: i-0123456789abcdef0", "EndTime": at(60)}


def test_the_canary_records_every_part_of_a_cold_start(world: World) -> None:
    snapshot = replace(cold(world).snapshot(), activities=Reading((LAUNCHED,)))
    canary = Canary.parse("acme/app/gpu.yml@main", StandInForGitHub())
    step = canary.run("canary workflow", world.fleet, lambda: snapshot, 60, 0.001)
    assert (step.state, step.message) == ("pass", f"run 5 of acme/app/gpu.yml@main: success on {POD}")
    assert {part.name: part.seconds for part in step.phases} == {
        "queued": 2,
        "assigned": 5,
        "pod": 2,
        "node claimed": 16,
        "instance running": 40,
        "kubelet ready": 70,
        "GPU allocatable": 70,
        "scheduled": None,
        "image pulled": 600,
        "runner online": 40,
        "first step": 1,
    }


def test_a_part_of_the_canary_over_its_budget_fails(world: World) -> None:
    cold(world).get("EphemeralRunner")["metadata"]["creationTimestamp"] = at(900)
    canary = Canary.parse("acme/app/c.yml", StandInForGitHub())
    step = canary.run("canary workflow", world.fleet, world.snapshot, 60, 0.001)
    assert step.state == "fail"
    assert "too slow: assigned took 903 s of 60 s" in step.message


@pytest.mark.parametrize("runner", ["GitHub Actions 12", "other-abc12-runner-x1", None])
def test_a_canary_on_another_runner_fails(world: World, runner: str | None) -> None:
    canary = Canary.parse("acme/app/gpu.yml@main", StandInForGitHub(runner=runner))  # type: ignore[arg-type]
    report = verify(world, StandInForJobs(), canary=canary)
    assert report.steps[-1].state == "fail"
    assert f"success, on {runner or 'no runner'}: that is not a runner of this fleet" in report.steps[-1].message
    assert "[self-hosted, linux, x64, gpu" in report.steps[-1].fix


def test_a_canary_that_no_group_admits_fails_before_it_waits(world: World) -> None:
    github = StandInForGitHub()
    github.refuses = True
    step = Canary.parse("acme/app/gpu.yml@main", github).run("canary", world.fleet, world.snapshot, 60, 0.001)
    assert step.state == "fail"
    assert "which runner group default is not open to" in step.message
    assert "gh api --hostname github.com --method PUT orgs/acme/actions/runner-groups/1/repositories/" in step.fix
    assert not github.dispatched


def test_a_failed_job_of_the_canary_is_named(world: World) -> None:
    report = verify(world, StandInForJobs(), canary=Canary.parse("acme/app/gpu.yml@main", StandInForGitHub("failure")))
    assert report.steps[-1].state == "fail"
    assert "failure on gpu-abc12-runner-x1, canary failure" in report.steps[-1].message


@pytest.mark.parametrize("appears", [1, 3])
def test_an_interrupted_canary_is_cancelled_and_waited_for(world: World, appears: int) -> None:
    """Also one that GitHub shows only after the interrupt."""
    github = StandInForGitHub(turns=100, appears=appears)
    canary = Canary.parse("acme/app/gpu.yml@main", github)

    def interrupt() -> Any:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        canary.run("canary", world.fleet, interrupt, 60, 0.001) if appears == 1 else _interrupted(canary)
    assert canary.clean(seconds=5, poll=0.001) == []
    assert github.cancelled
    assert canary.clean() == [], "nothing goes on"


def _interrupted(canary: Canary) -> None:
    canary._dispatch()
    raise KeyboardInterrupt


def test_a_dispatched_run_that_never_shows_is_left_behind(world: World) -> None:
    canary = Canary.parse("acme/app/gpu.yml@main", StandInForGitHub(appears=10**6))
    canary._dispatch()
    (left,) = canary.clean(seconds=0.01, poll=0.001)
    assert "may still start" in left


def test_a_canary_without_the_right_says_so(world: World) -> None:
    class Denied(StandInForGitHub):
        def ask(self, method: str, path: str, body: Object | None = None) -> Answer:
            raise Unavailable("GitHub answers 403 to POST")

    report = verify(world, StandInForJobs(), canary=Canary.parse("acme/app/gpu.yml", Denied()))
    assert "Actions: write" in report.steps[-1].fix


def test_a_bad_canary_is_refused() -> None:
    with pytest.raises(BadFlag, match=r"--canary gpu\.yml names no workflow"):
        Canary.parse("gpu.yml", StandInForGitHub())


def test_a_timeout_that_never_ends_is_refused() -> None:
    with pytest.raises(BadFlag, match="--timeout is inf"):
        verify_command(Verify(timeout=float("inf")))
