"""Evidence on a job's node: pods, events, earlier looks, and instances of a stand-in that botocore's models check."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

import pytest

from paddock.fleet import Stack
from paddock.operate.runners.rerun.model import Evidence, Job, NodeVerdict
from paddock.operate.runners.rerun.placement import Memory, evidence, is_runner_of
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.sources import aws_instances
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.aws_instances import Instance, Instances
from tests.operate.conftest import AT
from tests.support.aws_account import DENIED, REGION, Account, Answer
from tests.support.chain_objects import GROUP, NODE, POD, RUNNERS
from tests.support.chain_world import World

SPOT = "Server.SpotInstanceTermination"
ID = "i-0a1b2c3d4e5f60718"


@pytest.fixture
def world(stack: Stack) -> World:
    """A fleet whose one runner has a job, on a node that is known to be an instance."""
    world = World(stack, AT)
    world.get("Node", NODE)["spec"]["providerID"] = f"aws:///us-west-2a/{ID}"
    return world


def job(**changes: Any) -> Job:
    fields: dict[str, Any] = {
        "repository": "acme/app",
        "run": 7,
        "id": 42,
        "name": "train",
        "workflow": "ci",
        "url": "",
        "check_run": 42,
        "runner": POD,
        "attempt": 1,
        "status": "completed",
        "conclusion": "failure",
        "failed_steps": (),
        "started": AT - timedelta(minutes=8),
        "ended": AT - timedelta(minutes=1),
        "run_over": True,
    }
    return Job(**{**fields, **changes})


def ago(minutes: float) -> datetime:
    return AT - timedelta(minutes=minutes)


def instance(**changes: Any) -> Instance:
    return replace(Instance(ID, "t4", "terminated", launched=ago(60)), **changes)


def judged(
    snapshot: Snapshot, *items: Instance, of: Job | None = None, memory: Memory | None = None, **more: Any
) -> Evidence:
    return evidence(snapshot, of or job(), memory or Memory(), Instances(items, **more))


def verdict(verdicts: Evidence) -> NodeVerdict:
    assert verdicts.placed, verdicts.unknown
    return verdicts.placed[0][1]


def scheduled(world: World, minutes_ago: float, node: str = NODE, pod: str = POD) -> None:
    """Add the scheduler's own event, as a cluster's v1 API shows those of events.k8s.io."""
    time = ago(minutes_ago).strftime("%Y-%m-%dT%H:%M:%S.123456Z")
    world.objects.append(
        {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{pod}.{len(world.objects):x}", "namespace": RUNNERS},
            "involvedObject": {"kind": "Pod", "name": pod, "namespace": RUNNERS, "uid": "u1"},
            "type": "Normal",
            "reason": "Scheduled",
            "message": f"Successfully assigned {RUNNERS}/{pod} to {node}",
            "firstTimestamp": None,
            "lastTimestamp": None,
            "eventTime": time,
        }
    )


def lose(world: World) -> Snapshot:
    """Take the node and its pods away, as the cloud's controller and the garbage collector do."""
    scheduled(world, 9)
    for kind, name in (("Node", NODE), ("Pod", POD), ("EphemeralRunner", "")):
        world.drop(kind, name)
    return world.snapshot()


# Where a job was.


def test_pod_that_is_there_names_its_node(world: World) -> None:
    (placed,) = judged(world.snapshot()).placed
    assert (placed[0].pod, placed[0].node, placed[0].pool) == (f"{RUNNERS}/{POD}", NODE, "t4")
    assert (placed[1].state, "still there" in placed[1].reason) == ("kept", True)


def test_event_of_the_scheduler_names_the_node_of_a_pod_that_is_gone(world: World) -> None:
    (placed,) = judged(lose(world)).placed
    assert (placed[0].node, placed[0].since) == (NODE, ago(9).replace(microsecond=123456))


def test_another_pod_of_the_same_runner_is_not_the_jobs(world: World) -> None:
    snapshot = lose(world)
    scheduled(world, 3, "other-node")
    assert judged(world.snapshot()).placed[0][0].node == judged(snapshot).placed[0][0].node == NODE


