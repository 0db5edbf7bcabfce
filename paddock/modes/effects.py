"""Effects of a resource mode on an engine that is a program of others: flags, variables, and what does not hold."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from paddock.gpu.model import Gpu as Device
from paddock.gpu.model import Power
from paddock.modes.config import PRESETS, ResourceConfig
from paddock.modes.policy import GpuCap, Policy

Backend = Literal["cuda", "rocm", "metal", "cpu"]


@dataclass(frozen=True, slots=True)
class Gpu:
    """Means to hold a GPU to a part of its time. None is unknown, and then not used.

    `mps` is whether an MPS daemon runs: NVIDIA's, by which a process gets a part of the multiprocessors.
    """

    mps: bool = False
    default_watts: float | None = None
    least_watts: float | None = None


@dataclass(frozen=True, slots=True)
class Effects:
    """Effects on one server.

    `memory_part` is the part of each device's memory, `slots` the requests side by side, `threads` those of a
    CPU (0: the engine's own choice). `environment` is for the server, `cap` for its GPUs, and given back at the
    end. `paced`: nothing here limits its compute, so that the gateway pauses between requests. `notes` say what does
    not hold, and what holds in another way.
    """

    memory_part: float
    slots: int
    threads: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)
    cap: GpuCap | None = None
    nice: int = 0
    paced: bool = False
    notes: tuple[str, ...] = ()


_MPS = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
_PIPE, _PIPES = "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"  # noqa: S108 - NVIDIA's own place


def effects(policy: Policy, engine: str, backend: Backend, processors: int, gpu: Gpu | None = None) -> Effects:
    """Return what the mode of a server comes to. `processors` are the logical ones that it may use.

    The compute part is threads on a CPU. On a GPU it is MPS's part of the multiprocessors where that runs, else
    a cap on power in that part of the default, where the driver says what it takes, else the gateway's pauses. Without
    `enable_auto_throttle` neither compute nor the interval is limited (`paddock.modes.config`).
    """
    largest, gpu = _largest(policy), gpu or Gpu()
    memory = largest_memory_part(policy)
    notes: list[str] = []
    threads, environment, cap, paced = 0, dict[str, str](), policy.gpu, False
    part = largest.max_compute_usage_percent if any(config.enable_auto_throttle for config in _configs(policy)) else 1.0
    changes = len({(config.enable_auto_throttle, config.max_compute_usage_percent) for config in _configs(policy)}) > 1
    if part < 1 and changes:
        paced = True
        notes.append("its compute part changes by the time of day: the gateway pauses between requests")
    elif backend == "cpu" and engine == "llama.cpp":
        threads = max(1, round(part * processors))
    elif part < 1 and backend == "cuda" and gpu.mps:
        environment[_MPS] = str(round(100 * part))
    elif part < 1 and gpu.default_watts and cap.power_watts is None and backend == "cuda":
        watts = max(round(part * gpu.default_watts), round(gpu.least_watts or 0))
        cap = cap.model_copy(update={"power_watts": watts})
        notes.append(f"its compute part is a cap on the GPU's power: {watts} of {gpu.default_watts:.0f} W")
    elif part < 1:
        paced = True
        notes.append(f"{engine} has no limit on a GPU's time: the gateway pauses between requests")
    if engine == "llama.cpp" and backend != "cpu":
        notes.append("llama.cpp has no limit on memory: the model was placed so that it fits its part")
    if len({config.max_vram_usage_percent for config in _configs(policy)}) > 1:
        notes.append(f"memory is taken once, for the mode that takes most of it: {memory:.0%}")
    held = cap if cap != GpuCap() else None
    if held and backend != "cuda":
        held = None
        notes.append("a cap on the GPU is NVIDIA's alone, and does not hold here")
    now = policy.resources
    return Effects(
        memory, most_slots(policy), threads, environment, held, now.process_priority, paced, tuple(notes),
    )  # fmt: skip


def largest_memory_part(policy: Policy) -> float:
    """Return the largest part of the memory that a policy ever takes."""
    return max(config.max_vram_usage_percent for config in _configs(policy))


def lease_share(policy: Policy) -> float | None:
    """Return the part of a GPU's memory that a policy leases; None, the GPU alone, for a server's."""
    most = largest_memory_part(policy)
    return None if most >= PRESETS["aggressive"].max_vram_usage_percent else most


def most_slots(policy: Policy) -> int:
    """Return the most requests that a policy ever lets run side by side."""
    return max(config.max_batch_size for config in _configs(policy))


def means(gpu: Device, environ: Mapping[str, str] = os.environ) -> Gpu:
    """Return what can hold a GPU of this machine. Drivers take a cap from root alone."""
    power = gpu.power if os.geteuid() == 0 else Power()
    return Gpu(mps_runs(environ), power.default_limit, power.min_limit)


def mps_runs(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether an MPS daemon takes this user's programs here (docs.nvidia.com/deploy/mps, 4.2)."""
    return (Path(environ.get(_PIPE) or _PIPES) / "control").exists()


def _configs(policy: Policy) -> tuple[ResourceConfig, ...]:
    return (policy.resources, *(PRESETS[window.mode] for window in policy.schedule))


def _largest(policy: Policy) -> ResourceConfig:
    return max(_configs(policy), key=lambda config: config.max_compute_usage_percent)
