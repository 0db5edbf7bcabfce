"""A fleet at work as objects of Kubernetes, AWS and GitHub, which faults change."""

from __future__ import annotations

import copy
import json
from datetime import datetime, timedelta
from typing import Any

from infra import versions
from paddock.fleet import Stack, nodes
from paddock.kube.client import Api
from paddock.lab.simulators import nodes as simulated
from paddock.operate.snapshot.logs import Target, document
from paddock.operate.snapshot.model import Reading, Snapshot
from tests.support.kubernetes import runner, runner_set

Object = dict[str, Any]
ARC = "actions.github.com/v1alpha1"
SYSTEM, RUNNERS = "arc-systems", "arc-runners"
NODE, GROUP = "t4-spot-1", "eks-t4-spot-0a1b2c3-5ac0d7b6"
POD = "gpu-abc12-runner-x1"
LATER = timedelta(minutes=10)
"""From the making of every object to the snapshot."""
PARTS = {
    "Node": "nodes",
    "Pod": "pods",
    "Event": "events",
    "AutoscalingRunnerSet": "runner_sets",
    "AutoscalingListener": "listeners",
    "EphemeralRunnerSet": "runner_groups",
    "EphemeralRunner": "runners",
    "DaemonSet": "daemonsets",
    "Deployment": "deployments",
    "ResourceQuota": "quotas",
}


