"""Day two of a fleet by its doors: what is drained, run again, upgraded and removed."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from infra import versions
from paddock.operate.runners.arc import VERSION
from tests.support import actions_api
from tests.support.actions_api import LOST, TOKEN, ActionsApi, stamp
from tests.support.chain_objects import NODE, POD
from tests.support.kubernetes_api import KubernetesApi
from tests.support.left_behind import nothing_left
from tests.support.operation import Operation
from tests.support.waiting import until


@pytest.mark.door("runners.drain", "a Kubernetes API over HTTP")
@pytest.mark.door("runners.resume", "a Kubernetes API over HTTP")
def test_runners_are_drained_and_resumed(operation: Operation) -> None:
    world = operation.cluster().world
    before = world.runner_set["spec"]["maxRunners"]
    drained = operation("runners.drain", "--yes")
    assert drained.returncode == 0, drained.stdout + drained.stderr
    assert world.runner_set["spec"]["maxRunners"] == 0
    resumed = operation("runners.resume", "--yes", "--json")
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert json.loads(resumed.stdout)["command"] == "resume"
    assert world.runner_set["spec"]["maxRunners"] == before


@pytest.mark.door("runners.drain", "a runner whose job does not end", interrupted=True)
def test_drain_that_waits_stays_drained_when_interrupted(operation: Operation) -> None:
    api = operation.cluster()
    world = api.world
    running = operation.start("runners.drain", "--yes", "--wait")
    until(lambda: world.runner_set["spec"]["maxRunners"] == 0, seconds=60)
    _reads_anew(api)
    shown, errors = operation.inv.interrupted(running)
    assert "runners.resume" in shown + errors


@pytest.mark.door("runners.recycle", "a Kubernetes API over HTTP")
def test_failed_runner_is_deleted(operation: Operation) -> None:
    world = operation.cluster().world
    world.another("gpu-abc12-runner-dead1", phase="Failed")
    shown = operation("runners.recycle", "--dry-run")
    assert world.has("EphemeralRunner", "gpu-abc12-runner-dead1"), shown.stdout
    completed = operation("runners.recycle", "--yes")
    assert completed.returncode == 0, completed.stdout + completed.stderr
    assert not world.has("EphemeralRunner", "gpu-abc12-runner-dead1")
    assert world.has("EphemeralRunner", POD), "a runner with a job is never deleted"


@pytest.fixture
def lost(operation: Operation) -> ActionsApi:
    """A job that failed when its node went, and what GitHub, AWS and the cluster say of it."""
    at = datetime.now(UTC).replace(microsecond=0)
    api = operation.served.enter_context(actions_api.serve(ActionsApi(at)))
    operation.github(api.url)
    world = operation.cluster().world
    world.pod["metadata"]["creationTimestamp"] = stamp(at - timedelta(minutes=45))
    world.drop("Node", NODE)
    instance = {
        "InstanceId": "i-0a",
        "State": {"Name": "terminated"},
        "StateReason": {"Code": "Server.SpotInstanceTermination"},
        "StateTransitionReason": f"Service initiated ({at - timedelta(minutes=11):%Y-%m-%d %H:%M:%S GMT})",
        "PrivateDnsName": NODE,
        "LaunchTime": at - timedelta(hours=3),
        "InstanceLifecycle": "spot",
        "Tags": [{"Key": "eks:nodegroup-name", "Value": "t4-spot-0a1b2c3"}],
    }
    operation.account({**world.answers(), "ec2.DescribeInstances": {"Reservations": [{"Instances": [instance]}]}})
    api.run(1)
    api.job(1, 42, LOST, runner_name=POD)
    (operation.inv.folder / "token").write_text(TOKEN)
    return api


@pytest.mark.door("runners.rerun", "GitHub's REST API, Kubernetes and AWS over HTTP")
def test_job_whose_node_was_taken_back_is_run_again(operation: Operation, lost: ActionsApi) -> None:
    flags = ("--github-key", "token", "--repository", "acme/app", "--since", "1d")
    planned = operation("runners.rerun", "--dry-run", *flags)
    assert lost.posted == [], planned.stdout
    completed = operation("runners.rerun", "--yes", *flags, "--json")
    assert [line["state"] for line in json.loads(completed.stdout)["jobs"]] == ["rerun"], completed.stdout
    assert lost.posted == ["/api/v3/repos/acme/app/actions/jobs/42/rerun"]


@pytest.mark.door("runners.rerun", "GitHub's REST API, Kubernetes and AWS over HTTP", interrupted=True)
def test_watch_for_lost_jobs_ends_when_interrupted(operation: Operation, lost: ActionsApi) -> None:
    flags = ("--github-key", "token", "--repository", "acme/app", "--since", "1d")
    running = operation.start("runners.rerun", "--watch", "--dry-run", *flags)
    assert "acme/app, run 1" in running.stdout.readline()
    code, _, errors = operation.inv.interrupt(running)
    assert (code, errors) == (0, "")


# The last days.


@pytest.fixture
def old(operation: Operation) -> KubernetesApi:
    """A cluster with an older ARC and no runner, and its Pulumi stack."""
    api = operation.cluster()
    world = api.world
    world.no_runner()
    older = versions.ARC.rpartition(".")[0] + ".0"

    def label(kind: str, name: str, version: str) -> None:
        world.get(kind, name)["metadata"]["labels"][VERSION] = version

    label("Deployment", "arc-gha-rs-controller", older)
    label("AutoscalingRunnerSet", "", older)
    engine = operation.engine(older)

    def changed(name: str, urns: list[str]) -> None:
        if name == "up controller":
            label("Deployment", "arc-gha-rs-controller", versions.ARC)
        elif name.startswith("up"):
            label("AutoscalingRunnerSet", "", versions.ARC)

    engine.changed = changed
    return api


@pytest.mark.door("runners.upgrade", "Kubernetes over HTTP, and a program in the place of Pulumi")
def test_arc_is_brought_to_the_pinned_version(operation: Operation, old: KubernetesApi) -> None:
    before = old.world.runner_set["spec"]["maxRunners"]
    shown = operation("runners.upgrade", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    completed = operation("runners.upgrade", "--yes", "--json")
    report = json.loads(completed.stdout)
    assert completed.returncode == 0, completed.stdout
    assert {phase["state"] for phase in report["phases"]} <= {"done", "unchanged"}
    assert old.world.runner_set["spec"]["maxRunners"] == before


@pytest.mark.door("runners.upgrade", "a runner whose job does not end", interrupted=True)
def test_upgrade_says_how_to_go_on_when_interrupted(operation: Operation, old: KubernetesApi) -> None:
    old.world.another("gpu-abc12-runner-busy1", phase="Running", runnerId=8, jobId="j8", jobDisplayName="other")
    running = operation.start("runners.upgrade", "--yes")
    until(lambda: old.world.runner_set["spec"]["maxRunners"] == 0, seconds=60)
    _reads_anew(old)
    shown, _ = operation.inv.interrupted(running)
    assert "interrupted runners end" in " ".join(shown.split())
    assert "runners.upgrade" in shown


@pytest.fixture
def leaving(operation: Operation) -> KubernetesApi:
    """A fleet without jobs that is removed, in an account that then has nothing of it."""
    api = operation.cluster()
    api.world.no_runner()
    operation.engine(versions.ARC)

    def arc_removes(verb: str, item: dict[str, Any]) -> None:
        if verb == "DELETE" and item["kind"] == "AutoscalingRunnerSet":
            arc = ("AutoscalingListener", "EphemeralRunnerSet", "EphemeralRunner")
            api.world.objects[:] = [one for one in api.world.objects if one["kind"] not in arc]

    api.changed = arc_removes
    operation.account(
        {
            **nothing_left(),
            "ecr.ListImages": {"imageIds": []},
            "eks.DescribeCluster": lambda asked: {"cluster": {"name": asked["name"], "deletionProtection": False}},
        }
    )
    return api


@pytest.mark.door("destroy", "Kubernetes and AWS over HTTP, and a program in the place of Pulumi")
def test_fleet_is_removed_and_what_stays_is_said(operation: Operation, leaving: KubernetesApi) -> None:
    shown = operation("destroy", "--dry-run")
    assert shown.returncode == 0, shown.stderr
    assert leaving.world.has("AutoscalingRunnerSet", "gpu")
    completed = operation("destroy", "--yes", "--json")
    report = json.loads(completed.stdout)
    assert completed.returncode == 0, completed.stdout
    assert {phase["state"] for phase in report["phases"]} <= {"done", "unchanged"}
    assert not leaving.world.has("AutoscalingRunnerSet", "gpu")
    assert report["stays"], "what is protected stays, and is said"


@pytest.mark.door("destroy", "a controller that does not sign runners off", interrupted=True)
def test_removal_says_how_to_go_on_when_interrupted(operation: Operation, leaving: KubernetesApi) -> None:
    leaving.changed = lambda verb, item: None
    running = operation.start("destroy", "--yes")
    until(lambda: not leaving.world.has("AutoscalingRunnerSet", "gpu"), seconds=60)
    _reads_anew(leaving)
    shown, _ = operation.inv.interrupted(running)
    assert "interrupted" in shown
    assert "destroy" in shown


def _reads_anew(api: KubernetesApi) -> None:
    """Wait until a task whose change was answered looks at what became of it."""
    seen = len(api.requests)
    until(lambda: len(api.requests) > seen, seconds=60)
