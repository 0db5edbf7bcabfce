"""A fleet operated from its first day to its last, in one lab: status, why, verify, drain, recycle, upgrade, removal.

Kubernetes' API server and scheduler and Pulumi's engine are the real ones; AWS, GitHub, ARC and what runs in pods are
stand-ins. Tests stand in the order of the fleet's life, and each needs those before it.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra import versions
from paddock.console.progress import Progress
from paddock.console.report import Report
from paddock.fleet import load
from paddock.kubernetes.client import Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import github
from paddock.lab.control_plane.servers import Lab
from paddock.lab.providers.store import Store
from paddock.lab.simulators import arc, arc_objects, nodes, runner_sets
from paddock.lab.stack import charts
from paddock.lab.stack import stack as lab_stack
from paddock.lab.stack.engine import ROOT, Engine
from paddock.labels import LAB_ENDS_AFTER, LAB_KEEPS_STALE
from paddock.operate.destroy import command as destroying
from paddock.operate.destroy.command import Destroy
from paddock.operate.phases import Refused, Watch
from paddock.operate.runners import upgrade as upgrading
from paddock.operate.runners.arc import VERSION
from paddock.operate.runners.drain import Drain, drain
from paddock.operate.runners.draining import KEPT
from paddock.operate.runners.recycle import Recycle, recycle
from paddock.operate.runners.resume import Resume, resume
from paddock.operate.runners.upgrade import Upgrade
from paddock.operate.status.command import ShowStatus, status
from paddock.operate.verify.command import Verify, verify
from paddock.operate.why.command import Why, why
from paddock.pulumi_cli.stack import Pulumi
from tests.support.aws_account import Account, Answer, answering
from tests.support.engine import deployment, export, lab_in
from tests.support.github_control import FaultyGitHub
from tests.support.left_behind import nothing_left
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("operate")]

OLDER, NEWER = "0.14.1", "0.15.0"
CONTEXT, RUNNERS, SYSTEM = "paddock-lab", "arc-runners", "arc-systems"
SET = (runner_sets.VERSION, runner_sets.KIND)
LABELS = ["self-hosted", "gpu"]


class World:
    """The fleet `dev` in a lab, with ARC at an older version, and the commands of its operator."""

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root = lab, root
        for name in ("infra", "runners", "ami"):
            shutil.copytree(ROOT / name, root / name, ignore=shutil.ignore_patterns("__pycache__"))
        for path in ROOT.glob("Pulumi*.yaml"):
            shutil.copy(path, root)
        self.pin(OLDER)
        stack = load(root, "dev")
        nodes.start(lab, stack, boot_seconds=1.0, idle_seconds=5.0)
        self.hub = FaultyGitHub(github.start(lab))
        arc_charts = ("gha-runner-scale-set", "gha-runner-scale-set-controller")
        charts.serve(lab.folder / lab_stack.CHARTS, [(name, v) for name in arc_charts for v in (OLDER, NEWER)], None)
        lab_stack.apply(lab, stack, root=root, github=self.hub.url, progress=Progress(quiet=True))
        arc.start(lab, self.hub.url)
        self.engine: Engine = lab_stack.lab_engine(lab, stack, root=root)
        self.pulumi = Pulumi(
            self.engine.project, "dev", program=str(self.engine.programs.pulumi), environment=self.engine.environment()
        )
        tagged: dict[str, Answer] = {"resourcegroupstaggingapi.GetResources": self._tagged, "ecr.ListImages": {}}
        self.aws = Account({**nothing_left(), **tagged})
        self.aws.answers["eks.DescribeCluster"] = self._cluster
        self.watch = Watch(poll=0.3, sleep=self._sleep)
        self.fleet: dict[str, Any] = {"kubeconfig": lab.kubeconfig, "context": CONTEXT}
        self.now: dict[str, Any] = {**self.fleet, "yes": True}
        self.api = lab_api(lab.kubeconfig)
        until(lambda: (self.runner_set.get("status") or {}).get("phase") == "Running")
        until(self.listener_serves)

    def pin(self, version: str) -> None:
        path = self.root / "infra/versions.py"
        current = next(line for line in path.read_text().splitlines() if line.startswith("ARC = "))
        path.write_text(path.read_text().replace(current, f'ARC = "{version}"'))

    def upgrade(self, target: str) -> tuple[int, dict[str, Any]]:
        parameters = Upgrade(**self.now, timeout=60.0)
        return said(upgrading.carry_out(parameters, self.pulumi, target=target, watch=self.watch))

    def destroy(self, **flags: bool) -> tuple[int, dict[str, Any]]:
        parameters = Destroy(**self.now, timeout=60.0, **flags)
        return said(destroying.carry_out(parameters, self.pulumi, self.watch))

    @property
    def runner_set(self) -> Object:
        return self.api.get(*SET, "gpu", RUNNERS)

    def listener(self) -> Object | None:
        name = arc_objects.listener_name({"metadata": {"name": "gpu", "namespace": RUNNERS}})
        return self.api.find(runner_sets.VERSION, arc_objects.LISTENER, name, SYSTEM)

    def listener_serves(self) -> bool:
        item = self.listener()
        if item is None or item["metadata"].get("deletionTimestamp"):
            return False
        pod = self.api.find("v1", "Pod", item["metadata"]["name"], SYSTEM)
        return pod is not None and pod["status"].get("phase") == "Running"

    def running_job(self, seconds: float) -> int:
        """Push a job, and wait until it runs."""
        number = int(self.hub.push(LABELS, seconds)["id"])
        until(lambda: self.hub.job(number)["state"] == "running", seconds=90)
        name = self.hub.job(number)["runner"]
        # ARC writes the job into its runner's status a little later, and what runs is read there.
        until(lambda: self._status_of(name).get("jobDisplayName") or self.hub.job(number)["state"] == "completed")
        return number

    def _status_of(self, runner: str) -> Object:
        item = self.api.find(runner_sets.VERSION, arc_objects.RUNNER, runner, RUNNERS) or {}
        return dict(item.get("status") or {})

    def completed(self, number: int) -> str:
        until(lambda: self.hub.job(number)["state"] == "completed", seconds=90)
        return str(self.hub.job(number)["result"])

    def finish(self, number: int) -> str:
        """End a job that runs, and its runner's program, as the simulator does after the job's time."""
        name = self.hub.job(number)["runner"]
        self.hub.ended(name, "succeeded")
        with contextlib.suppress(ApiError):  # ARC may be faster, and delete the runner of a job that has ended
            pod = self.api.get("v1", "Pod", name, RUNNERS)
            self.api.patch(pod, {"metadata": {"annotations": {LAB_ENDS_AFTER: "0.5s"}}})
        return self.completed(number)

    def cloud(self) -> dict[str, Any]:
        """Return what the stand-in for AWS has, by type and id."""
        return {key: item for key, item in Store(self.engine.store).resources().items() if key.startswith("aws:")}

    def _sleep(self, seconds: float) -> None:
        """Sleep; the long pause of an upgrade ends with what it is for: the old minor's scale set goes."""
        if seconds <= self.watch.poll:
            time.sleep(seconds)
        else:
            until(self._scale_set_leaves)

    def _scale_set_leaves(self) -> bool:
        found = self.api.find(*SET, "gpu", RUNNERS)
        return found is None or "deletionTimestamp" in found["metadata"]

    def _tagged(self, asked: dict[str, Any]) -> dict[str, Any]:
        """Answer as AWS's tag API does, of what the stand-in for AWS has."""
        if asked["TagFilters"] != [{"Key": "paddock:fleet", "Values": ["paddock-dev"]}]:
            return {}  # controllers made nothing
        states = [item["state"] for item in self.cloud().values() if "tagsAll" in item["state"]]
        return {"ResourceTagMappingList": [{"ResourceARN": state["arn"]} for state in states if state.get("arn")]}

    def _cluster(self, asked: dict[str, Any]) -> dict[str, Any]:
        state = self.cloud()[f"aws:eks/cluster:Cluster {asked['name']}"]["state"]
        return {"cluster": {"name": asked["name"], "deletionProtection": state["deletionProtection"]}}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    for lab in lab_in(tmp_path_factory.mktemp("lab")):
        world = World(lab, tmp_path_factory.mktemp("project"))
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PADDOCK_ROOT", str(ROOT))
            patch.setattr("paddock.operate.verify.command.POLL", 0.2)
            answering(patch, world.aws)
            yield world
        world.api.close()


