"""Faults from the node to the job: node, device plugin, image and container, registration, the job itself."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tests.support.chain_fault import FAULTS, Fault, fault
from tests.support.chain_objects import NODE, POD, container
from tests.support.chain_world import World

# Node: containers-roadmap 416, karpenter 1391; eks-ami 1817; spot; drains; node marks; hooks 173, 140, 3647, 3232.


@fault("node", "node-never-joined")
def instance_never_joins(world: World) -> None:
    world.pending()
    world.bought(40)
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
    world.get("Node", NODE)["status"]["conditions"] = [
        {
            "type": "Ready",
            "status": "Unknown",
            "reason": "NodeStatusUnknown",
            "message": "Kubelet stopped posting node status.",
        }
    ]


@fault("node", "node-without-network")
def network_of_the_node_does_not_start(world: World) -> None:
    world.ages["Node", NODE] = 40
    message = (
        "container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin"
        " returns error: cni plugin not initialized"
    )
    state = {"type": "Ready", "status": "False", "reason": "KubeletNotReady", "message": message}
    world.get("Node", NODE)["status"]["conditions"] = [state]


@fault("node", "node-gone")
def node_is_gone_under_the_pod(world: World) -> None:
    world.claim("pod")
    world.drop("Node", NODE)


@fault("node", "spot-interrupted")
def spot_instance_is_taken_back(world: World) -> None:
    world.claim("at work")
    world.event("Node", NODE, "SpotInterruption", "Spot interruption notice received, the instance ends in two minutes")


@fault("node", "node-marked-broken")
def node_is_marked_as_broken(world: World) -> None:
    world.unplaced()
    node = world.get("Node", NODE)
    node["metadata"]["annotations"] = {"paddock.dev/replace": "GPU 0: Xid 79, fallen off the bus"}
    node["spec"]["unschedulable"] = True


@fault("node", "node-cordoned")
def node_is_cordoned(world: World) -> None:
    world.unplaced()
    world.get("Node", NODE)["spec"]["unschedulable"] = True


@fault("node", "node-drained")
def node_is_drained(world: World) -> None:
    world.unplaced()
    node = world.get("Node", NODE)
    node["metadata"]["annotations"] = {"paddock.dev/drained": "cordoned"}
    node["spec"]["unschedulable"] = True


@fault("node", "node-under-pressure")
def node_has_no_disk_left(world: World) -> None:
    world.unplaced()
    conditions = world.get("Node", NODE)["status"]["conditions"]
    conditions.append({"type": "DiskPressure", "status": "True", "message": "kubelet has disk pressure"})


@fault("node", "node-uninitialised")
def node_keeps_its_start_up_taint(world: World) -> None:
    world.unplaced()
    taint = {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}
    world.get("Node", NODE)["spec"]["taints"].append(taint)


@fault("node", "node-tainted")
def node_has_a_strange_taint(world: World) -> None:
    world.unplaced()
    world.get("Node", NODE)["spec"]["taints"].append({"key": "team", "value": "x", "effect": "NoSchedule"})


@fault("node", "pod-evicted", alone=True)
def runner_at_work_is_evicted(world: World) -> None:
    """The kubelet writes the container off, and GitHub counts the job as running."""
    world.lost("ContainerStatusUnknown", 137)
    world.pod["status"] |= {
        "reason": "Evicted",
        "message": "Pod ephemeral local storage usage exceeds the total limit of containers 50Gi.",
        "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}],
    }


@fault("node", "node-full", "job-pods")
def job_pod_finds_the_node_full(world: World) -> None:
    """A hook that names the node passes the scheduler by."""
    world.claim("pod")
    why = "Pod was rejected: Node didn't have enough resource: nvidia.com/gpu, requested: 1, used: 1, capacity: 1"
    world.pod["status"] = {"phase": "Failed", "reason": "OutOfnvidia.com/gpu", "message": why}


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


@fault("device-plugin", "device-plugin-no-pod")
def device_plugin_has_no_pod_on_the_node(world: World) -> None:
    _without_gpus(world)
    world.drop("Pod", "nvidia-device-plugin-w5x2q")


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


@fault("device-plugin", "gpu-unhealthy", "four-gpus")
def node_registers_three_of_its_four_gpus(world: World) -> None:
    world.unplaced()
    for part in ("allocatable", "capacity"):
        world.get("Node", NODE)["status"][part]["nvidia.com/gpu"] = "3"


# Image: runner 3768; registries; kubefirst 924, eks-ami 1389, ociregistry 18, linkerd 9899; ecr-user-guide 8.


@fault("image-pull", "image-not-there")
def image_is_not_there(world: World) -> None:
    world.stuck("ImagePullBackOff", 'Back-off pulling image "ghcr.io/acme/runner:1"')
    message = 'Failed to pull image "ghcr.io/acme/runner:1": rpc error: code = NotFound desc = not found'
    world.event("Pod", POD, "Failed", message)


PULLS = {
    "registry_denies_the_image": (
        "image-denied", "pull access denied, repository does not exist or may require authorization: 403 Forbidden",
    ),
    "registry_counts_the_pulls": (
        "image-rate-limit", "429 Too Many Requests - toomanyrequests: You have reached your pull rate limit.",
    ),
    "image_is_for_another_processor": ("image-platform", "no match for platform in manifest: not found"),
    "node_disk_is_full": (
        "node-disk-full", "failed to extract layer: write /usr/lib/libcublas.so: no space left on device",
    ),
    "node_does_not_reach_the_registry": ("registry-unreachable", "dial tcp 198.51.100.7:443: i/o timeout"),
    "proxy_of_the_node_wants_a_password": (
        "image-proxy", 'failed to do request: Head "https://ghcr.io/v2/acme/runner": Proxy Authentication Required',
    ),
    "endpoint_of_s3_refuses_the_layers": (
        "image-layers-denied",
        "failed to copy: httpReadSeeker: failed open: unexpected status code"
        " https://prod-us-west-2-starport-layer-bucket.s3.us-west-2.amazonaws.com/ab12/cd?X-Amz=1: 403 Forbidden",
    ),
    "connection_to_the_registry_is_reset": (
        "image-transfer-cut", "failed to copy: read tcp 10.0.0.6:35464->104.18.122.25:443: connection reset by peer",
    ),
    "registry_ends_the_answer": (
        "image-transfer-cut", 'failed open: failed to do request: Get "https://registry.example.com/v2/x/blobs/1": EOF',
    ),
    "mirror_sends_other_bytes": (
        "image-transfer-cut", 'failed commit on ref "layer-sha256:18a5": failed size validation: 25165824 != 18802122',
    ),
    "registry_is_out_of_service": (
        "registry-fails", "pulling from host ghcr.io failed with status code [manifests 1]: 503 Service Unavailable",
    ),
    "digest_of_a_lost_image_has_429_in_it": (
        "image-not-there", "ghcr.io/acme/runner@sha256:e4a1b462af327b6b9af097429673e1c263692ffdc47d0cd77d: not found",
    ),
    "registry_gives_a_reason_that_nobody_knows": (
        "image-failed", "failed to extract layer sha256:18a5: archive/tar: invalid tar header",
    ),
}  # fmt: skip
"""Faults whose pod waits with ErrImagePull -> runbook, and the words of the pull."""
for _name, (_runbook, _said) in PULLS.items():
    FAULTS.append(Fault(_name, "image-pull", _runbook, partial(World.stuck, reason="ErrImagePull", message=_said)))


@fault("image-pull", "image-never-pulled")
def image_is_never_pulled(world: World) -> None:
    world.stuck("ErrImageNeverPull", 'Container image "ghcr.io/acme/runner:1" is not present with pull policy of Never')


@fault("image-pull", "image-name-invalid")
def image_has_no_valid_name(world: World) -> None:
    world.stuck("InvalidImageName", 'Failed to apply default image tag "ghcr.io/Acme/Runner:1": couldn\'t parse image')


@fault("image-pull", "image-not-there", "job-pods")
def image_of_the_job_is_not_there(world: World) -> None:
    world.claim("pod")
    pod = world.pod
    waiting = {"reason": "ErrImagePull", "message": "ghcr.io/acme/job:1: not found"}
    pod["status"] = {"phase": "Pending", "containerStatuses": [container("job", waiting=waiting)]}


@fault("image-pull", "container-configuration")
def config_map_is_not_there(world: World) -> None:
    world.stuck("CreateContainerConfigError", 'configmap "paddock-job-hooks" not found')


@fault("image-pull", "volume-not-mounted")
def file_system_is_not_mounted(world: World) -> None:
    world.stuck("ContainerCreating")
    message = 'MountVolume.SetUp failed for volume "cache": mount failed: exit status 32'
    world.event("Pod", POD, "FailedMount", message, 1, since=8)


@fault("image-pull", "pod-network")
def pod_gets_no_address(world: World) -> None:
    world.stuck("ContainerCreating")
    message = "Failed to create pod sandbox: plugin type aws-cni: add cmd: failed to assign an IP address to container"
    world.event("Pod", POD, "FailedCreatePodSandBox", message, 1, since=8)


SANDBOXES = {
    "node_has_no_runtime_of_nvidia": (
        "node-runtime-missing", 'failed to get sandbox runtime: no runtime for "nvidia" is configured',
    ),
    "node_has_lost_the_pause_image": (
        "sandbox-image",
        'failed to get sandbox image "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/pause:3.5": failed to pull:'
        " pull access denied, repository does not exist or may require authorization: no basic auth credentials",
    ),
    "containerd_of_the_node_is_stuck": (
        "sandbox-stuck", 'failed to reserve sandbox name "x1_arc-runners_5dfb_0": name is reserved for "62d706b05a73"',
    ),
}  # fmt: skip
"""Faults whose sandbox is not made -> runbook, and the words: gpu-operator 730, eks-ami 2061, containerd 12438."""


def _without_sandbox(world: World, said: str) -> None:
    world.stuck("ContainerCreating")
    message = f"Failed to create pod sandbox: rpc error: code = Unknown desc = {said}"
    world.event("Pod", POD, "FailedCreatePodSandBox", message, 1, since=8)


for _name, (_runbook, _said) in SANDBOXES.items():
    FAULTS.append(Fault(_name, "image-pull", _runbook, partial(_without_sandbox, said=_said)))


# Registration: 3953, 3649; 2721, 3319.


@fault("registration", "runner-not-registered")
def runner_is_not_known_to_github(world: World) -> None:
    world.idle()
    world.github_runners = []


@fault("registration", "runner-offline")
def runner_is_offline(world: World) -> None:
    world.idle()
    world.github_runners[0]["status"] = "offline"


@fault("registration", "runner-ended")
def runner_program_ends(world: World) -> None:
    """A sidecar stays, so that the pod runs on."""
    world.idle()
    ended = container(terminated={"reason": "Error", "exitCode": 1})
    world.pod["status"]["containerStatuses"] = [ended, container("dind", running={"startedAt": world.ago(9)})]
    world.github_runners = []


@fault("registration", "out-of-memory", alone=True)
def job_needs_too_much_memory(world: World) -> None:
    world.lost("OOMKilled", 137)


# The job: the guide's CUDA cases; nvidia-container-toolkit 48, 1227; fvdb-core 761.


def _log(*lines: str) -> str:
    """Return a job's log as GitHub keeps it: times before the lines, commands in cyan."""
    command = "\x1b[36;1mpython train.py || grep 'CUDA error: out of memory' log\x1b[0m"
    every = ["##[group]Run python train.py", command, "##[endgroup]", "Traceback (most recent call last):", *lines]
    every.append("##[error]Process completed with exit code 1.")
    return "\n".join(f"2026-11-24T11:50:{number:02}.1234567Z {line}" for number, line in enumerate(every))