class World:
    """Objects of a fleet with one runner at work. `at` is the time of the snapshot."""

    def __init__(self, stack: Stack, at: datetime) -> None:
        self.stack, self.fleet, self.at = stack, stack.fleet, at
        self.absent: set[str] = set()
        """Kinds that the cluster does not know."""
        self.target = ""
        self.jobs: list[Object] = []
        self.logs: list[Object] = []
        self.github_runners: list[Object] = [{"id": 1, "name": POD, "status": "online", "busy": True, "labels": []}]
        self.groups: list[Object] = [
            {
                "nodegroupName": name,
                "clusterName": self.fleet.cluster_name,
                "status": "ACTIVE",
                "labels": {nodes.POOL: "t4"},
                "health": {"issues": []},
                "scalingConfig": {"minSize": 0, "maxSize": 5, "desiredSize": 1},
                "resources": {"autoScalingGroups": [{"name": name_of_scaling}]},
            }
            for name, name_of_scaling in (("t4-spot-0a1b2c3", GROUP),)
        ]
        self.scaling: list[Object] = [
            {
                "AutoScalingGroupName": GROUP,
                "MinSize": 0,
                "MaxSize": 5,
                "DesiredCapacity": 1,
                "DefaultCooldown": 300,
                "AvailabilityZones": ["us-west-2a"],
                "HealthCheckType": "EC2",
                "CreatedTime": at - timedelta(days=9),
                "Instances": [],
            }
        ]
        self.activities: list[Object] = []
        self.objects: list[Object] = [
            *self._programs(),
            *self._scale_set(),
            *(self._node(name, gpu=False) for name in ("system-0",)),
            self._node(NODE, gpu=True),
            *self._runner(),
        ]

    # Parts of it.

    def get(self, kind: str, name: str = "") -> Object:
        """Return the object of a kind, by its name where there are several."""
        named = [item for item in self.objects if item["kind"] == kind and name in ("", item["metadata"]["name"])]
        assert len(named) == 1, (kind, name, [item["metadata"]["name"] for item in named])
        return named[0]

    @property
    def pod(self) -> Object:
        return self.get("Pod", POD)

    def drop(self, kind: str, name: str = "") -> None:
        self.objects.remove(self.get(kind, name))

    def event(self, kind: str, name: str, reason: str, message: str, minutes_ago: float = 1) -> None:
        """Add an event of an object, as the kubelet or a controller writes it."""
        about = self.get(kind, name)
        namespace = about["metadata"].get("namespace", "")
        time = (self.at - timedelta(minutes=minutes_ago)).strftime("%Y-%m-%dT%H:%M:%SZ")
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name}.{len(self.objects):x}", "namespace": namespace or "default"},
                "involvedObject": {"kind": kind, "name": name, "namespace": namespace},
                "type": "Warning",
                "reason": reason,
                "message": message,
                "firstTimestamp": time,
                "lastTimestamp": time,
                "source": {"component": "test"},
            }
        )

    def pending(
        self, message: str = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    ) -> Object:
        """Take the pod off its node, which is not there any more; the scheduler has no other."""
        self.drop("Node", NODE)
        return self.unplaced(message)

    def unplaced(self, message: str = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu.") -> Object:
        """Take the pod off its node, which stays."""
        pod = self.pod
        pod["spec"].pop("nodeName", None)
        verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"] = {"phase": "Pending", "conditions": [verdict]}
        self.get("EphemeralRunner")["status"] = {"phase": "Pending", "runnerId": 9}
        self.github_runners = []
        return pod

    def stuck(self, reason: str, message: str = "") -> Object:
        """Let the pod's container wait on its node."""
        pod = self.pod
        pod["status"] = {
            "phase": "Pending",
            "containerStatuses": [_container(waiting={"reason": reason, "message": message})],
        }
        self.get("EphemeralRunner")["status"] = {"phase": "Pending", "runnerId": 9}
        self.github_runners = []
        return pod

    def ended(self, reason: str, code: int, message: str = "") -> None:
        over = {"reason": reason, "exitCode": code, "message": message}
        self.pod["status"] = {"phase": "Failed", "containerStatuses": [_container(terminated=over)]}
        self.get("EphemeralRunner")["status"] = {"phase": "Running", "runnerId": 9}
        self.github_runners = []

    def no_runner(self) -> None:
        """Leave the scale set without runners."""
        for kind, name in (("EphemeralRunner", ""), ("Pod", POD), ("Node", NODE)):
            self.drop(kind, name)
        self.github_runners = []

    def queued(self, *labels: str, status: str = "queued") -> None:
        """Queue a job at GitHub, and ask about it."""
        self.target = "https://github.com/acme/app/actions/runs/1/job/42"
        created = (self.at - timedelta(minutes=8)).isoformat()
        self.jobs = [{"id": 42, "status": status, "labels": list(labels), "created_at": created, "runner_name": None}]

    def log(self, pod: str, text: str, *, previous: bool = False) -> None:
        """Add the end of a container's log, as a snapshot has it."""
        item = self.get("Pod", pod)
        target = Target(str(item["metadata"]["namespace"]), pod, item["spec"]["containers"][0]["name"], previous)
        self.logs.append(document(target, text))

    def listener_ends(self, words: str, *, previous: bool = False) -> None:
        """Let the listener end again and again, with these last words."""
        self.no_runner()
        status = container(waiting={"reason": "CrashLoopBackOff", "message": "back-off 5m0s"})
        status |= {"restartCount": 9, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
        pod = self.listener_pod()
        pod["status"] |= {"conditions": [], "containerStatuses": [status]}
        text = f'time=2026-11-24T11:58:00.000Z level=INFO msg="refreshing token"\n2026/11/24 11:58:01 {words}\n'
        self.log(pod["metadata"]["name"], text, previous=previous)

    def controller_says(self, error: str, runner_set: str = "gpu", namespace: str = RUNNERS) -> None:
        """Leave the scale set without registration, with an error in the controller's log, as zap writes it."""
        self.no_runner()
        self.get("AutoscalingRunnerSet")["metadata"]["annotations"] = {}
        pod = _pod("arc-gha-rs-controller-5d9", SYSTEM, "system-0")
        pod["metadata"]["labels"] = {
            "app.kubernetes.io/part-of": "gha-rs-controller",
            "app.kubernetes.io/component": "controller-manager",
        }
        self.objects.append(pod)
        about = json.dumps({"name": runner_set, "namespace": namespace}, separators=(",", ":"))
        fields = f'{{"version": "0.14.2", "autoscalingrunnerset": {about}, "error": {json.dumps(error)}}}'
        said = "Failed to initialize Actions service client for creating a new runner scale set"
        line = f"2026-11-24T11:58:01Z\tERROR\tAutoscalingRunnerSet\t{said}\t{fields}"
        trace = "github.com/actions/actions-runner-controller/controllers/actions%2egithub%2ecom.(*Reconciler)"
        self.log(pod["metadata"]["name"], f"{line}\n{trace}\n\t/build/controller.go:1\n")

    def listener_pod(self) -> Object:
        return self.get("Pod", "gpu-754b578d-listener")

    def plugin_pod(self) -> Object:
        return self.get("Pod", "nvidia-device-plugin-w5x2q")

    def launch(self, message: str, state: str = "Failed", minutes_ago: float = 3, name: str = "i-0a") -> None:
        """Add an activity of the Auto Scaling group, the newest."""
        self.activities.insert(
            0,
            {
                "ActivityId": f"a{len(self.activities)}",
                "AutoScalingGroupName": GROUP,
                "Description": f"Launching a new EC2 instance: {name}",
                "Cause": "an increase of the desired capacity",
                "StartTime": self.at - timedelta(minutes=minutes_ago),
                "StatusCode": state,
                **({"StatusMessage": message} if message else {}),
            },
        )

    # Where it goes.

    def snapshot(self) -> Snapshot:
        """Return the world as one reading."""
        made = (self.at - LATER).strftime("%Y-%m-%dT%H:%M:%SZ")
        items: dict[str, list[Object]] = {part: [] for part in PARTS.values()}
        for item in copy.deepcopy(self.objects):
            item["metadata"].setdefault("creationTimestamp", made)
            items[PARTS[item["kind"]]].append(item)
        readings = {
            part: Reading(absent=True) if kind in self.absent else Reading(tuple(items[part]))
            for kind, part in PARTS.items()
        }
        return Snapshot(
            self.fleet,
            self.at,
            **readings,
            node_groups=Reading(tuple(self.groups)),
            scaling_groups=Reading(tuple(self.scaling)),
            activities=Reading(tuple(self.activities)),
            logs=Reading(tuple(self.logs)),
            jobs=Reading(tuple(self.jobs)) if self.jobs else Reading(reason="no credential for GitHub"),
            github_runners=Reading(tuple(self.github_runners)),
        )

    def create(self, api: Api) -> list[Object]:
        """Create every object on a server, with its status; the scheduler's own condition is left to the scheduler."""
        created = []
        # Pods without a node last: the scheduler places them as soon as they are there.
        ordered = sorted(self.objects, key=lambda item: item["kind"] == "Pod" and "nodeName" not in item["spec"])
        for item in copy.deepcopy(ordered):
            status = item.pop("status", {}) if item["kind"] != "Node" else {}
            taints = item["spec"].get("taints") or [] if item["kind"] == "Node" else None
            made = api.create(item)
            created.append(made)
            if item["kind"] == "Pod" and "nodeName" not in item["spec"]:
                status = {}
            if status:
                api.patch(made, {"status": status}, "status")
            if taints is not None:  # admission adds one that the node controller would take away
                api.patch(made, {"spec": {"taints": taints}})
        return created

    def answers(self) -> dict[str, Any]:
        """Return AWS's answers, for a stand-in whose answers are checked with botocore's models."""
        groups = {group["nodegroupName"]: group for group in self.groups}
        return {
            "eks.ListNodegroups": {"nodegroups": list(groups)},
            "eks.DescribeNodegroup": lambda asked: {"nodegroup": groups[asked["nodegroupName"]]},
            "autoscaling.DescribeAutoScalingGroups": {"AutoScalingGroups": self.scaling},
            "autoscaling.DescribeScalingActivities": {"Activities": self.activities},
        }

    # How it is made.

    def _programs(self) -> list[Object]:
        marks = {"app.kubernetes.io/part-of": "gha-rs-controller", "app.kubernetes.io/version": versions.ARC}
        return [
            _deployment("arc-gha-rs-controller", SYSTEM, marks),
            _deployment("cluster-autoscaler-aws-cluster-autoscaler", "kube-system", {}),
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
            {
                **_pod("nvidia-device-plugin-w5x2q", "kube-system", NODE),
                "metadata": {
                    "name": "nvidia-device-plugin-w5x2q",
                    "namespace": "kube-system",
                    "ownerReferences": [
                        {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "nvidia-device-plugin", "uid": "1"}
                    ],
                },
            },
        ]

    def _scale_set(self) -> list[Object]:
        item = runner_set(self.fleet, "gpu")
        labels = {"app.kubernetes.io/version": versions.ARC}
        item["metadata"] |= {"annotations": {"runner-scale-set-id": "7"}, "labels": labels}
        item["status"] = {"phase": "Running", "currentRunners": 1}
        label = {"actions.github.com/scale-set-name": "gpu", "actions.github.com/scale-set-namespace": RUNNERS}
        return [
            item,
            {
                "apiVersion": ARC,
                "kind": "EphemeralRunnerSet",
                "metadata": {"name": "gpu-abc12", "namespace": RUNNERS, "labels": label},
                "spec": {"replicas": 1, "patchID": 1},
            },
            {
                "apiVersion": ARC,
                "kind": "AutoscalingListener",
                "metadata": {"name": "gpu-754b578d-listener", "namespace": SYSTEM},
                "spec": {
                    "autoscalingRunnerSetName": "gpu",
                    "autoscalingRunnerSetNamespace": RUNNERS,
                    "ephemeralRunnerSetName": "gpu-abc12",
                    "runnerScaleSetId": 7,
                },
            },
            _pod("gpu-754b578d-listener", SYSTEM, "system-0"),
        ]

    def _node(self, name: str, *, gpu: bool) -> Object:
        if gpu:
            body = simulated.gpu_node(self.fleet, self.fleet.pools["t4"], "spot")
        else:
            body = simulated.system_nodes(self.fleet)[0]
        node = simulated.named(body, name)
        # No simulated kubelet: what stands here is what the node says.
        node["metadata"]["annotations"] = {}
        node["spec"].setdefault("taints", [])
        node["status"]["conditions"] = [{"type": "Ready", "status": "True", "reason": "KubeletReady"}]
        return node

    def _runner(self) -> list[Object]:
        pod = runner(self.fleet, "gpu", POD)
        pod["metadata"]["labels"] |= {
            "actions.github.com/scale-set-name": "gpu",
            "actions-ephemeral-runner": "True",
        }
        pod["spec"]["nodeName"] = NODE
        pod["status"] = {"phase": "Running", "containerStatuses": [_container(running={})]}
        label = {"actions.github.com/scale-set-name": "gpu"}
        return [
            {
                "apiVersion": ARC,
                "kind": "EphemeralRunner",
                "metadata": {"name": POD, "namespace": RUNNERS, "labels": label},
                "spec": {
                    "githubConfigUrl": "https://github.com/acme",
                    "githubConfigSecret": "credential",
                    "runnerScaleSetId": 7,
                    "spec": copy.deepcopy(pod["spec"]),
                },
                "status": {"phase": "Running", "runnerId": 9, "jobDisplayName": "test"},
            },
            pod,
        ]


def container(**state: Any) -> Object:
    """Return the status of a pod's one container."""
    return _container(**state)


def _container(**state: Any) -> Object:
    return {
        "name": "runner",
        "image": "ghcr.io/acme/runner:1",
        "imageID": "",
        "ready": "running" in state,
        "restartCount": 0,
        "state": state,
    }


def _deployment(name: str, namespace: str, labels: dict[str, str]) -> Object:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
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


def _pod(name: str, namespace: str, node: str) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"nodeName": node, "containers": [{"name": "runner", "image": "any"}]},
        "status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [_container(running={})],
        },
    }
