"""Look-ups in a snapshot: what belongs to a scale set, a pool or a node."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from paddock.fleet import Fleet, nodes
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.runner import Runner
from paddock.kubernetes import pods as pods_
from paddock.labels import POOL
from paddock.operate.snapshot.model import Object, Snapshot, of_fleet

SET_LABEL = "actions.github.com/scale-set-name"
RUNNER_LABEL = "actions-ephemeral-runner"
OF_RUNNER = "runner-pod"
"""Label with which ARC's container hook marks the pod of a job that does not run in its runner's."""
SET_ID = "runner-scale-set-id"
_TYPE = "node.kubernetes.io/instance-type"
_SET_LABELS = "runnerScaleSetLabels"


def labels_of(item: Object) -> Mapping[str, Any]:
    return item["metadata"].get("labels") or {}


def annotations_of(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}


def phase(item: Object) -> str:
    return str((item.get("status") or {}).get("phase") or "")


def condition(item: Object, type_: str) -> Object:
    """Return a condition of an object's status; empty where it has none of that type."""
    conditions = (item.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry.get("type") == type_), {})


def ready(item: Object) -> bool:
    return condition(item, "Ready").get("status") == "True"


def gpus_of(fleet: Fleet, node: Object) -> tuple[int, int]:
    """Return the GPUs that a node offers, and those that it should: its type's in its pool, or all that it counts."""
    status = node.get("status") or {}
    parts = ("allocatable", "capacity")
    offered, counted = (pods_.amounts(status.get(part)).get(nodes.GPU, 0) // 1000 for part in parts)
    pool = fleet.pools.get(labels_of(node).get(POOL, ""))
    own = (kind for kind in pool.types if kind.name == labels_of(node).get(_TYPE)) if pool else ()
    return offered, max([counted, *(pool.gpu_resources_per_node(kind) for kind in own if pool)])


def key_of(item: Object) -> tuple[str, str]:
    """Return namespace and name."""
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def set_name(runner_set: Object) -> str:
    """Return the name of a set at GitHub."""
    return str(runner_set["spec"].get("runnerScaleSetName") or runner_set["metadata"]["name"])


def stated_labels(snapshot: Snapshot, key: str) -> set[str]:
    """Return the labels that the stack file gives a runner."""
    spec = snapshot.fleet.runners[key]
    return {label.lower() for label in (spec.scale_set, *spec.effective_labels)}


def served_labels(snapshot: Snapshot, key: str) -> set[str]:
    """Return the labels of a runner's scale set as it is in the cluster."""
    runner_set = runner_set_of(snapshot, snapshot.fleet.runners[key])
    if runner_set is None:
        return set()
    return {str(label).lower() for label in (set_name(runner_set), *(runner_set["spec"].get(_SET_LABELS) or []))}


def serves(snapshot: Snapshot, key: str, job: Object) -> bool:
    """Return whether a scale set has, or by the stack file should have, every label of a job."""
    return requested_labels(job) <= served_labels(snapshot, key) | stated_labels(snapshot, key)


def requested_labels(job: Object) -> set[str]:
    """Return the labels of a job's `runs-on`."""
    return {str(label).lower() for label in job.get("labels") or []}


def runner_set_of(snapshot: Snapshot, spec: Runner) -> Object | None:
    """Return the AutoscalingRunnerSet of a runner."""
    return next((item for item in own_sets(snapshot) if set_name(item) == spec.scale_set), None)


def own_sets(snapshot: Snapshot) -> list[Object]:
    """Return the scale sets in the fleet's namespaces."""
    return [item for item in snapshot.runner_sets if of_fleet(snapshot.fleet, item)]


def makes(snapshot: Snapshot, key: str, runner: str) -> bool:
    """Return whether a runner's name is one that ARC gives the runners of a scale set."""
    spec = snapshot.fleet.runners[key]
    runner_set = runner_set_of(snapshot, spec)
    own = str(runner_set["metadata"]["name"] if runner_set else spec.scale_set)
    return re.fullmatch(rf"{re.escape(own)}(-[a-z0-9]{{5}})?-runner-[a-z0-9]+", runner) is not None


def groups_of(snapshot: Snapshot, runner_set: Object | None, spec: Runner) -> list[Object]:
    """Return the EphemeralRunnerSets of a scale set."""
    names = {spec.scale_set, *([str(runner_set["metadata"]["name"])] if runner_set else [])}
    uid = runner_set["metadata"].get("uid") if runner_set else None

    def of_set(item: Object) -> bool:
        owners = item["metadata"].get("ownerReferences") or []
        return labels_of(item).get(SET_LABEL) in names or any(uid and owner.get("uid") == uid for owner in owners)

    return [item for item in snapshot.runner_groups if of_set(item)]


def runner_group_of(snapshot: Snapshot, runner_set: Object | None, spec: Runner) -> Object | None:
    """Return the EphemeralRunnerSet that grows: there may be two while ARC changes a template."""
    groups = groups_of(snapshot, runner_set, spec)
    return max(groups, key=lambda item: str(item["metadata"].get("creationTimestamp")), default=None)


def listener_of(snapshot: Snapshot, runner_set: Object | None, spec: Runner) -> Object | None:
    """Return the AutoscalingListener of a scale set: of several, one that serves runners that are there.

    An upgrade of ARC can leave an old one next to the new one.
    """
    if runner_set is None:
        return None
    meta = runner_set["metadata"]
    place = (meta["name"], meta.get("namespace"))
    groups = {group["metadata"]["name"] for group in groups_of(snapshot, runner_set, spec)}

    def of_set(item: Object) -> bool:
        fields = item.get("spec") or {}
        return (fields.get("autoscalingRunnerSetName"), fields.get("autoscalingRunnerSetNamespace")) == place

    def rank(item: Object) -> tuple[bool, str]:
        return item["spec"].get("ephemeralRunnerSetName") in groups, str(item["metadata"].get("creationTimestamp"))

    return max(filter(of_set, snapshot.listeners), key=rank, default=None)


def runners_of(snapshot: Snapshot, key: str) -> list[Object]:
    """Return the EphemeralRunners of a scale set."""
    names = _set_object_names(snapshot, key)
    return [
        item for item in snapshot.runners if labels_of(item).get(SET_LABEL) in names or _owned(item, snapshot, names)
    ]


def runner_pods(snapshot: Snapshot, key: str) -> list[Object]:
    """Return the pods of a scale set's runners."""
    names = _set_object_names(snapshot, key)
    return [
        pod
        for pod in snapshot.pods
        if labels_of(pod).get(SET_LABEL) in names and RUNNER_LABEL in labels_of(pod) and OF_RUNNER not in labels_of(pod)
    ]


def pod_of(own_pods: Iterable[Object], runner: Object) -> Object | None:
    """Return the pod of a runner."""
    return next((pod for pod in own_pods if key_of(pod) == key_of(runner)), None)


def job_pod(snapshot: Snapshot, pod: Object | None) -> Object | None:
    """Return the pod that the job of a runner's pod has for itself; of several, the newest."""
    if pod is None:
        return None
    name = pod["metadata"]["name"]
    own = [item for item in snapshot.pods if labels_of(item).get(OF_RUNNER) == name]

    def rank(item: Object) -> tuple[bool, str]:
        return phase(item) != "Succeeded", str(item["metadata"].get("creationTimestamp"))

    return max(own, key=rank, default=None)


def work_of(runner: Object) -> str:
    """Return the job that a runner has, empty where it has none."""
    status = runner.get("status") or {}
    return str(status.get("jobDisplayName") or status.get("jobId") or status.get("jobRequestId") or "")


def pool_nodes(snapshot: Snapshot, pool: GpuPool) -> list[Object]:
    """Return the nodes of a pool that are in the cluster."""
    from paddock.fleet import nodes

    selector = nodes.gpu_selector(snapshot.fleet, pool)
    return [node for node in snapshot.nodes if selector.items() <= labels_of(node).items()]


def node_named(snapshot: Snapshot, name: Any) -> Object | None:
    return next((node for node in snapshot.nodes if node["metadata"]["name"] == name), None)


def used_by_node(snapshot: Snapshot) -> Mapping[str, Mapping[str, int]]:
    """Return what the pods on each node request together, by the node's name."""
    used: defaultdict[str, list[Mapping[str, int]]] = defaultdict(list)
    for pod in snapshot.pods:
        if pods_.occupies_node(pod):
            used[str(pod["spec"]["nodeName"])].append(pods_.requests(pod))
    return {name: pods_.total(requests) for name, requests in used.items()}


def _set_object_names(snapshot: Snapshot, key: str) -> set[str]:
    spec = snapshot.fleet.runners[key]
    runner_set = runner_set_of(snapshot, spec)
    return {spec.scale_set, *([str(runner_set["metadata"]["name"])] if runner_set else [])}


def _owned(item: Object, snapshot: Snapshot, names: set[str]) -> bool:
    owners = {str(owner["name"]) for owner in item["metadata"].get("ownerReferences") or []}
    return any(
        group["metadata"]["name"] in owners and labels_of(group).get(SET_LABEL) in names
        for group in snapshot.runner_groups
        if owners
    )
