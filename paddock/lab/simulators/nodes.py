"""Simulated nodes of a fleet: what registers when a node boots, made from the same facts that the plan fits jobs with.

kwok plays the kubelet of each; scheduler, taints, admission and node life cycle are the control plane's own.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.catalog.nodes import cold_start
from paddock.fleet import Fleet, Stack, nodes
from paddock.fleet.model.cluster import NewCluster
from paddock.fleet.model.pool import Bottlerocket, GpuPool
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.nodes import CapacityName
from paddock.fleet.sizing import capacity
from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import BOOT_SECONDS
from paddock.lab.control_plane import daemon
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import write_private
from paddock.lab.simulators import boot, scaling
from paddock.lab.simulators.scaling import NODE_GROUP, Group
from paddock.labels import POOL

if TYPE_CHECKING:
    from paddock.plan.engine.graph import Graph

AUTOSCALER = "autoscaler"
SYSTEM_GROUP = "system"
PLUGIN_SECONDS = 0.5
IDLE_SECONDS = 20.0
"""Ten minutes on AWS; a lab is watched."""
_ZONES = "abc"
_SYSTEM_PODS = 29
"""maxPods of an m7i.large."""


def start(
    lab: Lab, stack: Stack, *, boot_seconds: float | None = BOOT_SECONDS, idle_seconds: float = IDLE_SECONDS
) -> None:
    """Create the system nodes of a stack and start its autoscaler. Existing nodes stay.

    `boot_seconds` of None takes the published figures for the pool's operating system.
    """
    with lab_api(lab.kubeconfig) as api:
        there = {node["metadata"]["name"] for node in api.list("v1", "Node")}
        for node in system_nodes(stack.fleet):
            if node["metadata"]["name"] not in there:
                api.create(node)

    def timed(group: Group) -> Group:
        if boot_seconds is not None:
            return replace(group, boot_seconds=boot_seconds, plugin_seconds=min(PLUGIN_SECONDS, boot_seconds))
        system = (
            "bottlerocket" if isinstance(stack.fleet.ami(stack.fleet.pools[group.pool]), Bottlerocket) else "al2023"
        )
        typical = {part.key: part.typical for part in cold_start(system)}
        return replace(group, boot_seconds=typical["node"], plugin_seconds=typical["plugin"])

    configure_autoscaler(lab, map(timed, groups(stack)), idle_seconds)


def configure_autoscaler(lab: Lab, node_groups: Iterable[Group], idle_seconds: float = IDLE_SECONDS) -> None:
    """Configure the lab's autoscaler with these groups, and start it where it does not run."""
    document = {"idle_seconds": idle_seconds, "groups": list(map(asdict, node_groups))}
    write_private(lab.folder / "groups.json", f"{json.dumps(document, indent=2)}\n")
    if not daemon.is_running(lab, AUTOSCALER):
        daemon.start(lab, AUTOSCALER, "paddock.lab.simulators.autoscaler", str(lab.folder))


def groups(stack: Stack, graph: Graph | None = None) -> tuple[Group, ...]:
    """Return the GPU node groups that the stack's program declares."""
    if graph is None:
        from paddock.plan.engine.program import plan_graph

        graph = plan_graph(stack)
    expander = _expander_priorities(graph)
    node_groups = []
    for resource in graph.of_type("aws:eks/nodeGroup:NodeGroup"):
        pool = resource.inputs["labels"].get(POOL)
        if pool:
            bought = next(
                capacity_name for capacity_name in nodes.EKS_CAPACITY if resource.name == f"{pool}-{capacity_name}"
            )
            size = resource.inputs["scalingConfig"]
            body = gpu_node(stack.fleet, stack.fleet.pools[pool], bought)
            limits = (int(size["minSize"]), int(size["maxSize"]))
            # EKS names the Auto Scaling group after the node group, and Pulumi that after the resource.
            rank = scaling.priority(expander, f"eks-{resource.name}-0a1b2c3-5ac0d7b6-0000-0000-0000-000000000000")
            described = {key: resource.inputs[key] for key in ("labels", "taints", "tags")}
            node_groups.append(Group(resource.name, pool, bought, *limits, **described, node=body, priority=rank))
    return tuple(node_groups)


def gpu_node(fleet: Fleet, pool: GpuPool, bought: CapacityName) -> Object:
    """Return the Node object of a pool's node, without a name, of the type that is asked for first."""
    kind = pool.types[0]
    has = capacity.allocatable(fleet, pool, kind)
    disk = has.ephemeral_mib + has.reserved.ephemeral_mib + has.eviction_ephemeral_mib
    labels = {
        **nodes.labels(fleet, pool),
        NODE_GROUP: f"{pool.name}-{bought}",
        "eks.amazonaws.com/capacityType": nodes.EKS_CAPACITY[bought],
    }
    gpus = {nodes.GPU: str(has.gpus)}
    return _node(
        kind,
        fleet.region,
        labels,
        taints=[{"key": nodes.TAINT.key, "value": nodes.TAINT.value, "effect": nodes.TAINT.effect}],
        allocatable=_resources(has.cpu_m, has.memory_mib, has.ephemeral_mib, has.pods) | gpus,
        total=_resources(has.capacity.cpu_m, has.capacity.memory_mib, disk, has.pods) | gpus,
    )


