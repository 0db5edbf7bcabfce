"""A fleet at work as objects of Kubernetes, AWS and GitHub, which faults change."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from datetime import datetime, timedelta
from functools import cache
from typing import Any

from paddock.fleet import Stack, nodes
from paddock.kubernetes.client import Api
from paddock.labels import POOL
from paddock.operate.snapshot.model import NOT_READ, Reading, Snapshot
from tests.support import fleets
from tests.support.chain_objects import (
    GROUP,
    JOB_POD,
    LISTENER,
    NODE,
    POD,
    RUNNER_LABELS,
    RUNNERS,
    SET,
    SYSTEM,
    Object,
    container,
    ephemeral_runner,
    instance,
    node,
    objects,
    pod_on,
)
from tests.support.kubernetes import runner

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
        self.admissions: list[Object] = []
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
                "labels": {POOL: "t4"},
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
        self.objects: list[Object] = objects(stack, at, self.ago(9))
        self.scaling[0]["Instances"] = [instance(self.get("Node", NODE)["spec"]["providerID"].rpartition("/")[2])]
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
        item = ephemeral_runner(self.fleet, name)
        item["status"] = status
        self.objects.append(item)
        return item

    def at_work(self, name: str) -> None:
        """Add a runner with another job, on a node of its own that it fills."""
        self.another(name, phase="Running", ready=True, runnerId=8, runnerName=name, jobId="j8", jobDisplayName="other")
        pod = copy.deepcopy(runner(self.fleet, "gpu", name))
        pod["metadata"]["labels"] |= RUNNER_LABELS
        pod["spec"]["nodeName"] = f"node-of-{name}"
        pod["status"] = {"phase": "Running", "containerStatuses": [container(running={"startedAt": self.ago(9)})]}
        self.objects.append(pod)
        self.add_node(f"node-of-{name}")
        self.github_runners.append({"id": 8, "name": name, "status": "online", "busy": True, "labels": []})
        self.get("EphemeralRunnerSet", SET)["spec"]["replicas"] += 1

    def add_node(self, name: str) -> Object:
        """Add a node of the pool."""
        self.objects.append(node(self.stack, name))
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

    def not_admitted(self, refused: str) -> None:
        """Queue a job that the runner group does not take, as GitHub's groups say."""
        self.queued()
        entry = {"group": "default", "number": 1, "refused": refused, "repository": "acme/app"}
        self.admissions = [{**entry, "workflow": "acme/app/.github/workflows/ci.yml"}]

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
            "admissions": Reading(tuple(map(dict, self.admissions))) if self.admissions else NOT_READ,
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
                api.delete(made, gracePeriodSeconds="0")
        return created

    def answers(self) -> dict[str, Any]:
        """Return AWS's answers, for a stand-in whose answers are checked with botocore's models."""
        groups = {group["nodegroupName"]: group for group in self.groups}
        return {
            "eks.ListNodegroups": {"nodegroups": list(groups)},
            "eks.DescribeNodegroup": lambda request: {"nodegroup": groups[request["nodegroupName"]]},
            "autoscaling.DescribeAutoScalingGroups": {"AutoScalingGroups": self.scaling},
            "autoscaling.DescribeScalingActivities": lambda request: {
                "Activities": [
                    activity
                    for activity in self.activities
                    if activity["AutoScalingGroupName"] == request["AutoScalingGroupName"]
                ]
            },
        }