def test_pod_of_a_job_of_its_own_counts_with_its_runners(world: World) -> None:
    scheduled(world, 7, "gpu-node", f"{POD}-workflow")
    pods = [place.pod for place, _ in judged(world.snapshot()).placed]
    assert pods == [f"{RUNNERS}/{POD}-workflow", f"{RUNNERS}/{POD}"]


def test_without_pod_and_event_the_reason_is_said(world: World) -> None:
    verdicts = judged(world.snapshot(), of=job(runner="gpu-abc12-runner-zz9"))
    assert "no event says on which node it was" in verdicts.unknown
    hidden = replace(world.snapshot(), events=Reading(reason="may not list events", permission="list events"))
    assert judged(hidden, of=job(runner="gpu-abc12-runner-zz9")).permission == "list events"


@pytest.mark.parametrize(
    ("runner", "fits"),
    [
        ("gpu-abc12-runner-x1y2z", True),
        ("gpu-runner-x1y2z", True),
        ("gpu-x8-abc12-runner-x1y2z", False),
        ("gpu", False),
    ],
)
def test_names_of_runners_are_those_of_one_scale_set(runner: str, fits: bool) -> None:
    assert is_runner_of("gpu", runner) is fits


def test_end_of_the_pod_by_the_kubelet_is_found_by_its_uid(world: World) -> None:
    snapshot = lose(world)
    about = {"kind": "Pod", "namespace": RUNNERS, "name": POD}
    events = [
        {
            "metadata": {},
            "involvedObject": {**about, "uid": uid},
            "reason": "Killing",
            "lastTimestamp": time.isoformat(),
        }
        for uid, time in (("another", ago(5)), ("u1", ago(2)))
    ]
    verdicts = judged(replace(snapshot, killings=Reading(tuple(events))), instance(reason=SPOT))
    assert verdicts.placed[0][0].killed == ago(2)


# Whether the node was taken back.


@pytest.mark.parametrize("reason", ["SpotInterruption", "SpotInterrupted"])
def test_notice_on_the_node_needs_no_aws(world: World, reason: str) -> None:
    world.event("Node", NODE, reason, "Spot interruption warning was triggered", 2)
    verdicts = verdict(judged(lose(world), error=None))
    assert (verdicts.state, verdicts.noticed, reason in verdicts.reason) == ("taken-back", ago(2), True)


@pytest.mark.parametrize("reason", ["RebalanceRecommendation", "SpotRebalanceRecommendation", "NodeNotReady"])
def test_warning_is_no_end(world: World, reason: str) -> None:
    world.event("Node", NODE, reason, "words", 2)
    assert verdict(judged(world.snapshot())).state == "kept"


def test_notice_of_an_earlier_node_of_that_name_is_none(world: World) -> None:
    world.event("Node", NODE, "SpotInterruption", "words", 30)
    assert verdict(judged(world.snapshot())).state == "kept"


@pytest.mark.parametrize(
    ("changes", "noticed"),
    [
        ({"reason": SPOT}, None),
        ({"request": "instance-terminated-no-capacity", "request_at": ago(1)}, ago(3)),
        ({"request": "instance-terminated-by-price", "request_at": ago(1)}, ago(3)),
        ({"request": "marked-for-termination", "request_at": ago(2), "state": "running"}, ago(2)),
        (
            {
                "reason": "Client.UserInitiatedShutdown",
                "request": "instance-terminated-by-user",
                "cause": "At 2026-11-24T11:57:00Z an instance was taken out of service in response to an EC2 instance"
                " rebalance recommendation.",
                "cause_at": ago(3),
            },
            ago(3),
        ),
    ],
)
def test_instance_seen_before_its_node_went_is_judged_by_itself(
    world: World, changes: dict[str, Any], noticed: datetime | None
) -> None:
    memory = Memory()
    memory.learn(world.snapshot())
    other = Instance("i-0f", "t4", "terminated", launched=ago(60), reason="Client.UserInitiatedShutdown")
    verdicts = verdict(judged(lose(world), instance(**changes), other, memory=memory))
    assert (verdicts.state, verdicts.instance, verdicts.noticed) == ("taken-back", ID, noticed)


