"""Compose file of the container."""

from __future__ import annotations

from typing import Any

from paddock.gpu.model import Inventory
from paddock.gpu.render import render
from paddock.gpu.render.rendered import File, headed
from paddock.slurm.programs.names import JOBS, container_name

STATE, LOGS, CONFIGURATION = "/var/spool/slurmctld", "/var/log/slurm", "/etc/paddock-slurm"
_STOP_S = 30
"""Seconds that the daemons get to end in order before Docker kills them."""


def compose_file(inventory: Inventory, prefix: str, image: str, *, shards: int = 0) -> File:
    """Return compose.yaml: one container with the whole machine's GPUs, or with the usable ones by UUID.

    `inventory` is the machine's, not the container's. `shards` is the number of jobs that may share a GPU. Raises
    GpuError and SlurmInputError.
    """
    import yaml

    name = container_name(prefix)
    rendered = render("compose", inventory, gpu_fields(inventory), image=image, service=name)
    document: dict[str, Any] = yaml.safe_load(rendered.text("compose.yaml"))
    service = document["services"][name]
    service = {
        "image": image,
        **({"command": ["--shards", str(shards)]} if shards else {}),
        "container_name": name,
        "hostname": name,
        **{key: value for key, value in service.items() if key != "image"},
        "volumes": [
            f".:{CONFIGURATION}:ro",
            f"./jobs:{JOBS}",
            f"state:{STATE}",
            f"logs:{LOGS}",
            "munge:/etc/munge",
        ],
        "security_opt": ["no-new-privileges:true", *service.get("security_opt", [])],
        "stop_grace_period": f"{_STOP_S}s",
        "restart": "unless-stopped",
        "pull_policy": "never",
    }
    whole = {"name": prefix, "services": {name: service}, "volumes": {"state": {}, "logs": {}, "munge": {}}}
    return headed("compose.yaml", yaml.safe_dump(whole, sort_keys=False, width=1000))


def gpu_fields(inventory: Inventory) -> dict[str, Any] | None:
    """Return fields for renderers. All GPUs by that word, so that the container starts on another machine too."""
    whole = bool(inventory.gpus) and len(inventory.usable) == len(inventory.gpus)
    divided = any(gpu.mig and gpu.mig.enabled for gpu in inventory.gpus)
    return {"All": True} if whole and not divided and inventory.gpus[0].vendor == "nvidia" else None
