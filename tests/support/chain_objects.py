"""Objects of a fleet at work, as Kubernetes and AWS hold them.

Objects of ARC have the form that version 0.14.2 gives them, its controller that of the chart itself.
"""

from __future__ import annotations

import copy
import pickle
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra import versions
from paddock.fleet import Fleet, Stack, nodes
from paddock.lab.simulators import nodes as simulated
from tests.support.kubernetes import runner, runner_set, runners

Object = dict[str, Any]
ARC = "actions.github.com/v1alpha1"
VERSION = versions.ARC
IMAGE = f"ghcr.io/actions/gha-runner-scale-set-controller:{VERSION}"
SYSTEM, RUNNERS = "arc-systems", "arc-runners"
NODE, GROUP = "t4-spot-1", "eks-t4-spot-0a1b2c3-5ac0d7b6"
SET, LISTENER = "gpu-abc12", "gpu-754b578d-listener"
POD = f"{SET}-runner-x1"
JOB_POD = f"{POD}-workflow"
"""Pod of a job in the container mode kubernetes, as ARC's hook names it."""
RUNNER_LABELS = {"actions.github.com/scale-set-name": "gpu", "actions-ephemeral-runner": "True"}
_fleets: dict[tuple[int, datetime], tuple[Fleet, bytes]] = {}
_nodes: dict[tuple[str, str, str], Object] = {}


def objects(stack: Stack, at: datetime, began: str) -> list[Object]:
    """Return every object of a fleet with one runner, whose program began then.

    Built once for a fleet and time, since pairs of faults need thousands of worlds.
    """
    fleet, key = stack.fleet, (id(stack.fleet), at)
    if key not in _fleets:
        items = [
            *_programs(),
            *_scale_sets(fleet),
            node(stack, "system-0"),
            node(stack, NODE),
            *_runner_at_work(fleet, began),
        ]
        _fleets[key] = (fleet, pickle.dumps(items))
    copies: list[Object] = pickle.loads(_fleets[key][1])
    return copies


def node(stack: Stack, name: str) -> Object:
    """Return a node of the pool, or a system node."""
    return copy.deepcopy(_node(stack.name, stack.fleet, name))


def instance(id_: str) -> Object:
    """Return an instance as an Auto Scaling group lists it."""
    return {
        "InstanceId": id_,
        "AvailabilityZone": "us-west-2a",
        "LifecycleState": "InService",
        "HealthStatus": "Healthy",
        "ProtectedFromScaleIn": False,
    }


def ephemeral_runner(fleet: Fleet, name: str) -> Object:
    """Return the EphemeralRunner of a runner."""
    owner = {"apiVersion": ARC, "kind": "EphemeralRunnerSet", "name": SET, "uid": "1"}
    labels = {"actions.github.com/scale-set-name": "gpu", "app.kubernetes.io/component": "runner"}
    return {
        "apiVersion": ARC,
        "kind": "EphemeralRunner",
        "metadata": {"name": name, "namespace": RUNNERS, "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "githubConfigUrl": fleet.github.url,
            "githubConfigSecret": "credential",
            "runnerScaleSetId": 7,
            "spec": copy.deepcopy(runner(fleet, "gpu", name)["spec"]),
        },
    }


def _programs() -> list[Object]:
    controller = copy.deepcopy(_controller())
    controller["status"] = {"replicas": 2, "readyReplicas": 2, "updatedReplicas": 2, "availableReplicas": 2}
    plugin = pod_on("nvidia-device-plugin-w5x2q", "kube-system", NODE)
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-device-plugin", "uid": "1"}
    plugin["metadata"]["ownerReferences"] = [owner]
    return [
        controller,
        _deployment("cluster-autoscaler-aws-cluster-autoscaler", "kube-system"),
        {
            "apiVersion": "apps/v1",
            "kind": "DaemonSet",
            "metadata": {"name": "nvidia-device-plugin", "namespace": "kube-system"},
            "spec": {
                "selector": {"matchLabels": {"app": "plugin"}},
                "template": {
                    "metadata": {"labels": {"app": "plugin"}},
                    "spec": {
                        "nodeSelector": {f"{nodes.GPU}.present": "true"},
                        "tolerations": [nodes.TAINT.toleration()],
                        "containers": [{"name": "plugin", "image": "any"}],
                    },
                },
            },
        },
        plugin,
    ]