_NO_GPUS = "RuntimeError: No CUDA GPUs are available"
LOGS: Mapping[str, tuple[str, ...]] = {
    "job_needs_too_much_gpu_memory": (
        "job-gpu-memory", "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has",
    ),
    "job_needs_a_newer_driver": (
        "job-driver-too-old", "RuntimeError: CUDA driver version is insufficient for CUDA runtime version",
    ),
    "job_meets_a_driver_that_was_changed": (
        "job-driver-mismatch", "Failed to initialize NVML: Driver/library version mismatch", _NO_GPUS,
    ),
    "job_loses_its_gpus": ("job-lost-gpus", "Failed to initialize NVML: Unknown Error", _NO_GPUS),
    "job_is_built_for_another_gpu": (
        "job-other-architecture",
        "RuntimeError: CUDA error: no kernel image is available for execution on the device",
    ),
    "job_sees_no_gpu": ("job-sees-no-gpu", _NO_GPUS),
}  # fmt: skip
"""Faults of a job that has failed -> runbook, and the last lines of its log."""
for _name, (_runbook, *_lines) in LOGS.items():
    _change = partial(World.completed, conclusion="failure", log=_log(*_lines))
    FAULTS.append(Fault(_name, "job", _runbook, _change, alone=True))


def _without_gpus(world: World) -> None:
    world.unplaced()
    status = world.get("Node", NODE)["status"]
    for part in ("allocatable", "capacity"):
        status[part].pop("nvidia.com/gpu", None)
