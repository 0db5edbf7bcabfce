"""Status of a fleet from snapshots: what is there is counted, what is not known is said."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.console.output import PRINTED_JSON, BadFlag
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.sources.aws import AwsReader
from paddock.operate.status.command import ShowStatus
from paddock.operate.status.command import status as command
from paddock.operate.status.compute import status
from paddock.operate.status.control_plane import read_control_plane
from paddock.operate.status.report import ControlPlane, Status
from tests.operate.conftest import AT
from tests.support import fleets
from tests.support.aws_account import DENIED, REGION, Account, Answer, Refusal
from tests.support.chain_faults_pod import QUOTA
from tests.support.chain_objects import NODE, instance
from tests.support.chain_world import World


def of(snapshot: Snapshot) -> Status:
    return status(snapshot, "dev", "lab", 0.5)


def screen(report: Status) -> str:
    return "\n".join(report.text())


def test_a_fleet_at_work_is_counted(world: World) -> None:
    report = of(world.snapshot())
    (pool,) = report.pools
    assert (pool.ready, pool.starting, pool.broken, pool.draining, pool.most) == (1, 0, 0, 0, 5)
    assert (pool.gpus_allocatable, pool.gpus_allocated) == (1, 1)
    (scale_set,) = report.scale_sets
    assert (scale_set.assigned, scale_set.running, scale_set.idle, scale_set.failed, scale_set.most) == (1, 1, 0, 0, 5)
    assert (report.oldest_waiting, report.waiting_known) == (None, False)  # of jobs nothing is known
    assert report.spot_interruptions == 0


def test_an_instance_that_is_no_node_yet_starts(world: World) -> None:
    world.scaling[0]["Instances"].append(instance("i-0boots"))
    world.launch("", "Successful", 4, instance="i-0boots")
    pool = of(world.snapshot()).pools[0]
    assert (pool.ready, pool.starting, pool.broken) == (1, 1, 0)
    world.activities[0]["StartTime"] -= timedelta(minutes=20)
    pool = of(world.snapshot()).pools[0]
    assert (pool.ready, pool.starting, pool.broken) == (1, 0, 1)
    unread = replace(world.snapshot(), scaling_groups=Reading(reason="may not describe"))
    assert of(unread).pools[0].starting is None


def test_gpus_of_a_node_that_is_not_ready_are_not_allocatable(world: World) -> None:
    world.get("Node", NODE)["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    pool = of(world.snapshot()).pools[0]
    assert (pool.gpus_allocatable, pool.gpus_allocated) == (0, 0)


def test_a_cluster_of_somebody_else_is_not_priced() -> None:
    world = World(fleets.named("existing-cluster"), AT)
    world.add_node("system-of-others")
    world.get("Node", NODE)["metadata"]["labels"]["eks.amazonaws.com/capacityType"] = "CAPACITY_BLOCK"
    cost = of(world.snapshot()).cost
    assert (cost.usd_per_hour, len(cost.missing)) == (None, 1)
    assert "Capacity Block" in cost.missing[0]


def test_nodes_are_priced_with_the_day_of_the_price(world: World) -> None:
    cost = of(world.snapshot()).cost
    assert cost.usd_per_hour
    assert cost.as_of
    assert cost.missing == ()
    world.get("Node", NODE)["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "g99.huge"
    cost = of(world.snapshot()).cost
    assert cost.missing == ("g99.huge",)
    assert "at least" in screen(of(world.snapshot()))


def test_the_oldest_waiting_runner_has_its_reason(world: World) -> None:
    world.pending()
    world.launch(QUOTA)
    waiting = of(world.snapshot()).oldest_waiting
    assert waiting is not None
    assert (waiting.link, waiting.verdict, waiting.seconds) == ("node-group", "broken", 600)
    assert "fix: ./inv doctor" in screen(of(world.snapshot()))


def test_a_queued_job_waits_where_no_runner_does(world: World) -> None:
    """A dead listener makes no runner that could wait."""
    world.no_runner()
    world.queued("self-hosted", "gpu", minutes=30)
    world.get("AutoscalingListener")["spec"]["ephemeralRunnerSetName"] = "gone"
    report = of(world.snapshot())
    waiting = report.oldest_waiting
    assert waiting is not None
    assert (waiting.name, waiting.seconds, waiting.link) == ("job 42 (train)", 1800, "listener")
    without_jobs = of(replace(world.snapshot(), jobs=Reading(reason="no credential"))).oldest_waiting
    assert without_jobs is not None
    assert (without_jobs.name, without_jobs.seconds, without_jobs.link) == ("scale set gpu", None, "listener")


def test_a_job_that_no_runner_serves_waits(world: World) -> None:
    world.queued("self-hosted", "gpu-a100")
    waiting = of(world.snapshot()).oldest_waiting
    assert waiting is not None
    assert (waiting.link, waiting.verdict) == ("github", "broken")
    elsewhere = [{"name": "self-hosted"}, {"name": "gpu-a100"}]
    world.github_runners.append({"id": 3, "name": "box", "status": "online", "busy": False, "labels": elsewhere})
    assert of(world.snapshot()).oldest_waiting is None


def test_the_screen_shows_the_age_of_each_source(world: World) -> None:
    now = datetime.now(UTC)
    snapshot = world.snapshot()
    old = {part: replace(reading, at=now - timedelta(seconds=9)) for part, reading in snapshot.readings().items()}
    text = screen(of(replace(snapshot, **old)))
    assert "read                cluster 9 s ago, AWS 9 s ago, GitHub 9 s ago; reading took 0.5 s" in text


def test_cordoned_and_interrupted_nodes_are_counted(world: World) -> None:
    world.get("Node", NODE)["spec"]["unschedulable"] = True
    world.event("Node", NODE, "SpotInterruption", "notice")
    report = of(world.snapshot())
    assert (report.pools[0].ready, report.pools[0].draining, report.spot_interruptions) == (0, 1, 1)


def test_what_is_not_known_is_never_zero(world: World) -> None:
    denied = Reading(reason="may not list it", permission="list it")
    snapshot = replace(world.snapshot(), nodes=denied, pods=denied, events=denied, runners=denied)
    report = of(snapshot)
    assert (report.pools[0].ready, report.pools[0].gpus_allocated, report.spot_interruptions) == (None, None, None)
    assert (report.scale_sets[0].running, report.cost.usd_per_hour) == (None, None)
    text = screen(report)
    assert "oldest waiting      unknown: no waiting job was seen, without pods, runners, jobs" in text
    assert "nodes, pods, events, runners unknown: may not list it" in text


def test_a_thousand_nodes_are_one_screen_in_seconds_of_work(world: World) -> None:
    snapshot = world.snapshot()
    node, pod = world.get("Node", NODE), world.pod
    names = [f"many-{number}" for number in range(1000)]
    many = [{**node, "metadata": {**node["metadata"], "name": name}} for name in names]
    one_each = [
        {**pod, "metadata": {**pod["metadata"], "name": f"pod-{n}"}, "spec": {**pod["spec"], "nodeName": n}}
        for n in names
    ]
    snapshot = replace(snapshot, nodes=Reading(tuple(many)), pods=Reading(tuple(one_each)))
    began = time.process_time()
    report = of(snapshot)
    assert time.process_time() - began < 5
    assert report.pools[0].gpus_allocated == 1000
    assert len(screen(report).splitlines()) < 40


def test_the_guide_shows_what_is_printed(world: World, root: Path) -> None:
    guide = (root / "docs/status.md").read_text().splitlines()
    insight = {
        "id": "i",
        "name": "Kubelet version skew",
        "insightStatus": {"status": "WARNING", "reason": "nodes run 1.34"},
    }
    plane = control_plane({"eks.ListInsights": {"insights": [PASSING, insight]}})
    report = replace(of(world.snapshot()), control_plane=plane)
    text = [line for line in screen(report).splitlines() if not line.startswith(("read", "nodes cost"))]
    assert [line for line in text if line not in guide] == []


PASSING = {"id": "p", "name": "APIs", "insightStatus": {"status": "PASSING"}}


def control_plane(answers: dict[str, Answer]) -> ControlPlane:
    there = {"eks.DescribeCluster": {"cluster": {"name": "x", "version": "1.35", "status": "ACTIVE"}}}
    return read_control_plane(AwsReader(REGION, Account({**there, **answers}).clients), "paddock-dev")


@pytest.mark.parametrize(
    ("answers", "lines"),
    [
        ({"eks.ListInsights": {"insights": [PASSING]}}, ["Kubernetes 1.35, ACTIVE; upgrade to 1.36: PASSING"]),
        ({"eks.ListInsights": {"insights": []}}, ["Kubernetes 1.35, ACTIVE"]),
        ({}, ["Kubernetes 1.35, ACTIVE", "upgrade insights unknown: AWS denies eks:ListInsights"]),
        ({"eks.DescribeCluster": DENIED}, ["unknown", "control plane unknown: AWS denies eks:DescribeCluster"]),
        ({"eks.DescribeCluster": Refusal("ResourceNotFoundException")}, ["unknown", "EKS has no cluster paddock-dev"]),
    ],
)
def test_control_plane_is_shown_as_eks_says_it(world: World, answers: dict[str, Answer], lines: list[str]) -> None:
    shown = screen(replace(of(world.snapshot()), control_plane=control_plane(answers))).splitlines()
    at = next(number for number, line in enumerate(shown) if line.startswith("control plane"))
    assert shown[at] == f"control plane       {lines[0]}"
    assert all(words in shown[at + number] for number, words in enumerate(lines[1:], 1))


def test_watch_and_json_exclude_each_other() -> None:
    with pytest.raises(BadFlag, match="--watch with --json"):
        command(ShowStatus(watch=True, json=PRINTED_JSON))


@pytest.mark.parametrize("columns", [60, 80, 140])
def test_a_narrow_screen_loses_columns_and_no_letter(
    world: World, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = screen(of(world.snapshot()))
    tables = text.split("\n\n")[1:3]
    assert max(len(line) for table in tables for line in table.splitlines()) <= columns
    assert ("not shown for lack of width" in text) == (columns == 60)
