"""A fleet at work as objects of Kubernetes, AWS and GitHub, which faults change.

Objects of ARC have the form that version 0.14.2 gives them, its controller that of the chart itself.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from infra import versions
from paddock.fleet import Fleet, Stack, nodes
from paddock.kube.client import Api
from paddock.lab.simulators import nodes as simulated
from paddock.operate.snapshot.model import NOT_READ, Reading, Snapshot
from tests.support import fleets
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
HELD = "paddock.dev/test"
"""Finalizer that keeps an object on a real server while it is deleted."""
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


@cache
def variant(kind: str) -> Stack:
    """Return the example stack `dev`, or one that differs from it in what the kind names."""
    if kind == "dev":
        return fleets.example("dev")
    pool = {"instances": ["g4dn.xlarge", "g4dn.2xlarge"], "nodes": {"max": 5}}
    gpu: dict[str, Any] = {"pool": "t4", "labels": ["self-hosted", "linux", "x64", "gpu", "cuda"], "max": 5}
    parts: dict[str, dict[str, Any]] = {
        "four-gpus": {
            "pools": {"t4": {**pool, "instances": ["g4dn.12xlarge"]}},
            "runners": {"gpu": {**gpu, "gpus": 4}},
        },
        "fallback": {"pools": {"t4": {**pool, "fallback": "on-demand"}}},
        "job-pods": {"runners": {"gpu": {**gpu, "container": "kubernetes-novolume"}}},
        "two-sets": {"runners": {"gpu": gpu, "more": {**gpu, "labels": ["self-hosted", "gpu"]}}},
        "server": {
            "github": {
                "url": "https://github.example.com/acme",
                "serverVersion": "3.19",
                "app": {"id": "12345", "installation": "678"},
            }
        },
        "repository": {"github": {"url": "https://github.com/acme/app", "app": {"id": "12345", "installation": "678"}}},
    }
    return fleets.stack(fleets.fleet_data(**{"pools": {"t4": pool}, "runners": {"gpu": gpu}, **parts[kind]}), "dev")


class Contradiction(AssertionError):
    """Two changes cannot both be: a pod that waits for a node has no container that failed."""


class World:
    """Objects of a fleet with one runner at work. `at` is the time of the snapshot.

    With `keep`, a change that would leave the set without runners leaves the one that is there.
    """

    def __init__(self, stack: Stack, at: datetime, *, keep: bool = False) -> None:
        self.stack, self.fleet, self.at, self.keep = stack, stack.fleet, at, keep
        self.claimed: set[str] = set()
        """What a change has decided, so that no other one can: `pod`, `job`, `runners` and the like."""
        self.absent: set[str] = set()
        """Kinds that the cluster does not know."""
        self.ages: dict[tuple[str, str], float] = {}
        """Minutes since an object was made, by kind and name; else ten. A server dates objects by itself."""
        self.target = ""
        self.jobs: list[Object] = []
        self.job_log: str | None = None
        self.logs: list[Object] = []
        """Logs of pods, as a snapshot has them."""
        self.github_runners: list[Object] = [
            {"id": 9, "name": POD, "status": "online", "busy": True, "labels": []},
        ]
        bought = [f"t4-{capacity}-0a1b2c3" for capacity in nodes.capacities(self.fleet.pools["t4"])]
        self.groups: list[Object] = [
            {
                "nodegroupName": name,
                "clusterName": self.fleet.cluster_name,
                "status": "ACTIVE",
                "labels": {nodes.POOL: "t4"},
                "health": {"issues": []},
                "scalingConfig": {"minSize": 0, "maxSize": 5, "desiredSize": 1},
                "resources": {"autoScalingGroups": [{"name": f"eks-{name}-5ac0d7b6"}]},
            }
            for name in bought
        ]
        self.scaling: list[Object] = [
            {
                "AutoScalingGroupName": f"eks-{name}-5ac0d7b6",
                "MinSize": 0,
                "MaxSize": 5,
                "DesiredCapacity": 0,
                "DefaultCooldown": 300,
                "AvailabilityZones": ["us-west-2a"],
                "HealthCheckType": "EC2",
                "CreatedTime": at - timedelta(days=9),
                "Instances": [],
            }
            for name in bought
        ]
        self.activities: list[Object] = []
        self.objects: list[Object] = self._made()
        self.scaling[0]["Instances"] = [self.instance(self.get("Node", NODE)["spec"]["providerID"].rpartition("/")[2])]
        self.scaling[0]["DesiredCapacity"] = 1

    # Parts of it.

    def get(self, kind: str, name: str = "") -> Object:
        """Return the object of a kind, by its name where there are several."""
        named = [item for item in self.objects if item["kind"] == kind and name in ("", item["metadata"]["name"])]
        assert len(named) == 1, (kind, name, [item["metadata"]["name"] for item in named])
        return named[0]

    def has(self, kind: str, name: str) -> bool:
        return any(item["kind"] == kind and item["metadata"]["name"] == name for item in self.objects)

    @property
    def pod(self) -> Object:
        """Pod with the GPU: the runner's, or where jobs have pods of their own the job's."""
        return self.get("Pod", JOB_POD if self.has("Pod", JOB_POD) else POD)

    @property
    def runner(self) -> Object:
        return self.get("EphemeralRunner", POD)

    @property
    def runner_set(self) -> Object:
        return self.get("AutoscalingRunnerSet", "gpu")

    def listener_pod(self) -> Object:
        return self.get("Pod", LISTENER)

    def plugin_pod(self) -> Object:
        return self.get("Pod", "nvidia-device-plugin-w5x2q")

    def drop(self, kind: str, name: str = "") -> None:
        self.objects.remove(self.get(kind, name))

    def ago(self, minutes: float) -> str:
        """Return a time as Kubernetes writes it."""
        return (self.at - timedelta(minutes=minutes)).strftime("%Y-%m-%dT%H:%M:%SZ")

    # What happens to it.

    def claim(self, part: str) -> None:
        """Take a part for one change. Raises Contradiction where another has it."""
        if part in self.claimed:
            raise Contradiction(part)
        self.claimed.add(part)

    def event(
        self,
        kind: str,
        name: str,
        reason: str,
        message: str,
        minutes_ago: float = 1,
        *,
        since: float | None = None,
        uid: str = "",
    ) -> None:
        """Add an event, as the kubelet or a controller writes it; with a uid, of an object that is gone."""
        namespace = SYSTEM if name == LISTENER else RUNNERS if kind == "Pod" else ""
        about = {"kind": kind, "name": name, "namespace": namespace, **({"uid": uid} if uid else {})}
        first, last = self.ago(minutes_ago if since is None else since), self.ago(minutes_ago)
        self.objects.append(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{name}.{len(self.objects):x}", "namespace": namespace or "default"},
                "involvedObject": about,
                "type": "Warning",
                "reason": reason,
                "message": message,
                "firstTimestamp": first,
                "lastTimestamp": last,
                "source": {"component": "test"},
            }
        )

    def deleting(self, kind: str, name: str) -> None:
        """Let an object be deleted since it was made, and held by something that does not come."""
        item = self.get(kind, name)
        item["metadata"] |= {"deletionTimestamp": self.ago(10), "finalizers": [HELD]}

    def pending(
        self, message: str = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    ) -> Object:
        """Take the pod off its node, which is not there any more; the scheduler has no other."""
        self.drop("Node", NODE)
        self.scaling[0] |= {"Instances": [], "DesiredCapacity": 0}
        return self.unplaced(message)

    def unplaced(self, message: str = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu.") -> Object:
        """Take the pod off its node, which stays."""
        self.claim("pod")
        pod = self.pod
        pod["spec"].pop("nodeName", None)
        verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message}
        pod["status"] = {"phase": "Pending", "conditions": [verdict]}
        self._without_job()
        return pod

    def stuck(self, reason: str, message: str = "") -> Object:
        """Let the pod's container wait on its node."""
        self.claim("pod")
        pod = self.pod
        waiting = {"reason": reason, "message": message}
        pod["status"] = {"phase": "Pending", "containerStatuses": [container(waiting=waiting)]}
        self._without_job()
        return pod

    def failing(self, message: str = "", *, times: int = 2, reason: str = "", why: str = "") -> None:
        """Let pods of the runner fail as ARC 0.14.2 leaves it: each is deleted and noted, and only its events stay."""
        self.claim("pod")
        self.claim("resources")
        self.drop("Pod", POD)
        self._without_job()
        failures = {f"u{number}": self.ago(1 + times - number) for number in range(1, times + 1)}
        self.runner["status"] |= {"phase": "Pending", "ready": False, "failures": failures}
        if reason:
            self.runner["status"] |= {"reason": reason, "message": why}
        for number in range(1, times + 1) if message else ():
            self.event("Pod", POD, "Failed", f"Error: {message}", 1 + times - number, uid=f"u{number}")

    def lost(self, reason: str, code: int) -> None:
        """Let the container of a runner at work end: GitHub counts the job as running, and ARC's finalizer waits."""
        self.claim("pod")
        over = {"reason": reason, "exitCode": code}
        self.pod["status"] = {"phase": "Failed", "containerStatuses": [container(terminated=over)]}
        self.deleting("EphemeralRunner", POD)
        self.in_progress()

    def idle(self, minutes: float = 9) -> None:
        """Let the runner be up without a job for that long."""
        self.claim("pod")
        self.runner["status"] = {"phase": "Running", "ready": True, "runnerId": 9, "runnerName": POD}
        running = {"startedAt": self.ago(minutes)}
        self.pod["status"] = {"phase": "Running", "containerStatuses": [container(running=running)]}
        self.github_runners = [{"id": 9, "name": POD, "status": "online", "busy": False, "labels": []}]

    def _without_job(self) -> None:
        if self.has("Pod", JOB_POD):
            return  # the runner itself is up, and has the job
        self.runner["status"] = {"phase": "Pending", "runnerId": 9, "runnerName": POD}
        self.github_runners = []

    def no_runner(self) -> None:
        """Leave the scale set without runners, and the pool without nodes."""
        if self.keep or not self.has("EphemeralRunner", POD):
            return
        if "pod" in self.claimed:
            raise Contradiction("pod")
        for kind, name in (("EphemeralRunner", POD), ("Pod", POD), ("Node", NODE)):
            self.drop(kind, name)
        self.get("EphemeralRunnerSet", SET)["spec"]["replicas"] = 0
        self.scaling[0] |= {"Instances": [], "DesiredCapacity": 0}
        self.github_runners = []

    def another(self, name: str, **status: Any) -> Object:
        """Add a runner without a pod."""
        if name == POD:
            self.claim("runners")
        if self.has("EphemeralRunner", name):
            raise Contradiction(name)
        item = copy.deepcopy(self._ephemeral(name))
        item["status"] = status
        self.objects.append(item)
        return item

    def at_work(self, name: str) -> None:
        """Add a runner with another job, on a node of its own that it fills."""
        self.another(name, phase="Running", ready=True, runnerId=8, runnerName=name, jobId="j8", jobDisplayName="other")
        pod = copy.deepcopy(runner(self.fleet, "gpu", name))
        pod["metadata"]["labels"] |= self._runner_labels()
        pod["spec"]["nodeName"] = f"node-of-{name}"
        pod["status"] = {"phase": "Running", "containerStatuses": [container(running={"startedAt": self.ago(9)})]}
        self.objects.append(pod)
        self.add_node(f"node-of-{name}")
        self.github_runners.append({"id": 8, "name": name, "status": "online", "busy": True, "labels": []})
        self.get("EphemeralRunnerSet", SET)["spec"]["replicas"] += 1

    def add_node(self, name: str) -> Object:
        """Add a node of the pool."""
        self.objects.append(self._node(name))
        return self.objects[-1]

    def fill(self) -> None:
        """Give the pool all the nodes that it may have, each with a pod that takes its GPU."""
        self.claim("nodes")
        for number in range(2, 6):
            self.add_node(f"t4-spot-{number}")
        for number in range(1, 6):
            gpu = {"requests": {nodes.GPU: "1"}, "limits": {nodes.GPU: "1"}}
            pod = pod_on(f"another-job-{number}", RUNNERS, f"t4-spot-{number}")
            pod["spec"]["containers"][0]["resources"] = gpu
            self.objects.append(pod)
        self.scaling[0]["DesiredCapacity"] = 5

    def queued(self, *labels: str, status: str = "queued", minutes: float = 8) -> None:
        """Queue a job at GitHub, and ask about it."""
        self.claim("job")
        created = self.at - timedelta(minutes=minutes)
        self.target = "https://github.com/acme/app/actions/runs/1/job/42"
        self.jobs = [
            {
                "id": 42,
                "name": "train",
                "status": status,
                "conclusion": None,
                "labels": list(labels or ("self-hosted", "gpu")),
                "created_at": created.isoformat(),
                "runner_name": None,
            }
        ]

    def in_progress(self, name: str = POD) -> None:
        """Let GitHub say that a job runs on a runner, and ask about it."""
        self.queued()
        self.jobs[0] |= {"status": "in_progress", "runner_name": name}

    def completed(self, conclusion: str, log: str) -> None:
        """Let a job end on a runner that ARC has taken away since, and ask about it."""
        self.no_runner()
        self.in_progress()
        self.jobs[0] |= {"status": "completed", "conclusion": conclusion}
        self.job_log = log

    def launch(
        self,
        message: str,
        state: str = "Failed",
        minutes_ago: float = 3,
        *,
        group: str = GROUP,
        instance: str = "i-0a",
    ) -> None:
        """Add an activity of an Auto Scaling group, the newest."""
        self.activities.insert(
            0,
            {
                "ActivityId": f"a{len(self.activities)}",
                "AutoScalingGroupName": group,
                "Description": f"Launching a new EC2 instance: {instance}",
                "Cause": "an increase of the desired capacity",
                "StartTime": self.at - timedelta(minutes=minutes_ago),
                "StatusCode": state,
                **({"StatusMessage": message} if message else {}),
            },
        )

    def bought(self, minutes_ago: float, group: str = GROUP) -> None:
        """Let cluster-autoscaler buy a node for the pod."""
        message = f"pod triggered scale-up: [{{{group} 0->1 (max: 5)}}]"
        self.event("Pod", self.pod["metadata"]["name"], "TriggeredScaleUp", message, minutes_ago)

    def refused(self, reasons: str) -> None:
        """Let cluster-autoscaler buy none for the pod."""
        message = f"pod didn't trigger scale-up: {reasons}"
        self.event("Pod", self.pod["metadata"]["name"], "NotTriggerScaleUp", message)

    # Where it goes.

    def dated(self, item: Mapping[str, Any]) -> Object:
        """Return an object with the date that the world gives it, where it gives one."""
        age = self.ages.get((item["kind"], item["metadata"]["name"]))
        if age is None:
            return dict(item)
        metadata = {key: value for key, value in item["metadata"].items() if key != "managedFields"}
        return {**item, "metadata": {**metadata, "creationTimestamp": self.ago(age)}}

    def snapshot(self) -> Snapshot:
        """Return the world as one reading."""
        made = self.ago(10)
        items: dict[str, list[Object]] = {part: [] for part in PARTS.values()}
        for item in pickle.loads(pickle.dumps(self.objects)):
            item["metadata"].setdefault("creationTimestamp", made)
            items[PARTS[item["kind"]]].append(self.dated(item))
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
            **self.at_github(),
            earlier=None,
        )

    def at_github(self) -> dict[str, Reading]:
        """Return what GitHub's API says."""
        return {
            "jobs": Reading(tuple(map(dict, self.jobs)))
            if self.jobs
            else Reading(reason="no credential for GitHub: --github-key FILE"),
            "github_runners": Reading(tuple(self.github_runners)),
            "job_log": NOT_READ if self.job_log is None else Reading(({"id": "42", "text": self.job_log},)),
        }

    def create(self, api: Api) -> list[Object]:
        """Create every object on a server, with its status; the scheduler's own condition is left to the scheduler."""
        created = []
        # Pods without a node last: the scheduler places them as soon as they are there.
        ordered = sorted(self.objects, key=lambda item: item["kind"] == "Pod" and "nodeName" not in item["spec"])
        for item in copy.deepcopy(ordered):
            deleted = item["metadata"].pop("deletionTimestamp", None)
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
            if deleted:
                api.delete(made, grace_seconds=0)
        return created

    def answers(self) -> dict[str, Any]:
        """Return AWS's answers, for a stand-in whose answers are checked with botocore's models."""
        groups = {group["nodegroupName"]: group for group in self.groups}
        return {
            "eks.ListNodegroups": {"nodegroups": list(groups)},
            "eks.DescribeNodegroup": lambda asked: {"nodegroup": groups[asked["nodegroupName"]]},
            "autoscaling.DescribeAutoScalingGroups": {"AutoScalingGroups": self.scaling},
            "autoscaling.DescribeScalingActivities": lambda asked: {
                "Activities": [one for one in self.activities if one["AutoScalingGroupName"] == _asked(asked)]
            },
        }

    # How it is made.

    def _made(self) -> list[Object]:
        """Return every object; made once for a fleet and time, since pairs of faults need thousands of worlds."""
        key = (id(self.fleet), self.at)
        if key not in _worlds:
            objects = [
                *self._programs(),
                *self._scale_set(),
                self._node("system-0"),
                self._node(NODE),
                *self._runner(),
            ]
            _worlds[key] = (self.fleet, pickle.dumps(objects))
        made: list[Object] = pickle.loads(_worlds[key][1])
        return made

    def _programs(self) -> list[Object]:
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

    def _scale_set(self) -> list[Object]:
        labels = {
            "app.kubernetes.io/part-of": "gha-runner-scale-set",
            "app.kubernetes.io/version": VERSION,
            "actions.github.com/scale-set-namespace": RUNNERS,
        }
        made: list[Object] = []
        for number, key in enumerate(self.fleet.runners, 7):
            name = self.fleet.runners[key].scale_set
            own = {**labels, "actions.github.com/scale-set-name": name}
            item = runner_set(self.fleet, key)
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
            made += [
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
        return made

    def _node(self, name: str) -> Object:
        return copy.deepcopy(_node(self.stack.name, self.fleet, name))

    def instance(self, id_: str) -> Object:
        return {
            "InstanceId": id_,
            "AvailabilityZone": "us-west-2a",
            "LifecycleState": "InService",
            "HealthStatus": "Healthy",
            "ProtectedFromScaleIn": False,
        }

    def _runner_labels(self) -> dict[str, str]:
        return {"actions.github.com/scale-set-name": "gpu", "actions-ephemeral-runner": "True"}

    def _ephemeral(self, name: str) -> Object:
        """Return the EphemeralRunner of a runner."""
        owner = {"apiVersion": ARC, "kind": "EphemeralRunnerSet", "name": SET, "uid": "1"}
        labels = {"actions.github.com/scale-set-name": "gpu", "app.kubernetes.io/component": "runner"}
        return {
            "apiVersion": ARC,
            "kind": "EphemeralRunner",
            "metadata": {"name": name, "namespace": RUNNERS, "labels": labels, "ownerReferences": [owner]},
            "spec": {
                "githubConfigUrl": self.fleet.github.url,
                "githubConfigSecret": "credential",
                "runnerScaleSetId": 7,
                "spec": copy.deepcopy(runner(self.fleet, "gpu", name)["spec"]),
            },
        }

    def _runner(self) -> list[Object]:
        item = self._ephemeral(POD)
        work = {"jobRequestId": 5, "jobId": "0b7c", "jobDisplayName": "test", "jobRepositoryName": "app"}
        item["status"] = {"phase": "Running", "ready": True, "runnerId": 9, "runnerName": POD, **work}
        own = {f"{name}-{role}": pod for pod in runners(self.fleet) for name, _, role in [_parts(pod)]}
        pod = copy.deepcopy(own["gpu-runner"])
        pod["metadata"] |= {"name": POD, "labels": {**pod["metadata"]["labels"], **self._runner_labels()}}
        pod["status"] = {"phase": "Running", "containerStatuses": [container(running={"startedAt": self.ago(9)})]}
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
    made: Object = yaml.safe_load((Path(__file__).parent / "chain_controller.yaml").read_text())
    return made


_worlds: dict[tuple[int, datetime], tuple[Fleet, bytes]] = {}
_nodes: dict[tuple[str, str, str], Object] = {}


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
    return tuple(pod["metadata"]["name"].rpartition("-"))  # type: ignore[return-value]


def _asked(parameters: Mapping[str, Any]) -> str:
    return str(parameters["AutoScalingGroupName"])


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