def said(report: Report | int) -> tuple[int, dict[str, Any]]:
    """Return the exit code of a report and its document."""
    assert isinstance(report, Report)
    return report.exit_code, report.document()


def phases(report: dict[str, Any]) -> dict[str, str]:
    return {phase["name"]: phase["state"] for phase in report["phases"]}


# Every day.


def test_status_counts_nodes_and_scale_sets(world: World) -> None:
    code, report = said(status(ShowStatus(**world.fleet)))
    assert code == 0
    (one,) = report["scale_sets"]
    assert (one["scale_set"], one["phase"], one["running"], one["failed"]) == ("gpu", "Running", 0, 0)
    assert [pool["pool"] for pool in report["pools"]] == ["t4"]


def test_why_finds_nothing_wrong_with_a_running_job(world: World) -> None:
    number = world.running_job(4.0)
    code, report = said(why(Why(target="gpu", **world.fleet)))
    assert code == 0, report
    until(lambda: _job_of_a_runner(world) or world.hub.job(number)["state"] == "completed")
    assert world.completed(number) == "succeeded"


def _job_of_a_runner(world: World) -> bool:
    items = world.api.list(runner_sets.VERSION, arc_objects.RUNNER, RUNNERS)
    return any((item.get("status") or {}).get("jobDisplayName") == "job" for item in items)


