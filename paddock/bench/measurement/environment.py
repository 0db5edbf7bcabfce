"""Environment of a run: what has to be the same for the numbers to be the same."""

from __future__ import annotations

import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from paddock import __version__
from paddock.gpu.host import cgroup, imds
from paddock.gpu.model import Gpu, Inventory

_PACKAGES = ("torch", "transformers", "llama-cpp-python", "gguf", "numpy", "nvidia-ml-py")
_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "PYTORCH_CUDA_ALLOC_CONF", "TORCH_LOGS")


def environment(machine: Inventory, environ: Mapping[str, str] = os.environ, root: Path = Path("/")) -> dict[str, Any]:
    """Return the environment as plain values; None is what could not be read."""
    return {
        "machine": machine.machine.name,
        "system": platform.platform(),
        "architecture": machine.machine.architecture,
        "container": machine.machine.container,
        "processor": processor(root),
        "vcpus": usable_cpus(root),
        "cpu_quota": cgroup.limits(root).cpus,
        "load_1m": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "memory_bytes": memory_bytes(root),
        "driver": machine.driver.version if machine.driver else None,
        "cuda": machine.driver.cuda if machine.driver else None,
        "gpus": [_gpu(gpu) for gpu in machine.gpus],
        "instance": imds.own_instance_type(environ, root),
        "image": environ.get("PADDOCK_IMAGE") or None,
        "ami": imds.own_machine_image(environ, root),
        "python": sys.version.split()[0],
        "paddock": __version__,
        "commit": _commit(),
        "packages": {name: version for name in _PACKAGES if (version := _version(name)) is not None},
        "variables": {name: environ[name] for name in _VARIABLES if name in environ},
    }


def usable_cpus(root: Path = Path("/")) -> int:
    """Return the logical CPUs that this process may use: those it may run on, and no more than a container's quota."""
    here = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cgroup.limits(root).cpus
    return here if quota is None else max(1, min(here, math.ceil(quota)))


def quota_threads(root: Path = Path("/")) -> int | None:
    """Return the threads that a container's quota has time for; None without one.

    torch counts the machine's processors: threads beyond the quota stop all of them for most of each period.
    """
    quota = cgroup.limits(root).cpus
    return None if quota is None else max(1, int(min(quota, usable_cpus(root))))


def processor(root: Path = Path("/")) -> str:
    """Return the processor's name."""
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def memory_bytes(root: Path = Path("/")) -> int | None:
    """Return the machine's memory, or a container's limit."""
    try:
        machine = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return min(machine, cgroup.limits(root).memory or machine)


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes that programs may still take, where the kernel says so, and no more than a container's limit."""
    for line in (_text(root / "proc/meminfo") or "").splitlines():
        if line.startswith("MemAvailable:"):
            machine, own = int(line.split()[1]) * 1024, cgroup.limits(root)
            return min(machine, machine if own.memory_free is None else own.memory_free)
    return None


def _gpu(gpu: Gpu) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "name": gpu.name,
        "memory_mib": gpu.memory.total if gpu.memory else None,
        "power_limit_w": gpu.power.limit,
        "max_sm_mhz": gpu.clocks.max_sm,
        "max_memory_mhz": gpu.clocks.max_memory,
        "ecc": gpu.ecc.enabled,
        "persistence": gpu.persistence,
        "vbios": gpu.vbios,
    }


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


def _text(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None
