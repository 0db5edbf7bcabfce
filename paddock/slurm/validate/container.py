"""Link that counts: a container that was given the GPUs, and lists them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from paddock.build.docker import Docker
from paddock.errors import one_line
from paddock.gpu import serialization
from paddock.gpu.errors import GpuError
from paddock.gpu.model import Inventory
from paddock.gpu.render import render
from paddock.slurm.detect.machine import Detection
from paddock.slurm.validate import host
from paddock.slurm.validate.link import Link
from paddock.slurm.write.compose import gpu_fields

_SECONDS = 120.0
_LIST = "command -v paddock > /dev/null || exit 127; exec paddock gpu.list --json"
_OPEN = 'for file; do [ -r "$file" ] && [ -w "$file" ] || echo "$file"; done'


@dataclass(frozen=True, slots=True)
class _Rule:
    """Docker's or the toolkit's words, the link that they name, and its fix."""

    words: str
    link: str
    evidence: str
    fix: str


_RULES = (
    _Rule(
        r"could not select device driver", "toolkit",
        "Docker has nothing that passes NVIDIA GPUs: the toolkit's hook is not on the engine's PATH",
        host.INSTALL_TOOLKIT,
    ),
    _Rule(
        r"[Uu]nknown(?: or invalid)? runtime", "runtime", "Docker has no runtime of that name", host.CONFIGURE_RUNTIME,
    ),
    _Rule(
        r"unresolvable CDI devices|CDI (?:device injection failed|registry)", "CDI",
        "the CDI specification does not have these devices: it is older than the driver or the GPUs",
        "sudo nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml",
    ),
    _Rule(
        r"libnvidia-ml\.so\.1: cannot open|load library failed: libnvidia-ml", "driver",
        "the toolkit does not find the driver's library libnvidia-ml.so.1",
        "install the driver's package of libraries in the version of the loaded module (nvidia-smi must work)",
    ),
    _Rule(
        r"nvml error: driver not loaded|driver rpc error|initialization error", "driver",
        "the toolkit cannot reach the NVIDIA driver", "sudo modprobe nvidia; see dmesg where that fails",
    ),
    _Rule(
        r"[Dd]river/library version mismatch", "driver", "library and loaded driver are of different versions",
        "restart the machine: the driver was upgraded while it was in use",
    ),
    _Rule(
        r"requirement error|unsatisfied condition: cuda", "driver",
        "the image's CUDA is newer than the driver allows", "upgrade the driver, or build on an older CUDA: --base",
    ),
    _Rule(
        r"nvidia-container-cli: (?:mount|ldcache|detection) error", "toolkit",
        "the toolkit cannot mount the driver into the container", host.INSTALL_TOOLKIT,
    ),
    _Rule(
        r"custom device \"?/dev/kfd|custom device \"?/dev/dri", "devices",
        "the engine's machine has no such device file",
        "sudo modprobe amdgpu; where the engine runs elsewhere, run this there",
    ),
    _Rule(
        r"[Ii]nsufficient [Pp]ermissions|No permission to use the NVIDIA driver", "cgroup",
        "the container may not open the GPUs' device files", "sudo nvidia-ctk config --in-place --set"
        " nvidia-container-cli.no-cgroups=false; for a rootless engine true",
    ),
)  # fmt: skip


def container_link(docker: Docker, image: str, detection: Detection) -> Link:
    """Run a container of the Slurm image with the GPUs, and compare what it lists with the machine.

    Raises BuildError where Docker does not answer, and GpuError for GPUs that cannot be passed.
    """
    inventory = detection.inventory
    options = shlex.split(render("docker", inventory, gpu_fields(inventory)).text("docker-run.args"))
    if unreadable := _unreadable(docker, image, detection, options):
        return Link("group", "broken", f"the container may not open {unreadable}", "ls -ln /dev/kfd /dev/dri")
    finished = docker.run(image, ["-c", _LIST], entrypoint="sh", options=options, timeout_s=_SECONDS, check=False)
    if finished.code:
        return _explained(finished.stderr) or Link(
            "container", "broken", f"it ended with {finished.code}: {one_line(finished.stderr.strip()[-300:])}",
            "build the image again: --rebuild",
        )  # fmt: skip
    try:
        return _compared(detection, serialization.loads(finished.stdout, "the container's inventory"))
    except GpuError as error:
        return Link("container", "broken", one_line(str(error)), "build the image again: --rebuild")


def _compared(detection: Detection, inside: Inventory) -> Link:
    expected = {gpu.uuid for gpu in detection.inventory.usable}
    listed = {gpu.uuid for gpu in inside.usable}
    if expected <= listed:
        return Link("container", "ok", f"a container lists {_gpus(len(listed))}")
    reason = inside.reason or f"it lists {_gpus(len(listed))} of {len(expected)}"
    if link := _explained(reason):
        return link
    return Link("container", "broken", f"the container does not have the GPUs: {reason}", host.CONFIGURE_RUNTIME)


def _unreadable(docker: Docker, image: str, detection: Detection, options: list[str]) -> str:
    """Return the AMD device files that a container may not open; sysfs lists their GPUs all the same."""
    if detection.gpu_type != "amd":
        return ""
    files = [word.removeprefix("--device=") for word in options if word.startswith("--device=")]
    command = ["-c", _OPEN, "sh", *files]
    finished = docker.run(image, command, entrypoint="sh", options=options, timeout_s=_SECONDS, check=False)
    return ", ".join(finished.stdout.split())


def _explained(words: str) -> Link | None:
    for rule in _RULES:
        if re.search(rule.words, words):
            return Link(rule.link, "broken", rule.evidence, rule.fix)
    return None


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
