"""Decisions of the simulated autoscaler to add and to remove nodes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.arc.runner_pod import runner_template
from paddock.fleet import nodes as fleet_nodes
from paddock.kubernetes import pods
from paddock.lab.simulators import boot, nodes, scaling
from paddock.lab.simulators.scaling import Backoff, Group, decide
from tests.support import fleets

RESOURCES = "k8s.io/cluster-autoscaler/node-template/resources/"
RESERVED = "cr-0123456789abcdef0"
TAINT = {"key": "nvidia.com/gpu", "value": "true", "effect": "NoSchedule"}


def group(name: str = "t4-spot", priority: int = 50, low: int = 0, high: int = 2, gpus: int = 1) -> Group:
    return Group(
        name,
        "t4",
        name.removeprefix("t4-"),
        low,
        high,
        labels={"paddock.dev/pool": "t4"},
        taints=[{**TAINT, "effect": "NO_SCHEDULE"}],
        tags={
            f"{RESOURCES}cpu": "3500m",
            f"{RESOURCES}memory": "14Gi",
            f"{RESOURCES}nvidia.com/gpu": str(gpus),
        },
        priority=priority,
    )


def pod(name: str = "job", *, waits: bool = True, node: str = "", **spec: Any) -> dict[str, Any]:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
    requests = {"cpu": "3", "memory": "12Gi", "nvidia.com/gpu": "1"}
    return {
        "metadata": {"name": name, "namespace": "arc-runners"},
        "spec": {
            "containers": [{"name": "runner", "resources": {"requests": requests}}],
            "nodeSelector": {"paddock.dev/pool": "t4"},
            "tolerations": [{**TAINT, "operator": "Equal"}],
            **({"nodeName": node} if node else {}),
            **spec,
        },
        "status": {"phase": "Running" if node else "Pending", "conditions": [unschedulable] if waits else []},
    }


def node(name: str, of: str = "t4-spot", gpus: int = 1, taints: list[dict[str, str]] | None = None) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {"paddock.dev/pool": "t4", "eks.amazonaws.com/nodegroup": of}},
        "spec": {"taints": [TAINT, *(taints or [])]},
        "status": {"allocatable": {"cpu": "3500m", "memory": "14Gi", "nvidia.com/gpu": str(gpus), "pods": "110"}},
    }


def test_a_waiting_pod_buys_one_node() -> None:
    assert decide([group()], [], [pod()]).grow == ("t4-spot",)


def test_a_pod_that_the_scheduler_has_not_tried_buys_nothing() -> None:
    assert decide([group()], [], [pod(waits=False)]).grow == ()


def test_a_node_that_is_booting_or_free_is_not_bought_again() -> None:
    assert decide([group()], [], [pod()], booting=["t4-spot"]).grow == ()
    assert decide([group()], [node("a")], [pod()]).grow == ()
    starting = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
    assert decide([group()], [node("a", taints=starting)], [pod()]).grow == ()


def test_a_node_in_use_or_cordoned_is_no_room() -> None:
    assert decide([group()], [node("a")], [pod(), pod("other", waits=False, node="a")]).grow == ("t4-spot",)
    cordoned = node("a")
    cordoned["spec"]["unschedulable"] = True
    assert decide([group()], [cordoned], [pod()]).grow == ("t4-spot",)


def test_a_finished_pod_takes_no_room() -> None:
    finished = pod("done", waits=False, node="a")
    finished["status"]["phase"] = "Succeeded"
    assert decide([group()], [node("a")], [pod(), finished]).grow == ()


def test_many_pods_share_a_node_as_the_template_allows() -> None:
    requests = {"cpu": "500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
    small = [pod(str(n), containers=[{"name": "x", "resources": {"requests": requests}}]) for n in range(8)]
    assert decide([group(gpus=4, high=9)], [], small).grow == ("t4-spot", "t4-spot")


def test_spot_comes_before_on_demand_which_takes_over_at_the_maximum() -> None:
    both = [group("t4-on-demand", 10), group("t4-spot", 50, high=1)]
    assert decide(both, [], [pod("a"), pod("b")]).grow == ("t4-spot", "t4-on-demand")


def test_a_group_without_capacity_is_passed_over() -> None:
    both = [group("t4-on-demand", 10, high=1), group("t4-spot", 50, low=1)]
    decision = decide(both, [], [pod("a"), pod("b")], without=["t4-spot"])
    assert decision.grow == ("t4-on-demand",)
    assert decision.unserved == {"arc-runners/b": "t4-spot gets no capacity, t4-on-demand has its 1"}


def test_a_group_is_passed_over_for_longer_each_time() -> None:
    backoff = None
    for seconds in (5, 10, 20, 30, 30):
        backoff = Backoff.after(backoff, 100, first=5, longest=30)
        assert backoff == Backoff(100 + seconds, seconds)


def test_a_node_without_its_gpus_yet_is_waited_for() -> None:
    label = {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"}
    fresh = node("a", gpus=0)
    fresh["metadata"]["labels"] |= label
    assert decide([group()], [fresh], [pod()]).grow == ()
    assert decide([group()], [fresh], [pod("a"), pod("b")]).grow == ("t4-spot",)
    assert scaling.idle_since([fresh], [], {}, 5.0) == {}, "it would be given back before it is of use"
    for name in label:
        del fresh["metadata"]["labels"][name]
    assert decide([group()], [fresh], [pod()]).grow == ("t4-spot",), "without the label nobody knows what is to come"


@pytest.mark.parametrize("name", [*fleets.EXAMPLES, "mig", "bottlerocket", "custom-image"])
def test_the_autoscaler_waits_for_the_gpus_of_every_group(name: str) -> None:
    for group in nodes.groups(fleets.named(name), fleets.graph(name)):
        fresh = boot.registered(nodes.named(group.node, "a"))
        assert scaling.starting(fresh), group.name
        booted = {**fresh, "spec": group.node["spec"]}
        assert scaling.starting(booted), f"{group.name} would be bought twice for one pod"
        assert not scaling.starting({**booted, "status": group.node["status"]})


def test_groups_follow_the_autoscalers_priorities() -> None:
    pools = {
        "big-spot": {"instances": ["g4dn.xlarge"], "capacity": "spot", "fallback": "on-demand", "nodes": {"max": 2}},
        "spot-odd": {"instances": ["g5.xlarge"], "capacity": "on-demand", "nodes": {"max": 2}},
        "kept": {"instances": ["g6.xlarge"], "capacity": {"reserved": RESERVED}, "nodes": {"max": 2}},
        "h100": {"instances": ["p5.48xlarge"], "capacity": {"capacityBlock": RESERVED}, "nodes": {"max": 1}},
    }
    runners = {pool: {"pool": pool} for pool in pools}
    groups = nodes.groups(fleets.stack(fleets.fleet_data(pools=pools, runners=runners)))
    assert {group.name: group.priority for group in groups} == {
        "kept-reserved": 100,
        "h100-capacity-block": 100,
        "big-spot-spot": 50,
        "big-spot-on-demand": 10,
        "spot-odd-on-demand": 10,
    }


def test_the_maximum_holds_and_is_reported() -> None:
    decision = decide([group(high=2)], [], [pod(str(n)) for n in range(20)])
    assert decision.grow == ("t4-spot", "t4-spot")
    assert len(decision.unserved) == 18
    assert set(decision.unserved.values()) == {"t4-spot has its 2"}


@pytest.mark.parametrize(
    "change",
    [
        {"tolerations": []},
        {"nodeSelector": {"paddock.dev/pool": "a100"}},
        {"containers": [{"name": "x", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]},
        {"containers": [{"name": "x", "resources": {"requests": {"cpu": "3501m"}}}]},
    ],
    ids=["no toleration", "another pool", "two GPUs", "too much CPU"],
)
def test_a_pod_that_fits_no_template_buys_nothing(change: dict[str, Any]) -> None:
    decision = decide([group()], [], [pod(**change)])
    assert decision.grow == ()
    assert decision.unserved == {"arc-runners/job": "it fits no node group"}


def test_daemonsets_take_their_part_of_a_planned_node() -> None:
    agent = {"spec": {"template": {"metadata": {}, "spec": copy.deepcopy(pod()["spec"])}}}
    agent["spec"]["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "600m"}}
    assert decide([group()], [], [pod()], daemonsets=[agent]).grow == ()
    agent["spec"]["template"]["spec"]["tolerations"] = []
    assert decide([group()], [], [pod()], daemonsets=[agent]).grow == ("t4-spot",)


def test_the_minimum_is_kept() -> None:
    assert decide([group(low=2)], [node("a")], []).grow == ("t4-spot",)
    idle = {"a": 0.0, "b": 0.0}
    decision = decide([group(low=1)], [node("a"), node("b")], [], idle=idle, now=100, idle_seconds=60)
    assert decision.shrink == ("a",)


def test_an_idle_node_is_removed_unless_pods_wait() -> None:
    idle = {"a": 40.0}
    assert decide([group()], [node("a")], [], idle=idle, now=99, idle_seconds=60).shrink == ()
    assert decide([group()], [node("a")], [], idle=idle, now=100, idle_seconds=60).shrink == ("a",)
    waiting = pod(containers=[{"name": "x", "resources": {"requests": {"nvidia.com/gpu": "1"}}}])
    busy = [pod("b", waits=False, node="a"), waiting]
    assert decide([group()], [node("a")], busy, idle=idle, now=100, idle_seconds=60).shrink == ()


def test_idle_means_without_pods_but_those_of_daemonsets() -> None:
    agent = pod("agent", waits=False, node="a")
    agent["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "agent"}]
    all_nodes = [node("a"), node("b"), node("c")]
    assert scaling.idle_since(all_nodes, [agent, pod("x", waits=False, node="b")], {"a": 1.0, "b": 1.0}, 5.0) == {
        "a": 1.0,
        "c": 5.0,
    }


@given(
    waiting=st.integers(0, 12),
    there=st.integers(0, 4),
    booting=st.integers(0, 4),
    low=st.integers(0, 3),
    more=st.integers(0, 4),
    gpus=st.integers(1, 4),
)
def test_no_decision_leaves_the_limits(waiting: int, there: int, booting: int, low: int, more: int, gpus: int) -> None:
    groups = [group(low=low, high=low + more, gpus=gpus), group("t4-on-demand", 10, 0, more, gpus)]
    all_nodes = [node(str(n), gpus=gpus) for n in range(there)]
    decision = decide(
        groups,
        all_nodes,
        [pod(str(n)) for n in range(waiting)],
        booting=["t4-spot"] * booting,
        idle={str(n): 0.0 for n in range(there)},
        now=1000,
    )
    for node_group in groups:
        size = len(scaling.members(all_nodes, node_group.name)) + (booting if node_group.name == "t4-spot" else 0)
        after = size + decision.grow.count(node_group.name)
        assert after <= max(node_group.max, size)
        assert after >= min(node_group.min, node_group.max)
    assert there + booting - len(decision.shrink) >= min(low, there + booting)
    assert not (decision.grow and decision.shrink)


@pytest.mark.parametrize(
    ("text", "thousandths"),
    [
        ("1", 1000),
        ("250m", 250),
        ("3.5", 3500),
        ("1Ki", 1_024_000),
        ("2G", 2_000_000_000_000),
        ("1e3", 1_000_000),
        (2, 2000),
    ],
)
def test_quantities(text: str | int, thousandths: int) -> None:
    assert pods.quantity(text) == thousandths


@pytest.mark.parametrize("text", ["", "one", "1 Gi", "1KiB", "--1"])
def test_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        pods.quantity(text)


def test_a_pod_asks_for_its_sidecars_and_for_its_hungriest_moment() -> None:
    def container(cpu: str, **more: str) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "initContainers": [container("1"), container("500m", restartPolicy="Always"), container("4")],
        "containers": [container("1"), container("2")],
        "overhead": {"cpu": "10m"},
    }
    # The last init container runs beside the sidecar: 4.5 is more than the 3.5 of the work itself.
    assert pods.requests({"spec": spec})["cpu"] == 4510


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_the_node_groups_of_a_stack_describe_the_nodes_that_boot(name: str) -> None:
    stack = fleets.example(name)
    groups = nodes.groups(stack, fleets.graph(name))
    assert {group.name for group in groups} == {
        f"{pool}-{bought}" for pool, spec in stack.fleet.pools.items() for bought in fleet_nodes.capacities(spec)
    }
    for group in groups:
        described, real = group.template, group.node
        assert described.labels.items() <= real["metadata"]["labels"].items()
        assert list(described.taints) == real["spec"]["taints"]
        allocatable = pods.amounts(real["status"]["allocatable"])
        # Less than the real node has buys a node too many; more buys one that the pod does not fit.
        assert all(amount <= allocatable[key] for key, amount in described.resources.items() if key != "pods")


@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_every_runner_of_a_stack_buys_a_node_of_its_pool(name: str) -> None:
    stack = fleets.example(name)
    groups = nodes.groups(stack, fleets.graph(name))
    for runner, spec in stack.fleet.runners.items():
        if spec.container == "kubernetes-novolume":
            continue  # its pod steers, from a system node
        pod_ = runner_template(stack.fleet, spec)
        waiting = {"metadata": {"name": runner}, "spec": pod_["spec"], "status": pod()["status"]}
        bought = decide(groups, [], [waiting]).grow
        assert len(bought) == 1 + sum(group.min for group in groups), runner
        assert bought[-1].startswith(f"{spec.pool}-"), runner
        waiting["spec"] = {**pod_["spec"], "tolerations": []}
        assert decide(groups, [], [waiting]).unserved, f"{runner} would be placed without its toleration"
