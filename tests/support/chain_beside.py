"""What stands beside a fault and is none, and what looks like a fault and is none."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from tests.support.chain_fault import Change
from tests.support.chain_faults_pod import NO_CAPACITY, NO_SPOT
from tests.support.chain_objects import GROUP, LISTENER, NODE, POD, SET, container
from tests.support.chain_world import World, variant


@dataclass(frozen=True)
class Case:
    """A change that breaks nothing, or nothing that can be known, and the verdict and link that the chain must give."""

    name: str
    change: Change
    verdict: str = ""
    link: str = ""
    fleet: str = "dev"

    def world(self, at: datetime) -> World:
        world = World(variant(self.fleet), at)
        self.change(world)
        return world


BESIDE: list[Case] = []
"""Things that may be there with any fault, and explain nothing."""
NEAR_MISSES: list[Case] = []


def beside(change: Change) -> Change:
    BESIDE.append(Case(change.__name__, change))
    return change


def near_miss(verdict: str, link: str, fleet: str = "dev") -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        NEAR_MISSES.append(Case(change.__name__, change, verdict, link, fleet))
        return change

    return add


@beside
def another_runner_has_a_job(world: World) -> None:
    world.at_work("gpu-abc12-runner-w1")


@beside
def a_node_is_given_back(world: World) -> None:
    world.add_node("leaving")["spec"]["taints"].append(
        {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    )


@beside
def a_node_is_cordoned(world: World) -> None:
    world.claim("nodes")
    world.add_node("cordoned")["spec"]["unschedulable"] = True
    world.ages["Node", "cordoned"] = 600


@beside
def a_node_has_stopped(world: World) -> None:
    world.claim("nodes")
    world.add_node("stopped")["status"]["conditions"] = [{"type": "Ready", "status": "Unknown", "reason": "Lost"}]
    world.ages["Node", "stopped"] = 600


@beside
def a_warm_runner_is_idle(world: World) -> None:
    for part in ("max", "runners", "at work"):  # a set is walked along one runner, an idle one before one at work
        world.claim(part)
    name = "gpu-abc12-runner-i1"
    world.at_work(name)
    world.get("EphemeralRunner", name)["status"] = {"phase": "Running", "ready": True, "runnerId": 8}
    world.github_runners[-1]["busy"] = False
    world.ages["EphemeralRunner", name] = world.ages["Pod", name] = 600


@beside
def a_full_node_has_lost_a_gpu(world: World) -> None:
    node = world.add_node("worn")
    node["status"]["capacity"]["nvidia.com/gpu"] = "8"
    node["status"]["allocatable"] |= {"nvidia.com/gpu": "7", "cpu": "1", "memory": "1Gi"}


@beside
def a_launch_failed_before_the_pod(world: World) -> None:
    world.activities.append(
        {
            "ActivityId": "old",
            "AutoScalingGroupName": GROUP,
            "Description": "Launching a new EC2 instance: i-0z",
            "Cause": "an increase of the desired capacity",
            "StartTime": world.at - timedelta(minutes=40),
            "StatusCode": "Failed",
            "StatusMessage": NO_CAPACITY,
        }
    )


@beside
def a_listener_of_another_set_ends(world: World) -> None:
    listener = copy.deepcopy(world.get("AutoscalingListener", LISTENER))
    listener["metadata"]["name"] = "other-754b578d-listener"
    listener["spec"] |= {"autoscalingRunnerSetName": "other", "ephemeralRunnerSetName": "other-zz999"}
    world.objects.append(listener)


@beside
def an_upgrade_left_an_old_listener(world: World) -> None:
    """4629."""
    old = copy.deepcopy(world.get("AutoscalingListener", LISTENER))
    old["metadata"]["name"] = "gpu-11111111-listener"
    old["spec"] |= {"ephemeralRunnerSetName": "gpu-old00", "runnerScaleSetId": 1}
    world.objects.append(old)


@beside
def a_deployment_of_somebody_is_down(world: World) -> None:
    down = copy.deepcopy(world.get("Deployment", "cluster-autoscaler-aws-cluster-autoscaler"))
    down["metadata"] |= {"name": "grafana", "namespace": "default"}
    down["status"] = {}
    world.objects.append(down)


@beside
def mounts_failed_at_first(world: World) -> None:
    message = 'MountVolume.SetUp failed for volume "kube-api-access": failed to sync configmap cache'
    world.event("Pod", POD, "FailedMount", message, 9)
    world.event("Pod", POD, "Pulling", 'Pulling image "ghcr.io/acme/runner:1"', 8)


@beside
def a_pod_of_a_team_is_pending(world: World) -> None:
    pod = copy.deepcopy(world.plugin_pod())
    pod["metadata"] = {"name": "team-pod", "namespace": "arc-runners"}
    pod["spec"]["nodeName"] = "system-0"
    pod["status"] = {"phase": "Pending", "containerStatuses": [container(waiting={"reason": "ErrImagePull"})]}
    world.objects.append(pod)


# What looks like a fault: under way, over, or not to be known.


@near_miss("waits", "node-group")
def pod_waits_for_a_slow_node(world: World) -> None:
    world.pending()
    world.bought(12)


@near_miss("waits", "node-group")
def pod_is_made_anew_while_its_node_boots(world: World) -> None:
    """Somebody deleted the pod, and the events of the first one stay."""
    world.pending()
    world.ages["Pod", POD] = 0.5
    world.event("Pod", POD, "TriggeredScaleUp", "pod triggered scale-up", 6, uid="u1")
    world.event("Pod", POD, "FailedScheduling", "0/2 nodes are available", 6, uid="u1")


@near_miss("waits", "node-group")
def failed_launch_is_older_than_the_purchase(world: World) -> None:
    world.pending()
    world.launch(NO_CAPACITY, minutes_ago=50)
    world.bought(0.3)


@near_miss("waits", "node-group")
def failed_launch_is_followed_by_one_that_works(world: World) -> None:
    world.pending()
    world.launch(NO_CAPACITY, minutes_ago=8)
    world.bought(3)
    world.launch("", "Successful", 2)


@near_miss("waits", "node-group", "fallback")
def fallback_is_launched_after_spot_failed(world: World) -> None:
    world.pending()
    other = world.scaling[1]["AutoScalingGroupName"]
    world.groups[0]["health"]["issues"] = [
        {"code": "AsgInstanceLaunchFailures", "message": "Could not launch Spot Instances. UnfulfillableCapacity"}
    ]
    world.launch(NO_SPOT)
    world.launch("", "InProgress", 1, group=other)
    world.bought(1, other)


@near_miss("unknown", "node-group", "fallback")
def fallback_was_not_tried(world: World) -> None:
    world.pending()
    world.launch(NO_SPOT)


@near_miss("waits", "node-group")
def node_is_given_back_while_another_boots(world: World) -> None:
    world.unplaced()
    world.get("Node", NODE)["spec"]["taints"].append(
        {"key": "ToBeDeletedByClusterAutoscaler", "value": "1", "effect": "NoSchedule"}
    )
    world.bought(1)


@near_miss("waits", "node-group")
def full_node_with_a_bad_gpu_while_another_boots(world: World) -> None:
    world.unplaced()
    world.fill()
    world.get("Node", NODE)["status"]["capacity"]["nvidia.com/gpu"] = "2"
    world.bought(1)


@near_miss("waits", "node-group")
def node_is_cordoned_while_another_boots(world: World) -> None:
    world.unplaced()
    world.get("Node", NODE)["spec"]["unschedulable"] = True
    world.bought(1)


@near_miss("unknown", "node-group")
def message_adds_up_the_groups_of_others(world: World) -> None:
    """The pool has none of five nodes: it is not its group that is at its max."""
    world.pending()
    world.refused("1 max node group size reached")


@near_miss("waits", "scheduler")
def volume_is_made_for_the_pod(world: World) -> None:
    world.unplaced('waiting for ephemeral volume controller to create the persistentvolumeclaim "x1-data"')
    world.ages["Pod", POD] = 0.5


@near_miss("waits", "image-pull")
def image_is_pulled_for_nine_minutes(world: World) -> None:
    world.stuck("ContainerCreating")
    world.event("Pod", POD, "Pulling", 'Pulling image "ghcr.io/acme/runner:1"', 9)


@near_miss("waits", "image-pull")
def kubelet_puts_off_a_pull(world: World) -> None:
    """Bottlerocket 1495: many pods come to a new node at once."""
    world.stuck("ErrImagePull", "pull QPS exceeded")


@near_miss("waits", "image-pull")
def mounts_failed_before_the_pull(world: World) -> None:
    world.stuck("ContainerCreating")
    message = 'MountVolume.SetUp failed for volume "kube-api-access": failed to sync configmap cache'
    world.event("Pod", POD, "FailedMount", message, 9)
    world.event("Pod", POD, "Pulling", 'Pulling image "ghcr.io/acme/runner:1"', 8)


@near_miss("waits", "image-pull")
def network_fails_for_a_minute(world: World) -> None:
    world.stuck("ContainerCreating")
    world.event("Pod", POD, "FailedCreatePodSandBox", "failed to assign an IP address to container", 0.2, since=1)


@near_miss("waits", "image-pull")
def init_container_works_after_mounts_failed(world: World) -> None:
    world.stuck("PodInitializing")
    world.pod["status"]["initContainerStatuses"] = [container("externals", running={"startedAt": world.ago(5)})]
    world.event("Pod", POD, "FailedMount", "MountVolume.SetUp failed", 6, since=9)


@near_miss("waits", "registration")
def runner_starts_after_a_long_pull(world: World) -> None:
    world.idle(minutes=0.1)
    world.pod["status"]["startTime"] = world.ago(9)
    world.github_runners = []


@near_miss("unknown", "image-pull")
def pods_fail_without_an_event(world: World) -> None:
    world.failing(times=3)


@near_miss("unknown", "runner")
def session_is_dead(world: World) -> None:
    """3204, 3351: the listener runs, GitHub has a job for it, and it asks for no runner."""
    world.no_runner()
    world.queued("self-hosted", "gpu")


@near_miss("unknown", "runner")
def session_is_dead_beside_a_job(world: World) -> None:
    world.queued("self-hosted", "gpu")


@near_miss("unknown", "registration")
def idle_runner_gets_no_job(world: World) -> None:
    """The runner group may not admit the repository."""
    world.idle()
    world.queued("self-hosted", "gpu")


@near_miss("waits", "registration")
def idle_runner_is_about_to_get_a_job(world: World) -> None:
    world.idle(minutes=0.2)
    world.queued("self-hosted", "gpu")


@near_miss("unknown", "runner", "two-sets")
def job_of_two_sets(world: World) -> None:
    world.no_runner()
    world.queued("self-hosted", "gpu")


@near_miss("unknown", "runner")
def runners_are_asked_for_and_not_made(world: World) -> None:
    world.no_runner()
    world.get("EphemeralRunnerSet", SET)["spec"]["replicas"] = 3


@near_miss("waits", "runner")
def runners_were_asked_for_just_now(world: World) -> None:
    world.no_runner()
    world.get("EphemeralRunnerSet", SET)["spec"]["replicas"] = 3
    world.ages["EphemeralRunnerSet", SET] = 0.5


@near_miss("waits", "listener")
def listener_was_made_anew_just_now(world: World) -> None:
    world.no_runner()
    world.ages["Pod", LISTENER] = 0.05


@near_miss("waits", "listener")
def listener_waits_for_a_system_node(world: World) -> None:
    world.no_runner()
    pod = world.listener_pod()
    del pod["spec"]["nodeName"]
    pod["spec"]["nodeSelector"] = {"role": "system", "disk": "fast"}
    said = "0/2 nodes are available"
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    pod["status"] = {"phase": "Pending", "conditions": [verdict]}
    world.event("Pod", LISTENER, "TriggeredScaleUp", "pod triggered scale-up: [{eks-system 1->2 (max: 3)}]", 1)


@near_miss("waits", "listener")
def listener_is_replaced_after_a_change_of_its_set(world: World) -> None:
    world.no_runner()
    world.drop("AutoscalingListener")
    world.drop("Pod", LISTENER)
    world.ages["AutoscalingRunnerSet", "gpu"] = 0.5


@near_miss("waits", "scale-set")
def scale_set_is_being_registered(world: World) -> None:
    world.no_runner()
    world.runner_set["metadata"]["annotations"] = {}
    world.ages["AutoscalingRunnerSet", "gpu"] = 0.3


@near_miss("waits", "node")
def new_node_is_not_ready_yet(world: World) -> None:
    world.unplaced()
    world.bought(5)
    world.ages["Node", NODE] = 1
    world.get("Node", NODE)["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "reason": "KubeletNotReady"}
    ]


@near_miss("ok", "")
def job_runs_elsewhere(world: World) -> None:
    world.in_progress("GitHub Actions 7")


@near_miss("ok", "")
def job_is_done(world: World) -> None:
    world.completed("success", "")
    world.job_log = None


@near_miss("ok", "")
def job_fails_by_itself(world: World) -> None:
    command = "\x1b[36;1mgrep 'CUDA out of memory' log\x1b[0m"
    world.completed("failure", f"2026-11-24T11:50:00.0Z {command}\n2026-11-24T11:50:01.0Z AssertionError: 3 != 4")
