"""A simulated node between its registration and its first job: which taint it comes with, and when its GPUs appear.

A kubelet registers a node as uninitialized, which the cloud's controller takes back at once, and without GPUs, which
come when the device plugin runs there. Pure functions; `paddock.lab.simulators.autoscaler` does what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from paddock.fleet import nodes
from paddock.kubernetes import pods
from paddock.kubernetes.pods import Object
from paddock.labels import BOTTLEROCKET, DEVICE_PLUGIN, LAB_GPUS

UNINITIALIZED = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
_PLUGINS = {"nvidia-device-plugin", "nvidia-device-plugin-daemonset"}
"""DaemonSets of NVIDIA's chart, and of its manifest without Helm."""


def registered(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node as it registers, from what it will be once it has booted."""
    meta, spec, status = node["metadata"], node["spec"], node["status"]
    gpus = status["allocatable"].get(nodes.GPU)
    if gpus is None:
        return {**node}
    annotations = {**(meta.get("annotations") or {}), LAB_GPUS: gpus}
    without = {part: {k: v for k, v in status[part].items() if k != nodes.GPU} for part in ("allocatable", "capacity")}
    return {
        **node,
        "metadata": {**meta, "annotations": annotations},
        "spec": {**spec, "taints": [*(spec.get("taints") or []), UNINITIALIZED]},
        "status": {**status, **without},
    }


def initialized(node: Object) -> dict[str, Any] | None:
    """Return the change that the cloud's controller makes to a new node; None for a node that it has initialized."""
    taints = node["spec"].get("taints") or []
    remaining = [taint for taint in taints if taint["key"] != UNINITIALIZED["key"]]
    if len(remaining) == len(taints):
        return None
    # The node life-cycle controller changes the same list at the same time: the later one is refused and tried again.
    return {"metadata": {"resourceVersion": node["metadata"]["resourceVersion"]}, "spec": {"taints": remaining}}


def advertised(node: Object) -> dict[str, Any]:
    """Return the change that the device plugin makes to a node's status."""
    gpus = {nodes.GPU: (node["metadata"].get("annotations") or {})[LAB_GPUS]}
    return {"status": {"allocatable": gpus, "capacity": gpus}}


def plugin_since(
    all_nodes: Iterable[Object],
    all_pods: Sequence[Object],
    daemonsets: Iterable[Object],
    before: Mapping[str, float],
    now: float,
) -> dict[str, float]:
    """Return the nodes that wait for their GPUs and have what brings them -> since when.

    That is the running pod of a device plugin or, where the cluster does not have such a DaemonSet, the kubelet alone.
    """
    plugins = {daemonset["metadata"]["name"] for daemonset in daemonsets} & _PLUGINS
    served = {pod["spec"].get("nodeName") for pod in all_pods if _of(pod, plugins) and _is(pod, "Ready")}
    since = {}
    for node in all_nodes:
        name, labels = node["metadata"]["name"], node["metadata"].get("labels") or {}
        own = not plugins or labels.get(DEVICE_PLUGIN) == BOTTLEROCKET
        if waits_for_gpus(node) and _is(node, "Ready") and (own or name in served):
            since[name] = before.get(name, now)
    return since


def waits_for_gpus(node: Object) -> bool:
    """Return whether a node will have GPUs and has none yet."""
    advertised_gpus = pods.amounts(node["status"].get("allocatable")).get(nodes.GPU, 0)
    return LAB_GPUS in (node["metadata"].get("annotations") or {}) and not advertised_gpus


def event(about: Object, type_: str, reason: str, message: str) -> dict[str, Any]:
    """Return an event about an object, without a name and a time."""
    meta = about["metadata"]
    reference = {**{key: about[key] for key in ("apiVersion", "kind")}, "namespace": meta["namespace"]}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": meta["namespace"]},
        "involvedObject": {**reference, "name": meta["name"], "uid": meta["uid"]},
        "type": type_,
        "reason": reason,
        "message": message,
    }


def _of(pod: Object, daemonsets: Iterable[str]) -> bool:
    owners = pod["metadata"].get("ownerReferences") or []
    return any(owner["kind"] == "DaemonSet" and owner["name"] in daemonsets for owner in owners)


def _is(object_: Object, condition: str) -> bool:
    conditions = object_["status"].get("conditions") or []
    return any(candidate["type"] == condition and candidate["status"] == "True" for candidate in conditions)