def test_node_with_a_notice_counts_while_it_is_still_there(world: World) -> None:
    marked = instance(state="running", request="marked-for-termination", request_at=ago(1))
    verdicts = verdict(judged(world.snapshot(), marked))
    assert (verdicts.state, verdicts.instance, verdicts.noticed) == ("taken-back", ID, ago(1))


def test_cordoned_node_is_not_decided_yet(world: World) -> None:
    world.get("Node", NODE)["spec"]["unschedulable"] = True
    verdicts = verdict(judged(world.snapshot(), instance(state="running")))
    assert (verdicts.state, "cordoned" in verdicts.reason) == ("unknown", True)


def test_instance_that_the_autoscaler_ended_is_kept(world: World) -> None:
    memory = Memory()
    memory.learn(world.snapshot())
    ended = instance(reason="Client.UserInitiatedShutdown", request="instance-terminated-by-user", request_at=ago(1))
    verdicts = verdict(judged(lose(world), ended, memory=memory))
    assert (verdicts.state, "was not taken back" in verdicts.reason) == ("kept", True)


def test_instance_is_found_by_its_name_while_ec2_knows_it(world: World) -> None:
    verdicts = verdict(judged(lose(world), instance(state="shutting-down", dns=NODE, reason=SPOT)))
    assert (verdicts.state, verdicts.instance) == ("taken-back", ID)


def test_the_only_instance_that_ended_was_the_node(world: World) -> None:
    world.get("Node", "system-0")["spec"]["providerID"] = "aws:///us-west-2a/i-0e"
    verdicts = verdict(judged(lose(world), instance(reason=SPOT), replace(instance(), id="i-0e", state="running")))
    assert (verdicts.state, verdicts.instance, "the one instance of t4" in verdicts.reason) == ("taken-back", ID, True)


def test_instance_that_runs_on_without_a_node_may_be_it(world: World) -> None:
    verdicts = verdict(judged(lose(world), instance(reason=SPOT), replace(instance(), id="i-0e", state="running")))
    assert (verdicts.state, "i-0e of t4 runs without a node" in verdicts.reason) == ("unknown", True)


def test_of_several_that_all_were_taken_back_the_node_was_one(world: World) -> None:
    two = instance(reason=SPOT), replace(instance(reason=SPOT), id="i-0e")
    verdicts = verdict(judged(lose(world), *two))
    assert (verdicts.state, verdicts.instance, "each of the 2" in verdicts.reason) == ("taken-back", "", True)


def test_one_that_the_autoscaler_ended_among_them_leaves_it_unknown(world: World) -> None:
    two = instance(reason=SPOT), replace(instance(reason="Client.UserInitiatedShutdown"), id="i-0e")
    verdicts = verdict(judged(lose(world), *two))
    assert (verdicts.state, "i-0e: Client.UserInitiatedShutdown" in verdicts.reason) == ("unknown", True)
    assert "--watch" in verdicts.fix


@pytest.mark.parametrize(
    "other",
    [
        {"launched": ago(4), "reason": "Client.UserInitiatedShutdown"},
        {"pool": "a100", "reason": "Client.UserInitiatedShutdown"},
        {"request": "instance-terminated-by-user", "request_at": ago(30)},
    ],
    ids=["launched later", "of another pool", "ended before"],
)
def test_instances_that_it_cannot_have_been_do_not_count(world: World, other: dict[str, Any]) -> None:
    verdicts = verdict(judged(lose(world), instance(reason=SPOT), replace(instance(**other), id="i-0e")))
    assert verdicts.state == "taken-back"


