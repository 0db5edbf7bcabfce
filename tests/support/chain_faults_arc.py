"""Faults from GitHub's queue to the EphemeralRunner, as ARC 0.14.2 and its charts have them.

The comments name the issues of actions-runner-controller in which people report them.
"""

from __future__ import annotations

from tests.support.chain_fault import fault
from tests.support.chain_objects import LISTENER, POD, SET, container
from tests.support.chain_world import Contradiction, World

# GitHub's queue: 2445, 3330, 3327.


@fault("github", "labels-match-nothing")
def labels_of_no_scale_set(world: World) -> None:
    world.no_runner()
    world.queued("self-hosted", "gpu-a100")


@fault("github", "job-not-released")
def job_waits_for_an_approval(world: World) -> None:
    world.no_runner()
    world.queued("self-hosted", "gpu", status="waiting")


@fault("github", "group-refuses-public", alone=True)
def group_admits_no_public_repository(world: World) -> None:
    world.not_admitted("public")


@fault("github", "group-refuses-repository", alone=True)
def group_is_not_open_to_the_repository(world: World) -> None:
    world.not_admitted("repository")


@fault("github", "group-refuses-workflow", alone=True)
def group_admits_other_workflows(world: World) -> None:
    world.not_admitted("workflow")


@fault("github", "group-of-another-owner", alone=True)
def job_is_of_another_organisation(world: World) -> None:
    world.not_admitted("elsewhere")


# Scale set: 4424, 4425, 4579; 4596, 4242, 1984.


@fault("scale-set", "labels-not-applied")
def edited_label_is_not_applied(world: World) -> None:
    world.no_runner()
    world.runner_set["spec"]["runnerScaleSetLabels"] = ["self-hosted", "gpu"]
    world.queued("self-hosted", "cuda")


@fault("scale-set", "labels-not-registered", alone=True)
def edited_label_is_ignored_by_github(world: World) -> None:
    """The object has the label, and GitHub keeps those of the registration, as it lists them of a runner."""
    world.queued("self-hosted", "cuda")
    known = [{"name": name} for name in ("gpu", "self-hosted", "linux", "x64")]
    world.github_runners[0]["labels"] = known


@fault("scale-set", "arc-not-installed", alone=True)
def cluster_has_no_arc(world: World) -> None:
    world.no_runner()
    for kind in ("AutoscalingRunnerSet", "AutoscalingListener", "EphemeralRunnerSet"):
        world.drop(kind)
        world.absent.add(kind)
    world.absent.add("EphemeralRunner")
    world.drop("Pod", LISTENER)
    world.drop("Deployment", "arc-gha-rs-controller")


@fault("scale-set", "scale-set-missing", alone=True)
def scale_set_is_missing(world: World) -> None:
    """ARC also deletes a set of another minor version than its own."""
    world.no_runner()
    for kind in ("AutoscalingRunnerSet", "AutoscalingListener", "EphemeralRunnerSet"):
        world.drop(kind)
    world.drop("Pod", LISTENER)


@fault("scale-set", "scale-set-deleting")
def scale_set_does_not_go(world: World) -> None:
    world.no_runner()
    world.deleting("AutoscalingRunnerSet", "gpu")


@fault("scale-set", "scale-set-outdated")
def scale_set_is_outdated(world: World) -> None:
    """ARC takes listener, runner set and the registration away, and waits for a change of the set."""
    world.no_runner()
    world.runner_set["status"] = {"phase": "Outdated"}
    world.runner_set["metadata"]["annotations"] = {}
    for kind in ("AutoscalingListener", "EphemeralRunnerSet"):
        world.drop(kind)
    world.drop("Pod", LISTENER)


@fault("scale-set", "scale-set-not-registered")
def scale_set_is_not_registered(world: World) -> None:
    unregistered(world)


@fault("scale-set", "server-refuses-scale-set", "server")
def enterprise_server_refuses_the_scale_set(world: World) -> None:
    """4443, scaleset 75."""
    unregistered(world)


@fault("scale-set", "no-room-for-runners")
def scale_set_has_no_places(world: World) -> None:
    world.no_runner()
    world.claim("max")
    world.runner_set["spec"]["maxRunners"] = 0


@fault("scale-set", "drained")
def scale_set_is_drained(world: World) -> None:
    world.no_runner()
    world.claim("max")
    world.runner_set["spec"] |= {"maxRunners": 0, "minRunners": 0}
    note = '{"at": "2026-11-24T11:00:00Z", "maxRunners": 5}'
    world.runner_set["metadata"]["annotations"]["paddock.dev/drained"] = note


@fault("scale-set", "controller-down")
def controller_does_not_run(world: World) -> None:
    world.no_runner()
    world.get("Deployment", "arc-gha-rs-controller")["status"] = {}


@fault("scale-set", "controller-missing")
def controller_is_not_there(world: World) -> None:
    world.no_runner()
    world.drop("Deployment", "arc-gha-rs-controller")
    world.runner_set["metadata"]["annotations"] = {}


# Listener: 4489, 4561, 4661; 4322; 4432; 4331, 4469; 4656, 4356; 4513, 4629.