def system_nodes(fleet: Fleet) -> list[Object]:
    """Return the initial nodes without GPUs; two of a common kind where they are not the fleet's."""
    own = isinstance(fleet.cluster, NewCluster)
    system = fleet.cluster.system if isinstance(fleet.cluster, NewCluster) else None
    kind = catalog.instance(system.instances[0] if system else "m7i.large")
    has, keeps = capacity.capacity(kind), capacity.reserved(kind, _SYSTEM_PODS)
    disk = system.disk if system else 50 * 1024
    eviction = -(-disk * capacity.EVICTION_DISK_PERCENT // 100)
    memory = has.memory_mib - keeps.memory_mib - capacity.EVICTION_MEMORY_MIB
    template = _node(
        kind,
        fleet.region,
        {
            **(nodes.system_selector(fleet) if own else {}),
            NODE_GROUP: SYSTEM_GROUP,
            "eks.amazonaws.com/capacityType": "ON_DEMAND",
        },
        taints=[],
        allocatable=_resources(has.cpu_m - keeps.cpu_m, memory, disk - keeps.ephemeral_mib - eviction, _SYSTEM_PODS),
        total=_resources(has.cpu_m, has.memory_mib, disk, _SYSTEM_PODS),
    )
    count = max(system.nodes.min, 1) if system else 2
    return [named(template, f"{SYSTEM_GROUP}-{number}", number) for number in range(count)]


def named(template: Mapping[str, Any], name: str, number: int = 0) -> Object:
    """Return one node of a template, in the zone of its number."""
    node: Object = json.loads(json.dumps(template))
    labels = node["metadata"]["labels"]
    labels["kubernetes.io/hostname"] = name
    labels["topology.kubernetes.io/zone"] = labels["topology.kubernetes.io/region"] + _ZONES[number % len(_ZONES)]
    node["metadata"]["name"] = name
    node["spec"]["providerID"] = f"aws:///{labels['topology.kubernetes.io/zone']}/i-{secrets.token_hex(8)}0"
    return node


def grow(api: Api, group: Group) -> str:
    """Register a node of a group and return its name; its GPUs come later, as the autoscaler's process sees to."""
    name = f"{group.name}-{secrets.token_hex(3)}"
    api.create(boot.registered(named(group.node, name)))
    return name


def shrink(api: Api, name: str) -> None:
    """Delete a node and its pods."""
    api.delete({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})


def overview(api: Api) -> list[dict[str, Any]]:
    """Return each node with its pods, for a screen."""
    running = [pod for pod in api.list("v1", "Pod") if pods.occupies_node(pod)]
    rows = []
    for node in api.list("v1", "Node"):
        labels, name = node["metadata"].get("labels") or {}, node["metadata"]["name"]
        here = [pod for pod in running if pod["spec"]["nodeName"] == name]
        rows.append(
            {
                "name": name,
                "pool": labels.get(POOL, ""),
                "capacity": labels.get("eks.amazonaws.com/capacityType", "").lower().replace("_", "-"),
                "instance": labels.get("node.kubernetes.io/instance-type", ""),
                "gpus": pods.amounts(node["status"].get("allocatable")).get(nodes.GPU, 0) // 1000,
                "gpus_used": sum(pods.requests(pod).get(nodes.GPU, 0) for pod in here) // 1000,
                "pods": [pods.name(pod) for pod in here],
            }
        )
    return rows


def waiting(api: Api) -> list[dict[str, str]]:
    """Return each pod that the scheduler found no node for, with its reason."""
    unscheduled = filter(pods.is_unschedulable, api.list("v1", "Pod"))
    return [{"pod": pods.name(pod), "why": pods.unschedulable_reason(pod)} for pod in unscheduled]


def _expander_priorities(graph: Graph) -> str:
    for release in graph.of_type("kubernetes:helm.sh/v3:Release"):
        if priorities := release.inputs["values"].get("expanderPriorities"):
            return str(priorities)
    return ""


def _node(
    kind: InstanceType,
    region: str,
    labels: Mapping[str, str],
    *,
    taints: list[dict[str, str]],
    allocatable: Mapping[str, str],
    total: Mapping[str, str],
) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {"kwok.x-k8s.io/node": "fake"},
            "labels": {
                "kubernetes.io/arch": "amd64",
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": kind.name,
                "topology.kubernetes.io/region": region,
                **labels,
            },
        },
        "spec": {"taints": taints},
        "status": {
            "allocatable": dict(allocatable),
            "capacity": dict(total),
            "nodeInfo": {
                "architecture": "amd64",
                "operatingSystem": "linux",
                "osImage": "paddock lab (simulated)",
                **dict.fromkeys(("bootID", "machineID", "systemUUID", "kernelVersion"), "lab"),
                **dict.fromkeys(("containerRuntimeVersion", "kubeProxyVersion", "kubeletVersion"), "lab://0"),
            },
        },
    }


def _resources(cpu_m: int, memory_mib: int, disk_mib: int, most_pods: int) -> dict[str, str]:
    return {
        "cpu": format_cpu(cpu_m),
        "memory": format_memory(memory_mib),
        "ephemeral-storage": format_memory(disk_mib),
        "pods": str(most_pods),
    }