def test_of_several_that_the_autoscaler_ended_the_node_was_one(world: World) -> None:
    ended = instance(reason="Client.UserInitiatedShutdown")
    verdicts = verdict(judged(lose(world), ended, replace(ended, id="i-0e")))
    assert (verdicts.state, "no instance of t4 was taken back" in verdicts.reason) == ("kept", True)
    assert verdict(judged(lose(World(world.stack, AT)), replace(ended, reason="", state="gone"))).state == "unknown"


def test_no_instance_that_ended_is_unknown(world: World) -> None:
    verdicts = verdict(judged(lose(world)))
    assert (verdicts.state, "no instance of t4" in verdicts.reason) == ("unknown", True)


def test_node_of_no_pool_is_never_judged_by_a_pools_instances(world: World) -> None:
    runner = world.fleet.runners["gpu"].model_copy(update={"container": "kubernetes-novolume"})
    snapshot = replace(lose(world), fleet=world.fleet.model_copy(update={"runners": {"gpu": runner}}))
    assert verdict(judged(snapshot, instance(reason=SPOT))).state == "unknown"


# What AWS says.


def read(answers: dict[str, Answer], stack: Stack) -> Instances:
    reader = AwsReader(REGION, Account(answers).clients)
    return aws_instances.read(reader, stack.fleet, {GROUP: "t4"}, ago(60))


def answers(**changes: Answer) -> dict[str, Answer]:
    name = [{"Key": "Name", "Value": "paddock-dev-t4"}]
    described = {
        "InstanceId": ID,
        "State": {"Code": 48, "Name": "terminated"},
        "PrivateDnsName": "",
        "LaunchTime": ago(60),
        "StateReason": {"Code": SPOT, "Message": f"{SPOT}: Spot instance termination"},
        "Tags": name,
    }
    activities = [
        {
            "ActivityId": f"a{minutes}",
            "AutoScalingGroupName": GROUP,
            "Description": f"Terminating EC2 instance: {id_}",
            "Cause": "an instance was taken out of service in response to an EC2 health check indicating it has been "
            "terminated or stopped.",
            "StartTime": ago(minutes),
            "StatusCode": "Successful",
        }
        for id_, minutes in ((ID, 1), ("i-0b", 9), ("i-0c", 90))
    ]
    status = {"Code": "instance-terminated-no-capacity", "UpdateTime": ago(2), "Message": "words"}
    return {
        "ec2.DescribeInstances": {"Reservations": [{"Instances": [described]}]},
        "autoscaling.DescribeScalingActivities": {"Activities": activities},
        "ec2.DescribeSpotInstanceRequests": {"SpotInstanceRequests": [{"InstanceId": ID, "Status": status}]},
        **changes,
    }


def test_instances_join_what_three_operations_say(stack: Stack) -> None:
    verdicts = read(answers(), stack)
    assert verdicts.error is None
    assert [one.id for one in verdicts.items] == [ID, "i-0b"]
    first, forgotten = verdicts.items
    assert (first.pool, first.state, first.dns, first.reason, first.taken_back) == ("t4", "terminated", "", SPOT, SPOT)
    assert (first.request, first.request_at, first.cause_at) == ("instance-terminated-no-capacity", ago(2), ago(1))
    assert (forgotten.pool, forgotten.state, forgotten.ended, forgotten.taken_back) == ("t4", "gone", True, "")


def test_one_refused_operation_leaves_the_others(stack: Stack) -> None:
    verdicts = read(answers(**{"ec2.DescribeSpotInstanceRequests": DENIED}), stack)
    assert verdicts.items[0].taken_back == SPOT
    assert verdicts.error is not None
    assert verdicts.error.permission == "ec2:DescribeSpotInstanceRequests"


def test_refused_reading_makes_a_lost_node_unknown(world: World, stack: Stack) -> None:
    known = read(answers(**{"ec2.DescribeInstances": DENIED, "autoscaling.DescribeScalingActivities": DENIED}), stack)
    verdicts = verdict(evidence(lose(world), job(), Memory(), known))
    assert (verdicts.state, verdicts.permission) == ("unknown", "ec2:DescribeInstances")
