"""Environment of a run: what has to be the same for the numbers to be the same."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from paddock import __version__
from paddock.gpu.host import cgroup, imds, resources
from paddock.gpu.model import Gpu, Inventory

_PACKAGES = ("torch", "transformers", "torchao", "xllamacpp", "gguf", "numpy", "nvidia-ml-py")
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_LOGS")


def environment(machine: Inventory, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> dict[str, Any]:
    """Return the environment as plain values; None is what could not be read."""
    return {
        "machine": machine.machine.name, "system": platform.platform(), "architecture": machine.machine.architecture,
        "container": machine.machine.container, "processor": resources.processor(root),
        "vcpus": resources.usable_cpus(root), "cpu_quota": cgroup.limits(root).cpus,
        "load_1m": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "governor": resources.text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": resources.memory_bytes(root), "driver": machine.driver.version if machine.driver else None,
        "cuda": machine.driver.cuda if machine.driver else None, "gpus": [_gpu(gpu) for gpu in machine.gpus],
        "instance": imds.own_instance_type(environ, root), "image": environ.get("PADDOCK_IMAGE") or None,
        "ami": imds.own_machine_image(environ, root), "python": sys.version.split()[0], "paddock": __version__,
        "commit": _commit(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "variables": {name: environ[name] for name in _VARIABLES if name in environ},
    }  # fmt: skip


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid, "name": gpu.name, "memory_mib": gpu.memory.total if gpu.memory else None,
        "power_limit_w": gpu.power.limit, "max_sm_mhz": gpu.clocks.max_sm, "max_memory_mhz": gpu.clocks.max_memory,
        "ecc": gpu.ecc.enabled, "persistence": gpu.persistence, "vbios": gpu.vbios,
    }  # fmt: skip


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Return the checkout's commit, with `-dirty` where its files are changed."""
    folder = Path(__file__).parent
    command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=5)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
