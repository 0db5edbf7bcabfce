"""Nodes of a pool in a real cluster: when they come, what they wait for, who may go there, and how they go.

Scheduler, taints, quotas and DaemonSets are Kubernetes' own. The kubelet is kwok, the autoscaler and the cloud are the
lab's stand-ins.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from infra.gpu import device_plugin
from infra.monitoring import dcgm as monitoring
from paddock.fleet import Stack
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.lab.control_plane import servers
from paddock.lab.control_plane.servers import Lab
from paddock.lab.simulators import nodes
from paddock.lab.simulators.scaling import Group
from tests.support import fleets, spot
from tests.support.kubernetes import (
    ENDS_AFTER,
    STARTS_AFTER,
    daemonset,
    gpu_nodes,
    plain_pod,
    reread,
    runner,
    waits,
)
from tests.support.waiting import until

pytestmark = pytest.mark.e2e

IdleAfter = Callable[[float], None]
HOURS = 10_000.0
EVERYWHERE = {"tolerations": [{"operator": "Exists"}]}


@pytest.fixture
def created(api: Api) -> Iterator[list[Object]]:
    """Yield the list of objects that a test creates outside its namespace; delete them after it."""
    objects: list[Object] = []
    yield objects
    for object_ in objects:
        api.delete(object_)


def job(api: Api, stack: Stack, namespace: str, name: str = "runner", **annotations: str) -> Object:
    """Return the pod of a job of dev, made."""
    pod = runner(stack.fleet, "gpu", name, **annotations)
    pod["metadata"]["namespace"] = namespace
    return api.create(pod)


def node_of(api: Api, pod: Object) -> Object:
    """Return the node on which the scheduler puts a pod."""
    name = until(lambda: reread(api, pod)["spec"].get("nodeName"))
    return api.get("v1", "Node", name)


def group_of(node: Object) -> str:
    return str(node["metadata"]["labels"]["eks.amazonaws.com/nodegroup"])


def names(objects: list[Object]) -> set[str]:
    return {object_["metadata"]["name"] for object_ in objects}


def gpus(node: Object) -> str:
    return str(node["status"]["allocatable"].get("nvidia.com/gpu", "0"))


# They come and go.


def test_a_runner_waits_for_a_node_that_is_later_removed(api: Api, namespace: str, stack: Stack) -> None:
    assert not gpu_nodes(api)
    pod = job(api, stack, namespace, **{ENDS_AFTER: "1s"})
    until(lambda: waits(api, pod) or gpu_nodes(api))
    node = node_of(api, pod)
    assert group_of(node) == "t4-spot"
    assert node["metadata"]["labels"]["eks.amazonaws.com/capacityType"] == "SPOT"
    assert node["metadata"]["labels"]["node.kubernetes.io/instance-type"] == "g4dn.xlarge"
    assert [taint["key"] for taint in node["spec"]["taints"]] == ["nvidia.com/gpu"], "a start-up taint that stays"
    until(lambda: reread(api, pod)["status"]["phase"] == "Succeeded")
    api.delete(pod, gracePeriodSeconds="0")
    until(lambda: not gpu_nodes(api))


def test_a_runner_waiting_for_the_device_plugin_buys_no_second_node(
    api: Api, namespace: str, stack: Stack, created: list[Object]
) -> None:
    spec = {**_plugin_places(stack), "priorityClassName": "system-node-critical"}
    created.append(daemonset("nvidia-device-plugin", "kube-system", spec, **{STARTS_AFTER: "3s"}))
    api.apply(created[0])
    pod = job(api, stack, namespace)
    (node,) = until(lambda: gpu_nodes(api))
    until(lambda: _ready(reread(api, node)))
    assert gpus(reread(api, node)) == "0"
    phases = set()
    waited = waits(api, pod)
    while gpus(reread(api, node)) == "0":
        assert waited
        phases |= names(gpu_nodes(api))
        waited = waits(api, pod)
    assert node_of(api, pod)["metadata"]["name"] == node["metadata"]["name"]
    assert phases == {node["metadata"]["name"]}


def test_a_runner_waits_where_the_device_plugin_cannot_be_placed(
    api: Api, namespace: str, stack: Stack, created: list[Object], groups: dict[str, Group]
) -> None:
    created.append(daemonset("nvidia-device-plugin", "kube-system", {**_plugin_places(stack), "tolerations": []}))
    api.apply(created[0])
    name = nodes.grow(api, groups["t4-spot"])
    pod = job(api, stack, namespace)
    until(lambda: _ready(api.get("v1", "Node", name)))
    until(lambda: waits(api, pod))
    time.sleep(1)  # several looks of the autoscaler
    assert gpus(api.get("v1", "Node", name)) == "0"
    assert names(gpu_nodes(api)) == {name}
    api.delete(created[0])
    assert node_of(api, pod)["metadata"]["name"] == name


def test_twenty_at_once_stay_within_maximum_and_quota(api: Api, namespace: str, stack: Stack) -> None:
    waiting, refused, most = list(range(20)), 0, 0

    def all_are_made() -> bool:
        nonlocal refused, most
        try:
            job(api, stack, namespace, f"runner-{waiting[0]}", **{ENDS_AFTER: "1s"})
            waiting.pop(0)
        except ApiError as error:  # ARC comes again as well
            if "exceeded quota: pools" not in str(error):
                raise
            refused += 1
        most = max(most, len(gpu_nodes(api)))
        return not waiting

    until(all_are_made, seconds=60)
    until(lambda: all(p["status"]["phase"] == "Succeeded" for p in api.list("v1", "Pod", namespace)), seconds=60)
    assert refused
    # Kubernetes counts a quota's pods from a cache, and now and then admits one too many; without it there were ten.
    maximum = stack.fleet.pools["t4"].nodes.max
    assert maximum <= most <= maximum + 2
    until(lambda: not gpu_nodes(api))


# Who may go there.


def test_a_runner_without_its_toleration_waits_for_ever(
    api: Api, namespace: str, stack: Stack, groups: dict[str, Group], idle_after: IdleAfter
) -> None:
    idle_after(HOURS)
    name = nodes.grow(api, groups["t4-spot"])
    until(lambda: gpus(api.get("v1", "Node", name)) == "1")
    pod = runner(stack.fleet, "gpu")
    pod["metadata"]["namespace"], pod["spec"]["tolerations"] = namespace, []
    pod = api.create(pod)
    until(lambda: waits(api, pod))
    conditions = reread(api, pod)["status"]["conditions"]
    assert any("untolerated taint" in condition.get("message", "") for condition in conditions)
    time.sleep(1.5)  # longer than a boot
    assert names(gpu_nodes(api)) == {name}, "a node was bought for it"


def test_a_pod_without_a_toleration_lands_on_a_system_node(api: Api, namespace: str, groups: dict[str, Group]) -> None:
    nodes.grow(api, groups["t4-spot"])
    created = [api.create(plain_pod(f"plain-{number}", namespace)) for number in range(6)]
    assert {node_of(api, pod)["metadata"]["name"] for pod in created} <= {"system-0", "system-1"}


def test_daemonsets_land_on_every_gpu_node_and_system_ones_everywhere(
    api: Api, stack: Stack, created: list[Object], groups: dict[str, Group], idle_after: IdleAfter
) -> None:
    idle_after(HOURS)
    plugin, exporter = device_plugin.values(stack.fleet), monitoring.values(stack.fleet)
    places = {
        "plugin": _plugin_places(stack),
        "nfd": {key: plugin["nfd"]["worker"][key] for key in ("tolerations", "affinity")},
        "dcgm": {key: exporter[key] for key in ("tolerations", "nodeSelector")},
        "system": EVERYWHERE,
    }
    created += [daemonset(name, "kube-system", spec) for name, spec in places.items()]
    for object_ in created:
        api.apply(object_)
    fleet = fleets.named("bottlerocket").fleet
    bottlerocket = nodes.gpu_node(fleet, fleet.pools["t4"], "spot")
    fleet_nodes = {nodes.grow(api, groups["t4-spot"]), nodes.grow(api, groups["t4-on-demand"])}
    other = nodes.grow(api, replace(groups["t4-spot"], node=bottlerocket))
    system = {"system-0", "system-1"}
    every = {*fleet_nodes, other, *system}
    expected = {"plugin": fleet_nodes, "nfd": fleet_nodes, "dcgm": {*fleet_nodes, other}, "system": every}
    nodes_: dict[str, set[str]] = {name: set() for name in places}

    def everywhere() -> bool:
        for pod in api.list("v1", "Pod", "kube-system"):
            app, node = pod["metadata"]["labels"].get("app"), pod["spec"].get("nodeName")
            if app in nodes_ and node in every:
                nodes_[app].add(node)
        return all(nodes <= nodes_[name] for name, nodes in expected.items())

    until(everywhere)
    assert nodes_ == expected
    # They keep no node: the pool goes back to zero with them on it.
    idle_after(0.5)
    until(lambda: not gpu_nodes(api))


# What becomes of spot.


def test_on_demand_nodes_replace_spot_during_a_shortage(api: Api, namespace: str, stack: Stack, cluster: Lab) -> None:
    spot.set_shortage(cluster, ["t4-spot"])
    try:
        first = job(api, stack, namespace, "first")
        assert group_of(node_of(api, first)) == "t4-on-demand"
    finally:
        spot.set_shortage(cluster, [])
    log = (cluster.folder / "logs" / "autoscaler.log").read_text()
    assert "t4-spot gets no capacity" in log

    def back_on_spot() -> bool:
        pod = job(api, stack, namespace, "later")
        back = group_of(node_of(api, pod)) == "t4-spot"
        if not back:  # too early: it is still passed over
            api.delete(pod, gracePeriodSeconds="0")
            until(lambda: not api.find("v1", "Pod", "later", namespace))
        return back

    until(back_on_spot)


def test_a_job_ends_with_its_reclaimed_node_and_is_not_recreated(
    api: Api, namespace: str, stack: Stack, cluster: Lab, created: list[Object]
) -> None:
    created.append(daemonset("agent", "kube-system", EVERYWHERE))
    api.apply(created[0])
    pod = job(api, stack, namespace)
    until(lambda: reread(api, pod)["status"]["phase"] == "Running")
    lost = node_of(api, pod)
    grace = reread(api, pod)["spec"]["terminationGracePeriodSeconds"]
    assert grace < 120, "longer than the notice: the job would be killed in the middle of its end"

    evicted: list[tuple[str, ...]] = []
    name = lost["metadata"]["name"]
    reclaim = threading.Thread(target=lambda: evicted.append(spot.reclaim(cluster, name, notice_seconds=8)))
    with autoscaler_asleep(cluster):  # it would give the empty node back before the notice is over
        reclaim.start()
        until(lambda: api.get("v1", "Node", name)["spec"].get("unschedulable"))
        until(lambda: not api.find("v1", "Pod", "runner", namespace))
        assert api.find("v1", "Node", name), "the job goes within the notice, before the node"
        assert _pods_on(api, name) == {"agent"}, "a drain leaves DaemonSets alone"
        after = job(api, stack, namespace, "after")
        reclaim.join()
    assert evicted == [(f"{namespace}/runner",)]
    assert not api.find("v1", "Node", name)
    assert node_of(api, after)["metadata"]["name"] != name
    assert names(api.list("v1", "Pod", namespace)) == {"after"}
    log = cluster.folder / "logs" / "autoscaler.log"
    until(lambda: f"{name} is gone: t4-spot asks for another" in log.read_text())


@contextmanager
def autoscaler_asleep(cluster: Lab) -> Iterator[None]:
    pid = servers.status(cluster.folder).running["autoscaler"].pid
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _plugin_places(stack: Stack) -> dict[str, object]:
    """Return the placement values of the device plugin's pods."""
    values = device_plugin.values(stack.fleet)
    return {key: values[key] for key in ("tolerations", "affinity")}


def _ready(node: Object) -> bool:
    conditions = node["status"].get("conditions") or []
    return any(condition["type"] == "Ready" and condition["status"] == "True" for condition in conditions)


def _pods_on(api: Api, node: str) -> set[str]:
    here = api.list("v1", "Pod", fieldSelector=f"spec.nodeName={node}")
    return {pod["metadata"].get("labels", {}).get("app", pod["metadata"]["name"]) for pod in here}
