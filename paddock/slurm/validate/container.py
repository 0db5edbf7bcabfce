"""Link that counts: a container that was given the GPUs, and lists them."""

from __future__ import annotations

import shlex

from paddock.errors import one_line
from paddock.gpu import serialization
from paddock.gpu.errors import GpuError
from paddock.gpu.model import Inventory
from paddock.gpu.render import render
from paddock.images.docker import Docker
from paddock.slurm.detect.machine import Detection
from paddock.slurm.messages import row
from paddock.slurm.validate import host
from paddock.slurm.validate.link import Link
from paddock.slurm.write.compose import gpu_fields

_SECONDS = 120.0
_LIST = "command -v paddock > /dev/null || exit 127; exec paddock gpu.list --json"
_OPEN = 'for file; do [ -r "$file" ] && [ -w "$file" ] || echo "$file"; done'


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
    known = row("docker", words)
    return Link(known["link"], "broken", known["evidence"], known["fix"]) if known else None


def _gpus(count: int) -> str:
    return f"{count} GPU{'' if count == 1 else 's'}"
