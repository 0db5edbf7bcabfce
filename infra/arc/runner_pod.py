"""The pod a job runs in, and the values of the scale set that makes such pods. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra import versions
from infra.manifests import manifest
from paddock.fleet import Fleet, arc, nodes
from paddock.fleet.model.pool import Mps, TimeSlicing
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.model.runner import Claim, Runner, Scratch, Storage
from paddock.fleet.sizing import capacity
from paddock.labels import ROLE
from paddock.monitoring.metrics import listener

HOOKS = "paddock-job-hooks"
"""ConfigMap of the scripts in runners/hooks."""
_HOOKS_AT = "/opt/paddock/hooks"

MARKS_NODE_AS = "node-mark"
"""Service account of runner pods that may mark their node for replacement."""
MARKS_NODE: Mapping[str, str] = {ROLE: "runner"}
"""Label of those pods."""
_MARK_AT = "/var/run/paddock/kubernetes"


def image(fleet: Fleet, runner: Runner) -> str:
    """Image of the runner's pod: its own, the fleet's, or GitHub's; from the mirror."""
    name = runner.image or fleet.images.runner or f"ghcr.io/actions/actions-runner:{versions.ACTIONS_RUNNER}"
    return fleet.mirror.image(name)


def marks_node(runner: Runner) -> bool:
    """Return whether its pod may mark the node: it must have the GPU, or its hooks find nothing broken."""
    return runner.mark_node and runner.container != "kubernetes-novolume"


def priority_class(fleet: Fleet, priority: int) -> str:
    return fleet.cluster.arc.named(f"paddock-{'minus-' if priority < 0 else ''}{abs(priority)}")


def scale_set_values(fleet: Fleet, runner: Runner, secret: str) -> dict[str, Any]:
    """Values of the gha-runner-scale-set chart. `secret` names the Kubernetes secret with the credential."""
    controller = arc.controllers(fleet)[arc.namespace(fleet, runner)]
    values: dict[str, Any] = manifest(
        "scale-set",
        url=fleet.github.url,
        secret=secret,
        group=runner.group or fleet.github.runner_group,
        name=runner.scale_set,
        labels=list(runner.effective_labels),
        least=runner.min,
        most=fleet.max_runners(runner),
        namespace=controller.namespace,
        account=controller.account,
        metrics=listener.chart_values(),
        selector=nodes.system_selector(fleet),
        template=runner_template(fleet, runner),
    )
    if runner.container == "kubernetes-novolume":
        values["containerMode"] = {"type": "kubernetes-novolume"}
    return values


def controller_values(fleet: Fleet, controller: arc.Controller) -> dict[str, Any]:
    """Values of the gha-runner-scale-set-controller chart."""
    values: dict[str, Any] = manifest("controller", account=controller.account, selector=nodes.system_selector(fleet))
    if controller.watches:
        values["flags"] = {**values["flags"], "watchSingleNamespace": controller.watches}
    return values


def runner_template(fleet: Fleet, runner: Runner) -> Any:
    """The pod that registers with GitHub. Unless jobs have pods of their own, it is also the one with the GPU."""
    match runner.container:
        case "kubernetes-novolume":
            return _coordinator(fleet, runner)
        case "dind":
            return _with_docker(_gpu_pod(fleet, runner, "runner"), fleet, runner)
        case _:
            return _gpu_pod(fleet, runner, "runner")


def job_template(fleet: Fleet, runner: Runner) -> dict[str, Any]:
    """Return what the container hook merges into each job's pod in kubernetes-novolume mode."""
    pod = _gpu_pod(fleet, runner, "$job")
    job, spec = pod["spec"]["containers"][0], pod["spec"]
    for key in ("image", "command"):  # the workflow's own
        del job[key]
    del spec["securityContext"]
    # The hook brings the workspace and appends our lists to its own: a second volume of that name and no pod is made.
    # Job hooks run in the coordinator, which has no GPU to look at.
    shared = {"shm", *map(_volume, runner.volumes)}
    job["volumeMounts"] = [mount for mount in job["volumeMounts"] if mount["name"] in shared]
    spec["volumes"] = [volume for volume in spec["volumes"] if volume["name"] in shared]
    job["env"] = [variable for variable in job["env"] if not variable["name"].startswith("ACTIONS_RUNNER_HOOK_")]
    return pod


def _neighbours(fleet: Fleet, runner: Runner) -> dict[str, str]:
    """Tells the job hooks that memory in use may be another job's, which works on the same GPU."""
    match fleet.pools[runner.pool].sharing:
        case TimeSlicing():
            return {"PADDOCK_GPU_SHARING": "timeSlicing"}
        case Mps():
            return {"PADDOCK_GPU_SHARING": "mps"}
        case _:
            return {}