@fault("listener", "listener-stale")
def listener_keeps_a_deleted_runner_set(world: World) -> None:
    """The listener patches a set that is gone, ends, and is made anew with the same name in it."""
    world.no_runner()
    world.get("AutoscalingListener")["spec"]["ephemeralRunnerSetName"] = "gpu-zz999"
    ends_again_and_again(world)


@fault("listener", "listener-wrong-set")
def listener_keeps_an_old_number(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingListener")["spec"]["runnerScaleSetId"] = 3


@fault("listener", "listener-missing")
def listener_was_not_made_again(world: World) -> None:
    world.no_runner()
    world.drop("AutoscalingListener")
    world.drop("Pod", LISTENER)


@fault("listener", "listener-no-pod")
def listener_was_drained_away(world: World) -> None:
    world.no_runner()
    world.drop("Pod", LISTENER)


@fault("listener", "listener-crashing")
def listener_ends_again_and_again(world: World) -> None:
    world.no_runner()
    ends_again_and_again(world)


@fault("listener", "listener-image-old")
def listener_is_older_than_the_controller(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingListener")["spec"]["image"] = "ghcr.io/actions/gha-runner-scale-set-controller:0.13.1"
    ends_again_and_again(world)


@fault("listener", "listener-evicted")
def listener_was_evicted(world: World) -> None:
    world.no_runner()
    world.listener_pod()["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}


@fault("listener", "listener-evicted")
def listener_hangs_on_a_node_that_is_gone(world: World) -> None:
    world.no_runner()
    world.listener_pod()["spec"]["nodeName"] = "gone-node"
    world.deleting("Pod", LISTENER)


@fault("listener", "listener-stuck")
def listener_does_not_go(world: World) -> None:
    world.no_runner()
    world.deleting("AutoscalingListener", LISTENER)
    world.deleting("Pod", LISTENER)


@fault("listener", "listener-unschedulable")
def listener_finds_no_node(world: World) -> None:
    world.no_runner()
    pod = world.listener_pod()
    del pod["spec"]["nodeName"]
    pod["spec"]["nodeSelector"] = {"role": "system", "disk": "fast"}
    said = "0/2 nodes are available"
    verdict = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
    pod["status"] = {"phase": "Pending", "conditions": [verdict]}


@fault("listener", "listener-image")
def listener_image_is_not_in_the_mirror(world: World) -> None:
    world.no_runner()
    waiting = {"reason": "ImagePullBackOff", "message": "Back-off pulling image: not found"}
    world.listener_pod()["status"] = {
        "phase": "Pending",
        "containerStatuses": [container("listener", waiting=waiting)],
    }


# Runner: 3685, 4258, 4168, 3014; 4102, 3700, 2721; runner 3466.


@fault("runner", "failed-runners-fill-set", also="pod")
def failed_runners_take_every_place(world: World) -> None:
    """Since 0.13.1 only pods that the cluster refused leave a Failed runner, and each still takes a place."""
    if world.keep:
        raise Contradiction("a runner that waits has a place")
    world.no_runner()
    world.claim("max")
    world.claim("runners")
    world.runner_set["spec"]["maxRunners"] = 2
    world.get("EphemeralRunnerSet", SET)["spec"]["replicas"] = 2
    message = 'Failed to create the pod: pods "x" is forbidden: violates PodSecurity "baseline:latest"'
    for number in (1, 2):
        world.another(f"gpu-abc12-runner-f{number}", phase="Failed", reason="InvalidPod", message=message)


@fault("runner", "runner-failed")
def older_arc_gave_the_runner_up(world: World) -> None:
    """ARC before 0.13.1."""
    world.no_runner()
    status = {"phase": "Failed", "reason": "TooManyPodFailures", "message": "Pod has failed to start more than 5 times"}
    world.another(POD, **status)


@fault("runner", "runner-outdated")
def runner_is_outdated(world: World) -> None:
    world.no_runner()
    world.another(POD, phase="Outdated", reason="Outdated", message="Runner is deprecated")


@fault("runner", "all-runners-busy", alone=True)
def every_runner_has_a_job(world: World) -> None:
    world.claim("max")
    world.runner_set["spec"]["maxRunners"] = 1
    world.queued("self-hosted", "gpu")


@fault("runner", "runner-gone", alone=True)
def runner_of_the_job_is_gone(world: World) -> None:
    """Another runner of the set is in trouble of its own, which is not this job's."""
    world.stuck("ImagePullBackOff", "manifest unknown")
    world.in_progress("gpu-abc12-runner-zz")


def unregistered(world: World) -> None:
    """Leave the scale set unknown to GitHub: ARC makes runner set and listener only for a set that GitHub knows."""
    world.no_runner()
    world.runner_set["metadata"]["annotations"] = {}
    world.runner_set["status"] = {}
    for kind in ("AutoscalingListener", "EphemeralRunnerSet"):
        world.drop(kind)
    world.drop("Pod", LISTENER)


def ends_again_and_again(world: World) -> None:
    """Let a listener end again and again: ARC deletes each pod and makes the next, with a uid of its own."""
    for number in range(6):
        message = f"Successfully assigned arc-systems/{LISTENER} to system-0"
        world.event("Pod", LISTENER, "Scheduled", message, 2 - number * 0.3, uid=f"l{number}")
    world.ages["Pod", LISTENER] = 0.05
    world.listener_pod()["status"]["containerStatuses"] = [container("listener", running={})]
