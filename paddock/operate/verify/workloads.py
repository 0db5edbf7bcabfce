"""Jobs of a verification: pods as the fleet's own have them, with a test in place of the runner. Pure functions."""

from __future__ import annotations

import copy
from typing import Any

from paddock.errors import PaddockError
from paddock.fleet import Fleet, nodes
from paddock.fleet.model.runner import Runner
from paddock.labels import VERIFY
from paddock.operate.snapshot.model import Object

_KEPT = ("nodeSelector", "tolerations", "securityContext", "imagePullSecrets", "runtimeClassName")
NVIDIA_SMI = ("nvidia-smi", "--list-gpus")
TORCH = ("paddock", "smoke", "--tier", "2", "--python", "python3", "--must-run", "--expect")
"""Paddock has an environment of its own in an image, and torch is in the Python of jobs: without it nothing passes."""
_MEMORY_GIB, _MEMORY_GIB_PER_GPU = 2, 4
"""Of a test's pod: each GPU has a process with torch, CUDA's libraries and 512 MiB of pinned memory."""
_GONE_AFTER_SECONDS = 600
"""Kubernetes itself takes a Job away that long after its end, where this program was killed."""


class NoImage(PaddockError):
    """Nobody says which image a job of the fleet runs in."""


def gpu_job(
    fleet: Fleet, runner: Runner, runner_set: Object, name: str, run: str, command: tuple[str, ...], seconds: int
) -> dict[str, Any]:
    """Return a Job that runs a command in a pod of the scale set's own template: image, place and security.

    Kubernetes ends it after `seconds`, whatever becomes of this program. Raises NoImage.
    """
    template = runner_set["spec"].get("template") or {}
    spec = copy.deepcopy(dict(template.get("spec") or {}))
    containers = spec.get("containers") or []
    if runner.container == "kubernetes-novolume" or not containers or not containers[0].get("image"):
        raise NoImage("jobs of this scale set bring their own image")
    marks = {VERIFY: run}
    memory = f"{_MEMORY_GIB + _MEMORY_GIB_PER_GPU * runner.gpus}Gi"
    container = {
        "name": "test",
        "image": containers[0]["image"],
        "command": list(command),
        "env": [{"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}],
        "resources": {
            "requests": {"cpu": "1", "memory": memory, nodes.GPU: str(runner.gpus)},
            "limits": {"memory": memory, nodes.GPU: str(runner.gpus)},
        },
        "securityContext": containers[0].get("securityContext") or {},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],  # noqa: S108 - a mount, no file of ours
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": runner_set["metadata"]["namespace"], "labels": marks},
        "spec": {
            "backoffLimit": 0,
            "activeDeadlineSeconds": seconds,
            "ttlSecondsAfterFinished": _GONE_AFTER_SECONDS,
            "template": {
                "metadata": {
                    "labels": marks,
                    "annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"},
                },
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "terminationGracePeriodSeconds": 5,
                    **{key: spec[key] for key in _KEPT if key in spec},
                    "containers": [container],
                    "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}],
                },
            },
        },
    }