def _gpu_pod(fleet: Fleet, runner: Runner, container: str) -> dict[str, Any]:
    share = capacity.default_share(fleet, runner)
    gpu = {nodes.GPU: runner.gpus}
    environment = {
        **runner.environment,
        "PADDOCK_GPUS": str(runner.gpus),
        **_neighbours(fleet, runner),
        "ACTIONS_RUNNER_HOOK_JOB_STARTED": f"{_HOOKS_AT}/job-started.sh",
        "ACTIONS_RUNNER_HOOK_JOB_COMPLETED": f"{_HOOKS_AT}/job-completed.sh",
    }
    disk = format_memory(capacity.runner_request(fleet, runner).ephemeral_mib)
    memory = _shared_memory(fleet, runner, share.memory_mib)
    limits = {"memory": format_memory(share.memory_mib), **gpu}
    pod: dict[str, Any] = manifest(
        "runner",
        grace_seconds=nodes.SPOT_GRACE_SECONDS,
        selector=nodes.gpu_selector(fleet, fleet.pools[runner.pool]),
        toleration=nodes.TAINT.toleration(),
        name=container,
        image=image(fleet, runner),
        environment=[{"name": key, "value": value} for key, value in environment.items()],
        requests={"cpu": format_cpu(share.cpu_m), "ephemeral-storage": disk, **limits},
        limits=limits,
        mounts=[
            {"name": "work", "mountPath": "/home/runner/_work"},
            *({"name": volume["name"], "mountPath": "/dev/shm"} for volume in memory),  # noqa: S108 - a mount, no file of ours
            {"name": "hooks", "mountPath": _HOOKS_AT, "readOnly": True},
            *(_mount(volume, storage) for volume, storage in runner.volumes.items()),
        ],
        volumes=[
            {"name": "work", "emptyDir": {}},
            *memory,
            {"name": "hooks", "configMap": {"name": HOOKS, "defaultMode": 0o555}},
            *({"name": _volume(volume), **_source(storage)} for volume, storage in runner.volumes.items()),
        ],
    )
    if runner.priority:
        pod["spec"]["priorityClassName"] = priority_class(fleet, runner.priority)
    if marks_node(runner):
        _mark_node(pod)
    return pod


def _mark_node(pod: dict[str, Any]) -> None:
    """A token of ten minutes, the shortest there is (the kubelet renews it), and the name of the node to mark."""
    spec, runner = pod["spec"], pod["spec"]["containers"][0]
    sources = [
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
    ]
    node = {"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}
    pod["metadata"]["labels"] = dict(MARKS_NODE)
    spec["serviceAccountName"] = MARKS_NODE_AS
    spec["volumes"].append({"name": "node-mark", "projected": {"sources": sources}})
    runner["volumeMounts"].append({"name": "node-mark", "mountPath": _MARK_AT, "readOnly": True})
    runner["env"] = [*(variable for variable in runner["env"] if variable["name"] != node["name"]), node]


def _shared_memory(fleet: Fleet, runner: Runner, memory_mib: int) -> list[dict[str, Any]]:
    """The volume for /dev/shm. The default of 64 MiB stops NCCL and data loaders with shared-memory errors.

    With MPS it is the device plugin's: one for all pods of the node, through which they reach the MPS server.
    """
    if isinstance(fleet.pools[runner.pool].sharing, Mps):
        return []
    return [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": format_memory(shm(runner, memory_mib))}}]


def shm(runner: Runner, memory_mib: int) -> int:
    """Size limit of /dev/shm in MiB. It is charged to the container's memory."""
    return runner.shm or min(memory_mib // 4, 8192 * runner.gpus)


def _coordinator(fleet: Fleet, runner: Runner) -> Any:
    """The pod that only steers jobs: small, and on system nodes, so that a GPU is held just while a job uses it."""
    return manifest(
        "coordinator",
        labels={ROLE: "coordinator"},
        grace_seconds=nodes.SPOT_GRACE_SECONDS,
        selector=nodes.system_selector(fleet),
        image=image(fleet, runner),
        resources=capacity.COORDINATOR.kubernetes(),
        template=template_name(runner),
    )


def template_name(runner: Runner) -> str:
    """ConfigMap with the job's pod template."""
    return f"{runner.scale_set}-pod-template"


def _with_docker(pod: dict[str, Any], fleet: Fleet, settings: Runner) -> dict[str, Any]:
    """Adds a Docker daemon as a sidecar."""
    spec, runner = pod["spec"], pod["spec"]["containers"][0]
    variables = {"DOCKER_HOST": "unix:///var/run/docker.sock", "RUNNER_WAIT_FOR_DOCKER_IN_SECONDS": "120"}
    runner["env"] = [variable for variable in runner["env"] if variable["name"] not in variables]
    runner["env"] += [{"name": key, "value": value} for key, value in variables.items()]
    runner["volumeMounts"].append({"name": "docker-socket", "mountPath": "/var/run"})
    spec["initContainers"] = manifest(
        "docker",
        runner=image(fleet, settings),
        docker=fleet.mirror.image(f"docker:{versions.DOCKER_DIND}"),
        resources=capacity.DIND.kubernetes(),
    )
    spec["volumes"] += [{"name": "docker-socket", "emptyDir": {}}, {"name": "externals", "emptyDir": {}}]
    return pod


def _mount(name: str, storage: Storage) -> dict[str, Any]:
    read_only = {"readOnly": True} if isinstance(storage, Claim) and storage.read_only else {}
    return {"name": _volume(name), "mountPath": storage.mount, **read_only}


def _volume(name: str) -> str:
    """A user's volume in the pod; the prefix keeps it apart from ours and the container hook's."""
    return f"volume-{name}"


def _source(storage: Storage) -> dict[str, Any]:
    match storage:
        case Scratch():
            medium = {"medium": "Memory"} if storage.medium == "memory" else {}
            return {"emptyDir": {"sizeLimit": format_memory(storage.scratch), **medium}}
        case Claim():
            return {"persistentVolumeClaim": {"claimName": storage.claim, "readOnly": storage.read_only}}
        case _:
            claim = {
                "accessModes": ["ReadWriteOnce"],
                "storageClassName": storage.storage_class,
                "resources": {"requests": {"storage": format_memory(storage.volume)}},
            }
            return {"ephemeral": {"volumeClaimTemplate": {"spec": claim}}}