def _scale_sets(fleet: Fleet) -> list[Object]:
    labels = {
        "app.kubernetes.io/part-of": "gha-runner-scale-set",
        "app.kubernetes.io/version": VERSION,
        "actions.github.com/scale-set-namespace": RUNNERS,
    }
    items: list[Object] = []
    for number, key in enumerate(fleet.runners, 7):
        name = fleet.runners[key].scale_set
        own = {**labels, "actions.github.com/scale-set-name": name}
        item = runner_set(fleet, key)
        item["metadata"] |= {"annotations": {"runner-scale-set-id": str(number)}, "labels": own}
        item["status"] = {"phase": "Running", "currentRunners": 1}
        group = SET if name == "gpu" else f"{name}-abc12"
        listener = LISTENER if name == "gpu" else f"{name}-754b578d-listener"
        fields = {
            "autoscalingRunnerSetName": name,
            "autoscalingRunnerSetNamespace": RUNNERS,
            "ephemeralRunnerSetName": group,
            "runnerScaleSetId": number,
            "image": IMAGE,
        }
        meta = {"name": listener, "namespace": SYSTEM, "labels": own}
        pod = pod_on(listener, SYSTEM, "system-0", "listener")
        pod["metadata"]["labels"] = {**own, "app.kubernetes.io/component": "runner-scale-set-listener"}
        pod["spec"]["restartPolicy"] = "Never"
        items += [
            item,
            {
                "apiVersion": ARC,
                "kind": "EphemeralRunnerSet",
                "metadata": {"name": group, "namespace": RUNNERS, "labels": own},
                "spec": {"replicas": int(name == "gpu"), "patchID": 1},
                "status": {"phase": "Running"},
            },
            {"apiVersion": ARC, "kind": "AutoscalingListener", "metadata": meta, "spec": fields},
            pod,
        ]
    return items


def _runner_at_work(fleet: Fleet, began: str) -> list[Object]:
    item = ephemeral_runner(fleet, POD)
    work = {"jobRequestId": 5, "jobId": "0b7c", "jobDisplayName": "test", "jobRepositoryName": "app"}
    item["status"] = {"phase": "Running", "ready": True, "runnerId": 9, "runnerName": POD, **work}
    own = {f"{name}-{role}": pod for pod in runners(fleet) for name, _, role in [_parts(pod)]}
    pod = copy.deepcopy(own["gpu-runner"])
    pod["metadata"] |= {"name": POD, "labels": {**pod["metadata"]["labels"], **RUNNER_LABELS}}
    pod["status"] = {"phase": "Running", "containerStatuses": [container(running={"startedAt": began})]}
    if "gpu-job" not in own:
        pod["spec"]["nodeName"] = NODE
        return [item, pod]
    pod["spec"]["nodeName"] = "system-0"
    job = copy.deepcopy(own["gpu-job"])
    job["metadata"] |= {"name": JOB_POD, "labels": {"runner-pod": POD}}
    job["spec"]["nodeName"] = NODE
    job["status"] = {"phase": "Running", "containerStatuses": [container("job", running={})]}
    return [item, pod, job]


@cache
def _controller() -> Object:
    controller: Object = yaml.safe_load((Path(__file__).parent / "chain_controller.yaml").read_text())
    return controller


def _node(kind: str, fleet: Fleet, name: str) -> Object:
    """Return a node, made once: of the pool, or a system node."""
    key = (kind, repr([(own, pool.instances) for own, pool in sorted(fleet.pools.items())]), name)
    if key not in _nodes:
        system = name.startswith("system")
        body = simulated.system_nodes(fleet)[0] if system else simulated.gpu_node(fleet, fleet.pools["t4"], "spot")
        node = simulated.named(body, name)
        # No simulated kubelet: what stands here is what the node says.
        node["metadata"]["annotations"] = {}
        node["spec"].setdefault("taints", [])
        node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        _nodes[key] = node
    return _nodes[key]


def _parts(pod: Object) -> tuple[str, str, str]:
    first, separator, last = pod["metadata"]["name"].rpartition("-")
    return first, separator, last


def container(name: str = "runner", **state: Any) -> Object:
    """Return the status of a pod's container."""
    return {
        "name": name,
        "image": "ghcr.io/acme/runner:1",
        "imageID": "",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _deployment(name: str, namespace: str) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [{"name": "program", "image": "any"}]},
            },
        },
        "status": {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "availableReplicas": 1},
    }


def pod_on(name: str, namespace: str, node: str, program: str = "runner") -> Object:
    """Return a pod that runs on a node."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": program, "image": "any"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [container(program, running={})],
        },
    }
