"""Names of GPUs in the Container Device Interface, and what makes them known."""

from __future__ import annotations

import json
from typing import Any

from paddock.gpu.render import docker
from paddock.gpu.render.access import Access, access, capabilities, kfd_group, render_nodes, wsl
from paddock.gpu.render.problems import wrong
from paddock.gpu.render.rendered import File, Rendered, headed
from paddock.gpu.render.request import Order

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


def render(order: Order) -> Rendered:
    """By UUID: nvidia-ctk names each device by its index and by its UUID."""
    if not order.devices:
        raise wrong("CDI has no name for no GPU", "a machine with GPUs, and Enabled", "render `docker` instead")
    given = access(order)
    notes, warnings = list(given.notes), list(given.warnings)
    files: tuple[File, ...]
    if order.vendor == "amd":
        names = [f"amd.com/gpu={uuid}" for uuid in order.uuids]
        files, environment = (File("amd.json", json.dumps(_specification(order), indent=2) + "\n"),), {}
        notes.append(_BY_US)
    else:
        names = [f"nvidia.com/gpu={name}" for name in (["all"] if wsl(order) else order.uuids)]
        files, environment = (headed("cdi.sh", _NVIDIA, 0o755),), {"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
        notes.append(_BY_CTK)
        if capabilities(order):
            warnings.append("A CDI device brings all of the driver: Capabilities do not narrow it.")
    arguments = docker.arguments(Access(devices=tuple(names), security=given.security, environment=environment))
    listed = File("devices.txt", "".join(f"{name}\n" for name in names))
    files = (listed, File(docker.NAME, docker.line(arguments)), *files)
    return Rendered("cdi", files, tuple(notes), tuple(warnings))


def _specification(order: Order) -> dict[str, Any]:
    group = kfd_group(order)
    nodes = zip(order.devices, render_nodes(order.devices), strict=True)
    return {
        # additionalGids came with 0.7.
        "cdiVersion": "0.7.0" if group else "0.6.0",
        "kind": "amd.com/gpu",
        "containerEdits": {
            "deviceNodes": [{"path": "/dev/kfd"}],
            **({"additionalGids": [group]} if group else {}),
        },
        "devices": [
            {"name": device.uuid, "containerEdits": {"deviceNodes": [{"path": path}]}} for device, path in nodes
        ],
    }
