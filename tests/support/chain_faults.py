"""Faults on the way of a job to a GPU, as changes of a world at work, with the link that each breaks.

The first comments name the case: a pain of ARC's users by its issue, or one of the troubleshooting guides' cases.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tests.support.chain_world import ARC, GROUP, NODE, POD, RUNNERS, World, container


@dataclass(frozen=True)
class Fault:
    """A change, and what the chain must say of it."""

    name: str
    link: str
    runbook: str
    change: Callable[[World], None]


FAULTS: list[Fault] = []


def fault(link: str, runbook: str) -> Callable[[Callable[[World], None]], Callable[[World], None]]:
    def add(change: Callable[[World], None]) -> Callable[[World], None]:
        FAULTS.append(Fault(change.__name__, link, runbook, change))
        return change

    return add


# GitHub's queue: ARC 2445, 3330, 3327.
@fault("github", "labels-match-nothing")
def labels_of_no_scale_set(world: World) -> None:
    world.no_runner()
    world.queued("self-hosted", "gpu-a100")


@fault("github", "job-not-released")
def job_waits_for_an_approval(world: World) -> None:
    world.no_runner()
    world.queued("self-hosted", "gpu", status="waiting")


# Scale set: ARC 4424, 4425, 4579; 4596, 4513; 4242, 1984.
@fault("scale-set", "labels-not-applied")
def edited_label_is_ignored(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingRunnerSet")["spec"]["runnerScaleSetLabels"] = ["self-hosted", "gpu"]
    world.queued("self-hosted", "cuda")


@fault("scale-set", "scale-set-missing")
def scale_set_is_missing(world: World) -> None:
    world.no_runner()
    world.drop("AutoscalingRunnerSet")


@fault("scale-set", "scale-set-outdated")
def scale_set_is_outdated(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingRunnerSet")["status"]["phase"] = "Outdated"


@fault("scale-set", "scale-set-not-registered")
def scale_set_is_not_registered(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingRunnerSet")["metadata"]["annotations"] = {}


@fault("scale-set", "no-room-for-runners")
def scale_set_has_no_places(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] = 0


@fault("scale-set", "controller-down")
def controller_does_not_run(world: World) -> None:
    world.no_runner()
    world.get("Deployment", "arc-gha-rs-controller")["status"] = {}


# Listener: ARC 4489, 4561, 4661; 4370; 4432; 4331, 4469; 4656, 4356.
@fault("listener", "listener-stale")
def listener_keeps_a_deleted_runner_set(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingListener")["spec"]["ephemeralRunnerSetName"] = "gpu-zz999"
    world.listener_pod()["status"]["containerStatuses"] = [container(waiting={"reason": "CrashLoopBackOff"})]


@fault("listener", "listener-wrong-set")
def listener_keeps_an_old_number(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingListener")["spec"]["runnerScaleSetId"] = 3


@fault("listener", "listener-missing")
def listener_was_not_made_again(world: World) -> None:
    world.no_runner()
    world.drop("AutoscalingListener")
    world.drop("Pod", "gpu-754b578d-listener")


@fault("listener", "listener-no-pod")
def listener_was_drained_away(world: World) -> None:
    world.no_runner()
    world.drop("Pod", "gpu-754b578d-listener")


@fault("listener", "listener-crashing")
def listener_ends_again_and_again(world: World) -> None:
    world.no_runner()
    status = container(waiting={"reason": "CrashLoopBackOff", "message": "back-off 5m0s restarting failed container"})
    status |= {"restartCount": 9, "lastState": {"terminated": {"exitCode": 1, "reason": "Error"}}}
    world.listener_pod()["status"] |= {"conditions": [], "containerStatuses": [status]}


# What a listener says before it ends: ARC 4285, 3209, 3942; 4489; the guide's "GitHub refuses the App".
SESSION = "failed to create actions message session client: failed to create message session: "
REFRESH = (
    f"{SESSION}failed to do the session request: failed to create new actions service request: failed to issue update "
    "token if needed: failed to get runner registration token on refresh: "
)
APP = "request POST https://api.github.com/app/installations/678/access_tokens failed"
REGISTER = "request POST https://api.github.com/orgs/acme/actions/runners/registration-token failed"
BROKER = (
    "request POST https://broker.actions.githubusercontent.com/rest/_apis/runtime/runnerscalesets/7/sessions"
    "?api-version=6.0-preview failed"
)
ENDS = "Application returned an error: "


@fault("listener", "listener-app-refused")
def key_of_the_app_is_refused(world: World) -> None:
    refused = f'{APP}(status="401 Unauthorized", github_request_id="C0DE:1"): failed to get access token for GitHub'
    words = f"{refused} App auth (401 Unauthorized): : A JSON web token could not be decoded"
    world.listener_ends(f"{ENDS}{REFRESH}failed to fetch access token: {words}")


@fault("listener", "listener-app-elsewhere")
def app_is_not_installed_any_more(world: World) -> None:
    refused = f'{APP}(status="404 Not Found"): failed to get access token for GitHub App auth (404 Not Found)'
    world.listener_ends(f"{ENDS}{REFRESH}failed to fetch access token: {refused}: : Not Found", previous=True)


@fault("listener", "listener-app-rights")
def app_may_not_register_runners(world: World) -> None:
    refused = f'{REGISTER}(status="403 Forbidden"): failed to get runner registration token (403 Forbidden)'
    world.listener_ends(f"{ENDS}{REFRESH}{refused}: : Resource not accessible by integration")


@fault("listener", "listener-rate-limited")
def requests_of_the_hour_are_used_up(world: World) -> None:
    refused = f'{REGISTER}(status="403 Forbidden"): failed to get runner registration token (403 Forbidden)'
    world.listener_ends(f"{ENDS}{REFRESH}{refused}: : API rate limit exceeded for installation ID 678.")


@fault("listener", "listener-session-conflict")
def another_listener_has_the_session(world: World) -> None:
    kind = "GitHub.Actions.Runtime.WebApi.RunnerScaleSetSessionConflictException, GitHub.Actions.Runtime.WebApi"
    said = f'{BROKER}(status="409 Conflict", activity_id="a-1"): unexpected status code 409 Conflict: {kind}'
    end = "The actions runner scaleset gpu already has an active session."
    world.listener_ends(f"{ENDS}{SESSION}failed to do the session request: {said}: {end}")


@fault("listener", "listener-set-unknown")
def scale_set_was_deleted_at_github(world: World) -> None:
    kind = "GitHub.Actions.Runtime.WebApi.RunnerScaleSetNotFoundException, GitHub.Actions.Runtime.WebApi"
    said = f'{BROKER}(status="404 Not Found", activity_id="a-1"): unexpected status code 404 Not Found: {kind}'
    end = "No runner scale set found with identifier 7."
    world.listener_ends(f"{ENDS}{SESSION}failed to do the session request: {said}: {end}")


@fault("listener", "listener-certificate")
def proxy_reads_along(world: World) -> None:
    failed = f'{REGISTER}: failed to send request: Post "https://api.github.com/orgs/acme": '
    end = "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    world.listener_ends(f"{ENDS}{REFRESH}failed to issue the request: {failed}{end}")


@fault("listener", "listener-proxy")
def proxy_is_not_there(world: World) -> None:
    failed = f'{REGISTER}: failed to send request: Post "https://api.github.com/orgs/acme": '
    end = "proxyconnect tcp: dial tcp: lookup proxy.acme.internal: no such host"
    world.listener_ends(f"{ENDS}{REFRESH}failed to issue the request: {failed}{end}")


@fault("listener", "listener-no-network")
def name_service_does_not_know_github(world: World) -> None:
    failed = f'{REGISTER}: failed to send request: Post "https://api.github.com/orgs/acme": POST '
    end = "https://api.github.com/orgs/acme giving up after 5 attempt(s): dial tcp: lookup api.github.com: no such host"
    world.listener_ends(f"{ENDS}{REFRESH}failed to issue the request: {failed}{end}")


@fault("listener", "listener-key-broken")
def key_in_the_secret_is_no_key(world: World) -> None:
    end = "failed to create JWT for GitHub app: failed to parse RSA private key from PEM: invalid key"
    world.listener_ends(f"{ENDS}{REFRESH}failed to fetch access token: {end}")


@fault("scale-set", "scale-set-app-refused")
def controller_cannot_log_in(world: World) -> None:
    refused = f'{APP}(status="401 Unauthorized"): failed to get access token for GitHub App auth (401 Unauthorized)'
    world.controller_says(f"failed to fetch access token: {refused}: : A JSON web token could not be decoded")


@fault("scale-set", "scale-set-group-missing")
def runner_group_does_not_exist(world: World) -> None:
    place = "https://broker.actions.githubusercontent.com/rest/_apis/runtime/runnergroups/?groupName=gpus"
    said = f'request GET {place} failed(status="200 OK")'
    world.controller_says(f'{said}: no runner group found with name "gpus": unknown error')


@fault("scale-set", "controller-without-crds")
def controller_misses_a_crd(world: World) -> None:
    world.controller_says("words")
    world.get("AutoscalingRunnerSet")["metadata"]["annotations"] = {"runner-scale-set-id": "7"}
    world.get("Deployment", "arc-gha-rs-controller")["status"] = {}
    world.logs.clear()
    fields = '{"kind": "EphemeralRunner.actions.github.com", "error": "no matches for kind \\"EphemeralRunner\\""}'
    said = "if kind is a CRD, it should be installed before calling Start"
    line = f"2026-11-24T11:58:01Z\tERROR\tcontroller-runtime.source\t{said}\t{fields}"
    world.log("arc-gha-rs-controller-5d9", line)


@fault("listener", "listener-evicted")
def listener_was_evicted(world: World) -> None:
    world.no_runner()
    world.listener_pod()["status"] = {"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}


@fault("listener", "listener-unschedulable")
def listener_finds_no_node(world: World) -> None:
    world.no_runner()
    pod = world.listener_pod()
    del pod["spec"]["nodeName"]
    pod["spec"]["nodeSelector"] = {"role": "system", "disk": "fast"}
    verdict = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/2 nodes are available",
    }
    pod["status"] = {"phase": "Pending", "conditions": [verdict]}


# Runner: ARC 3685, 4258, 4168, 3014; 4102, 3700, 2721; runner 3466.
@fault("runner", "failed-runners-fill-set")
def failed_runners_take_every_place(world: World) -> None:
    world.no_runner()
    world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] = 2
    for number in (1, 2):
        world.objects.append(_runner(f"gpu-abc12-runner-f{number}", phase="Failed", reason="TooManyPodFailures"))


@fault("runner", "runner-failed")
def runner_has_failed_five_times(world: World) -> None:
    world.no_runner()
    status = {"phase": "Failed", "reason": "TooManyPodFailures", "message": "Pod has failed to start more than 5 times"}
    world.objects.append(_runner(POD, **status))


@fault("runner", "runner-outdated")
def runner_is_outdated(world: World) -> None:
    world.no_runner()
    world.objects.append(_runner(POD, phase="Outdated"))


@fault("runner", "all-runners-busy")
def every_runner_has_a_job(world: World) -> None:
    world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] = 1
    world.get("EphemeralRunner")["status"]["jobId"] = "abc"
    world.queued("self-hosted", "gpu")


# Pod: the guide's "runners can't access GPU"; admission; quota.
@fault("pod", "pod-refused")
def admission_refuses_the_pod(world: World) -> None:
    world.no_runner()
    message = 'pods "x" is forbidden: violates PodSecurity "restricted:latest": privileged'
    world.objects.append(_runner(POD, phase="Failed", reason="InvalidPod", message=message))


@fault("pod", "quota-used-up")
def quota_is_used_up(world: World) -> None:
    template = world.get("EphemeralRunner")["spec"]["spec"]
    world.no_runner()
    runner = _runner(POD, phase="Pending")
    runner["spec"]["spec"] = template
    world.objects.append(runner)
    figures = {"hard": {"requests.nvidia.com/gpu": "1"}, "used": {"requests.nvidia.com/gpu": "1"}}
    world.objects.append(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "pools", "namespace": RUNNERS},
            "spec": {"hard": figures["hard"]},
            "status": figures,
        }
    )


@fault("pod", "pod-without-gpu")
def pod_asks_for_no_gpu(world: World) -> None:
    resources = world.pod["spec"]["containers"][0]["resources"]
    for part in ("requests", "limits"):
        resources[part].pop("nvidia.com/gpu")


# Scheduler: ARC 1730; the guide's toleration.
@fault("scheduler", "taint-not-tolerated")
def pod_does_not_tolerate_the_taint(world: World) -> None:
    world.unplaced("0/2 nodes are available: 1 node(s) had untolerated taint(s)")["spec"]["tolerations"] = []


@fault("scheduler", "selector-matches-no-pool")
def pod_selects_what_no_pool_has(world: World) -> None:
    world.unplaced()["spec"]["nodeSelector"] = {"paddock.dev/pool": "a100"}


@fault("scheduler", "pod-too-large")
def pod_is_larger_than_every_node(world: World) -> None:
    resources = world.unplaced()["spec"]["containers"][0]["resources"]
    for part in ("requests", "limits"):
        resources[part]["nvidia.com/gpu"] = 4


@fault("scheduler", "volume-not-bound")
def pod_names_a_claim_that_is_not_there(world: World) -> None:
    pod = world.unplaced('persistentvolumeclaim "data" not found')
    pod["spec"]["volumes"].append({"name": "data", "persistentVolumeClaim": {"claimName": "data"}})


# Node group: sirius 1258, fvdb-core 761; quotas; eks-ami 2323.
@fault("node-group", "no-capacity")
def aws_has_no_such_instance(world: World) -> None:
    world.pending()
    world.launch(
        "We currently do not have sufficient g4dn.xlarge capacity in the Availability Zone you requested (us-west-2a)."
    )


@fault("node-group", "no-quota")
def quota_of_vcpu_is_zero(world: World) -> None:
    world.pending()
    world.launch("Max spot instance count exceeded. Launching EC2 instance failed. MaxSpotInstanceCountExceeded")


@fault("node-group", "launch-template-broken")
def machine_image_is_gone(world: World) -> None:
    world.pending()
    issue = {"code": "Ec2LaunchTemplateInvalidConfiguration", "message": "The image id '[ami-0]' does not exist"}
    world.groups[0]["health"]["issues"] = [issue]
    world.groups[0]["status"] = "DEGRADED"


@fault("node-group", "pool-at-max")
def pool_has_all_its_nodes(world: World) -> None:
    world.unplaced()
    other = {**world.get("Pod", "nvidia-device-plugin-w5x2q")}
    other["metadata"] = {"name": "another-job", "namespace": RUNNERS}
    gpu = {"requests": {"nvidia.com/gpu": "1"}, "limits": {"nvidia.com/gpu": "1"}}
    other["spec"] = {"nodeName": NODE, "containers": [{"name": "runner", "image": "any", "resources": gpu}]}
    world.objects.append(other)
    message = "pod didn't trigger scale-up: 1 max node group size reached"
    world.event("Pod", POD, "NotTriggerScaleUp", message)


@fault("node-group", "autoscaler-sees-no-fit")
def autoscaler_sees_nodes_without_gpus(world: World) -> None:
    world.pending()
    world.event("Pod", POD, "NotTriggerScaleUp", "pod didn't trigger scale-up: 1 Insufficient nvidia.com/gpu")


@fault("node-group", "autoscaler-down")
def autoscaler_does_not_run(world: World) -> None:
    world.pending()
    world.get("Deployment", "cluster-autoscaler-aws-cluster-autoscaler")["status"] = {}


# Node: eks-ami 1817; spot; drains; node marks.
@fault("node", "node-never-joined")
def instance_never_joins(world: World) -> None:
    world.pending()
    world.event("Pod", POD, "TriggeredScaleUp", f"pod triggered scale-up: [{{{GROUP} 0->1 (max: 5)}}]", 40)
    world.launch("", "Successful", 39)
    world.groups[0]["health"]["issues"] = [
        {
            "code": "NodeCreationFailure",
            "message": "Instances failed to join the kubernetes cluster",
            "resourceIds": ["i-0123456789abcdef0"],
        }
    ]


@fault("node", "node-not-ready")
def kubelet_has_stopped(world: World) -> None:
    condition = {
        "type": "Ready",
        "status": "Unknown",
        "reason": "NodeStatusUnknown",
        "message": "Kubelet stopped posting",
    }
    world.get("Node", NODE)["status"]["conditions"] = [condition]


@fault("node", "spot-interrupted")
def spot_instance_is_taken_back(world: World) -> None:
    world.event("Node", NODE, "SpotInterruption", "Spot interruption notice received, the instance ends in two minutes")


@fault("node", "node-marked-broken")
def node_is_marked_as_broken(world: World) -> None:
    world.unplaced()
    node = world.get("Node", NODE)
    node["metadata"]["annotations"] = {"paddock.dev/replace": "GPU 0: Xid 79, fallen off the bus"}
    node["spec"]["unschedulable"] = True


@fault("node", "node-tainted")
def node_has_a_strange_taint(world: World) -> None:
    world.unplaced()
    world.get("Node", NODE)["spec"]["taints"].append({"key": "team", "value": "x", "effect": "NoSchedule"})


# Device plugin: the guide's first case; eks-ami 2342, 1817; device-plugin 344.
@fault("device-plugin", "device-plugin-missing")
def device_plugin_is_missing(world: World) -> None:
    _without_gpus(world)
    world.drop("DaemonSet")
    world.drop("Pod", "nvidia-device-plugin-w5x2q")


@fault("device-plugin", "device-plugin-passes-node")
def node_lacks_the_label_of_the_plugin(world: World) -> None:
    _without_gpus(world)
    world.drop("Pod", "nvidia-device-plugin-w5x2q")
    del world.get("Node", NODE)["metadata"]["labels"]["nvidia.com/gpu.present"]


@fault("device-plugin", "device-plugin-failing")
def device_plugin_crashes(world: World) -> None:
    _without_gpus(world)
    status = container(waiting={"reason": "CrashLoopBackOff", "message": "failed to initialize NVML"})
    world.plugin_pod()["status"] = {"phase": "Running", "containerStatuses": [status | {"restartCount": 6}]}


@fault("device-plugin", "no-gpus-on-node")
def machine_image_has_no_driver(world: World) -> None:
    _without_gpus(world)


@fault("device-plugin", "gpu-unhealthy")
def gpu_has_an_xid(world: World) -> None:
    world.unplaced()
    world.get("Node", NODE)["status"]["allocatable"]["nvidia.com/gpu"] = "0"


# Image: runner 3768; the guide's CUDA mismatch; registries.
@fault("image-pull", "image-not-there")
def image_is_not_there(world: World) -> None:
    world.stuck("ImagePullBackOff", 'Back-off pulling image "ghcr.io/acme/runner:1"')
    message = 'Failed to pull image "ghcr.io/acme/runner:1": rpc error: code = NotFound desc = not found'
    world.event("Pod", POD, "Failed", message)


@fault("image-pull", "image-denied")
def registry_denies_the_image(world: World) -> None:
    world.stuck(
        "ErrImagePull", "pull access denied, repository does not exist or may require authorization: 403 Forbidden"
    )


@fault("image-pull", "registry-unreachable")
def node_does_not_reach_the_registry(world: World) -> None:
    world.stuck("ErrImagePull", "dial tcp 198.51.100.7:443: i/o timeout")


@fault("image-pull", "cuda-too-new")
def image_needs_a_newer_driver(world: World) -> None:
    message = "failed to create shim task: nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0"
    world.ended("StartError", 128, message)


@fault("image-pull", "runner-program-missing")
def image_has_no_runner(world: World) -> None:
    message = 'exec: "/home/runner/run.sh": stat /home/runner/run.sh: no such file or directory'
    world.ended("StartError", 128, message)


@fault("image-pull", "container-configuration")
def config_map_is_not_there(world: World) -> None:
    world.stuck("CreateContainerConfigError", 'configmap "paddock-job-hooks" not found')


@fault("image-pull", "volume-not-mounted")
def file_system_is_not_mounted(world: World) -> None:
    world.stuck("ContainerCreating")
    world.event("Pod", POD, "FailedMount", 'MountVolume.SetUp failed for volume "cache": mount failed: exit status 32')


# Registration: ARC 3953, 3649; 2721, 3319.
@fault("registration", "runner-not-registered")
def runner_is_not_known_to_github(world: World) -> None:
    world.get("EphemeralRunner")["status"] = {"phase": "Running", "runnerId": 9}
    world.github_runners = []


@fault("registration", "runner-offline")
def runner_is_offline(world: World) -> None:
    world.get("EphemeralRunner")["status"] = {"phase": "Running", "runnerId": 9}
    world.github_runners[0]["status"] = "offline"


@fault("registration", "out-of-memory")
def job_needs_too_much_memory(world: World) -> None:
    world.ended("OOMKilled", 137)


def _without_gpus(world: World) -> None:
    world.unplaced()
    status = world.get("Node", NODE)["status"]
    for part in ("allocatable", "capacity"):
        status[part].pop("nvidia.com/gpu", None)


def _runner(name: str, **status: str) -> dict[str, object]:
    return {
        "apiVersion": ARC,
        "kind": "EphemeralRunner",
        "metadata": {"name": name, "namespace": RUNNERS, "labels": {"actions.github.com/scale-set-name": "gpu"}},
        "spec": {"githubConfigUrl": "https://github.com/acme", "githubConfigSecret": "c", "runnerScaleSetId": 7},
        "status": status,
    }