def test_verify_passes_and_leaves_nothing_behind(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    code, report = said(verify(Verify(timeout=120.0, **world.fleet)))
    assert code == 0, report
    assert report["left_behind"] == []


def test_a_stale_listener_is_named_and_recycled(world: World) -> None:
    """Issues 4489, 4561 and 4661 of ARC: a changed template, whose listener stays with the runner set before it."""
    change = {"metadata": {"annotations": {LAB_KEEPS_STALE: "true"}}}
    world.api.patch(world.runner_set, change)
    before = world.listener()
    assert before is not None
    template = {"template": {"metadata": {"annotations": {"changed": "yes"}}}}
    world.api.patch(world.runner_set, {"spec": template})
    until(lambda: _groups(world) not in ([], [before["spec"]["ephemeralRunnerSetName"]]))
    job = int(world.hub.push(LABELS, 0.5)["id"])

    def named() -> dict[str, Any] | None:
        code, report = said(why(Why(target="gpu", **world.fleet)))
        return report if code == 1 and "listener-stale" in json.dumps(report) else None

    until(named, seconds=60)
    assert world.hub.job(job)["state"] != "completed", "nobody serves it"
    code, report = said(recycle(Recycle(**world.now)))
    assert (code, [step["state"] for step in report["steps"]]) == (0, ["done"])
    assert world.completed(job) == "succeeded"
    until(world.listener_serves)
    after = world.listener()
    assert after is not None
    assert [after["spec"]["ephemeralRunnerSetName"]] == _groups(world)
    world.api.patch(world.runner_set, {"metadata": {"annotations": {LAB_KEEPS_STALE: None}}})
    assert said(why(Why(target="gpu", **world.fleet)))[0] == 0
    assert said(recycle(Recycle(**world.now)))[1]["steps"] == []


def _groups(world: World) -> list[str]:
    items = world.api.list(runner_sets.VERSION, arc_objects.GROUP, RUNNERS)
    return [item["metadata"]["name"] for item in items if not item["metadata"].get("deletionTimestamp")]


def test_drain_lets_a_job_end_and_resume_gives_back(world: World) -> None:
    first = world.running_job(4.0)
    before = world.runner_set["spec"]
    code, report = said(drain(Drain(wait=True, timeout=90.0, **world.now)))
    assert (code, report["left"]) == (0, [])
    assert world.hub.job(first)["result"] == "succeeded"
    waiting = int(world.hub.push(LABELS, 0.5)["id"])
    until(world.listener_serves)
    assert world.api.list(runner_sets.VERSION, arc_objects.RUNNER, RUNNERS) == []
    assert world.hub.job(waiting)["state"] == "queued"
    assert said(resume(Resume(**world.now)))[0] == 0
    assert world.runner_set["spec"] == before
    assert world.completed(waiting) == "succeeded"


# An upgrade.


def test_a_chart_that_cannot_be_had_drains_nothing(world: World) -> None:
    world.pin("0.14.9")
    with pytest.raises(Refused, match=r"pulumi preview of dev failed.*0\.14\.9"):
        world.upgrade("0.14.9")
    assert KEPT not in (world.runner_set["metadata"].get("annotations") or {})


def test_patch_upgrade_keeps_the_scale_set(world: World) -> None:
    before = world.runner_set
    world.pin(versions.ARC)
    code, report = world.upgrade(versions.ARC)
    assert code == 0, report
    assert (report["installed"], report["target"], report["also"]) == (OLDER, versions.ARC, [])
    assert phases(report)["CRDs and controller"] == phases(report)["scale sets"] == phases(report)["resume"] == "done"
    (resumed,) = (phase["details"] for phase in report["phases"] if phase["name"] == "resume")
    assert "maxRunners 5, minRunners 0" in resumed[0], "Helm leaves what it did not change: the drain held"
    after = world.runner_set
    assert (after["metadata"]["uid"], after["spec"]["maxRunners"]) == (
        before["metadata"]["uid"],
        before["spec"]["maxRunners"],
    )
    assert after["metadata"]["labels"][VERSION] == versions.ARC
    assert world.completed(int(world.hub.push(LABELS, 0.5)["id"])) == "succeeded"
    code, report = world.upgrade(versions.ARC)
    assert (code, report["phases"]) == (0, [])


def test_minor_upgrade_goes_on_after_ctrl_c(world: World) -> None:
    """The controller of another minor deletes the scale set; it is made anew, and takes jobs."""
    before, job = world.runner_set["metadata"]["uid"], world.running_job(600.0)
    world.pin(NEWER)
    _interrupt_when(lambda: world.runner_set["spec"]["maxRunners"] == 0)
    code, report = world.upgrade(NEWER)
    assert (code, report["interrupted"], report["phases"][-1]["state"]) == (130, True, "interrupted")
    assert "runners.upgrade --stack dev --context paddock-lab --yes continues" in report["next"]
    assert len(report["jobs"]) == 1
    assert world.finish(job) == "succeeded"
    code, report = world.upgrade(NEWER)
    assert code == 0, report
    assert world.runner_set["metadata"]["uid"] != before
    assert world.runner_set["metadata"]["labels"][VERSION] == NEWER
    assert world.completed(int(world.hub.push(LABELS, 0.5)["id"])) == "succeeded"


def test_downgrade_is_refused(world: World) -> None:
    with pytest.raises(Refused, match=rf"newer than {versions.ARC}"):
        world.upgrade(versions.ARC)


# The end.


def test_removal_is_refused_while_a_job_runs(world: World) -> None:
    number = world.running_job(600.0)
    with pytest.raises(Refused, match="1 jobs run"):
        world.destroy()
    assert world.runner_set["spec"]["maxRunners"] > 0
    assert world.finish(number) == "succeeded"


def test_interrupted_removal_goes_on_and_names_what_is_left(world: World) -> None:
    job, before = world.running_job(600.0), len(export(world.engine))
    _interrupt_when(lambda: not world.hub.sets() and len(deployment(world.engine)["resources"]) < before - 5)
    code, report = world.destroy(with_running_jobs=True)
    assert (code, report["interrupted"], len(report["jobs"])) == (130, True, 1)
    assert "destroy --stack dev --context paddock-lab --with-running-jobs --yes continues" in report["next"]
    assert (world.hub.job(job)["state"], world.hub.job(job)["result"]) == ("completed", "failed")
    code, report = world.destroy()
    assert code == 0, report
    assert (world.hub.sets(), world.hub.runners()) == ([], [])
    for kind in (runner_sets.KIND, arc_objects.RUNNER, arc_objects.GROUP, arc_objects.LISTENER):
        assert world.api.list(runner_sets.VERSION, kind) == []
    said = " ".join(item["what"] for item in (*report["stays"], *report["left"]))
    assert world.cloud()
    assert [key for key in world.cloud() if key.partition(" ")[2] not in said] == []
    costly = {item["what"].partition(" (")[0]: item["usd_per_month"] for item in report["stays"]}
    assert costly["eks Cluster cluster-eksCluster"] == 73.0
    assert all(item["removal"] for item in report["left"])


def test_protected_resources_are_deleted_on_request(world: World) -> None:
    with pytest.raises(Refused, match="--no-deletion-protection"):
        world.destroy(with_protected=True)
    with Store(world.engine.store).change() as resources:  # as the AWS CLI would do it
        resources["aws:eks/cluster:Cluster paddock-dev"]["state"]["deletionProtection"] = False
    code, report = world.destroy(with_protected=True)
    assert code == 0, report
    assert (world.cloud(), report["left"]) == ({}, [])
    assert {item["reason"].partition(",")[0] for item in report["stays"]} >= {"pending deletion for 30 days"}


def _interrupt_when(true: Callable[[], Any]) -> None:
    """Send this process SIGINT, as Ctrl-C does, once something is so."""

    def run() -> None:
        until(true, seconds=240)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=run, daemon=True).start()
