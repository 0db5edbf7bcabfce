"""State of a node's image, container and Slurm, as far as they can be read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddock.gpu import serialization
from paddock.gpu.errors import GpuError
from paddock.gpu.model import Inventory
from paddock.images.docker import Docker
from paddock.images.docker.process import TimedOut

GPU_TYPE = "dev.paddock.gpu-type"
"""Label of the image: the type of GPU that it was built for."""
_FILES = ("slurm.conf", "gres.conf")
_NODES = ("sinfo", "--noheader", "--Node", "--format", "%n|%T|%G|%E")


@dataclass(frozen=True, slots=True)
class SlurmNode:
    name: str
    state: str
    gres: str
    reason: str


@dataclass(frozen=True, slots=True)
class Container:
    """Container of the node. `gpus`: it was started with GPUs."""

    running: bool
    state: str
    gpus: bool
    image_type: str
    last_lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeState:
    """None is what could not be read: there is no image or container, or it does not run."""

    name: str
    image: str
    image_type: str | None = None
    """Empty for an image that is not ours."""
    container: Container | None = None
    inventory: Inventory | None = None
    files: Mapping[str, str] | None = None
    nodes: tuple[SlurmNode, ...] | None = None
    slurm_error: str = ""


def node_state(docker: Docker, name: str, image: str) -> NodeState:
    """Read all of it from the engine and the container. Raises BuildError where Docker does not answer."""
    local, inspected = docker.image(image), docker.container(name)
    image_type = local.labels.get(GPU_TYPE, "") if local else None
    state = NodeState(name=name, image=image, image_type=image_type)
    if inspected is None:
        return state
    state = replace(state, container=_container(docker, name, inspected))
    if not (state.container and state.container.running):
        return state
    nodes, error = _nodes(docker, name)
    files = {file: _output(docker, name, "cat", f"/etc/slurm/{file}") or "" for file in _FILES}
    return replace(state, inventory=_inventory(docker, name), files=files, nodes=nodes, slurm_error=error)


def _container(docker: Docker, name: str, inspected: Mapping[str, Any]) -> Container:
    state, host = inspected.get("State") or {}, inspected.get("HostConfig") or {}
    environment = (inspected.get("Config") or {}).get("Env") or []
    visible = [value.partition("=")[2] for value in environment if value.startswith("NVIDIA_VISIBLE_DEVICES=")]
    runtime = str(host.get("Runtime") or "").startswith("nvidia") and visible not in ([], ["void"], ["none"], [""])
    running = bool(state.get("Running"))
    return Container(
        running=running,
        state=f"exited with {state.get('ExitCode')}" if state.get("Status") == "exited" else str(state.get("Status")),
        gpus=bool(host.get("DeviceRequests") or host.get("Devices") or runtime),
        image_type=((inspected.get("Config") or {}).get("Labels") or {}).get(GPU_TYPE, ""),
        last_lines=() if running else tuple(docker.last_lines(name)),
    )


def _inventory(docker: Docker, name: str) -> Inventory | None:
    text = _output(docker, name, "paddock", "gpu.list", "--json")
    try:
        return serialization.loads(text, "the container's inventory") if text else None
    except (GpuError, json.JSONDecodeError):
        return None


def _nodes(docker: Docker, name: str) -> tuple[tuple[SlurmNode, ...] | None, str]:
    try:
        finished = docker.execute(name, _NODES, timeout_s=30)
    except TimedOut as error:
        return None, str(error)
    if finished.code:
        return None, (finished.stderr or finished.stdout).strip()
    rows = [line.split("|", 3) for line in finished.stdout.splitlines() if line.count("|") >= 3]
    return tuple(dict.fromkeys(SlurmNode(*row) for row in rows)), ""


def _output(docker: Docker, name: str, *command: str) -> str | None:
    try:
        finished = docker.execute(name, command)
    except TimedOut:
        return None
    return None if finished.code else finished.stdout
