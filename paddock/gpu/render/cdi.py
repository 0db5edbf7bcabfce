"""Device names of the Container Device Interface, and their specification."""

from __future__ import annotations

import json
from typing import Any

from paddock.gpu.render import docker
from paddock.gpu.render.access import Access, access, capabilities, kfd_group, render_nodes, wsl
from paddock.gpu.render.fields import wrong
from paddock.gpu.render.rendered import File, Rendered, headed
from paddock.gpu.render.request import RenderRequest

_NVIDIA = """#!/bin/sh
# Once on the machine, as root, and again after every change of driver, GPUs or MIG parts.
set -eu
nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml
# Docker before 28.3 has CDI switched off.
nvidia-ctk runtime configure --runtime=docker --cdi.enabled
systemctl restart docker
nvidia-ctk cdi list
"""
_BY_CTK = "The specification of NVIDIA's devices is nvidia-ctk's to write, which looks at the driver: run cdi.sh."
_BY_US = "amd.json is the whole specification: lay it in /etc/cdi."


def render(request: RenderRequest) -> Rendered:
    """Render device names by UUID: nvidia-ctk names each device by its index and by its UUID."""
    if not request.devices:
        raise wrong("CDI has no name for no GPU", "a machine with GPUs, and Enabled", "render `docker` instead")
    granted = access(request)
    notes, warnings = list(granted.notes), list(granted.warnings)
    files: tuple[File, ...]
    if request.vendor == "amd":
        names = [f"amd.com/gpu={uuid}" for uuid in request.uuids]
        files, environment = (File("amd.json", json.dumps(_specification(request), indent=2) + "\n"),), {}
        notes.append(_BY_US)
    else:
        names = [f"nvidia.com/gpu={name}" for name in (["all"] if wsl(request) else request.uuids)]
        files, environment = (headed("cdi.sh", _NVIDIA, 0o755),), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        notes.append(_BY_CTK)
        if capabilities(request):
            warnings.append("A CDI device brings all of the driver: Capabilities do not narrow it.")
    arguments = docker.arguments(Access(devices=tuple(names), security=granted.security, environment=environment))
    listed = File("devices.txt", "".join(f"{name}\n" for name in names))
    files = (listed, File(docker.NAME, docker.line(arguments)), *files)
    return Rendered("cdi", files, tuple(notes), tuple(warnings))


def _specification(request: RenderRequest) -> dict[str, Any]:
    group = kfd_group(request)
    nodes = zip(request.devices, render_nodes(request.devices), strict=True)
    return {
        # additionalGids came with 0.7.
        "cdiVersion": "0.7.0" if group else "0.6.0",
        "kind": "amd.com/gpu",
        "containerEdits": {"deviceNodes": [{"path": "/dev/kfd"}], **({"additionalGids": [group]} if group else {})},
        "devices": [
            {"name": device.uuid, "containerEdits": {"deviceNodes": [{"path": path}]}} for device, path in nodes
        ],
    }
