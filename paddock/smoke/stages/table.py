"""Stages of tiers 2 and 3: what each runs, on what, and for how long."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddock.smoke.verdict.model import Tier


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage: the worker that it runs, its parameters on a GPU and on the CPU, and its time limit in seconds."""

    name: str
    tier: Tier
    worker: str
    """Empty for one that asks the driver."""
    on_gpu: Mapping[str, Any]
    on_cpu: Mapping[str, Any] | None
    """None for a stage that does not apply to the CPU."""
    seconds: float
    whole_machine: bool = False
    """It works all GPUs together."""
    watched: bool = False
    """Clocks are sampled while it runs."""
    alone: bool = False
    """One device at a time: on some machines several GPUs share one link to the host, which a guest cannot see (two
    each on p4d; aws-ofi-nccl, topology/p4d-24xl-topo.xml)."""


_MIB = 1 << 20
_GIB = 1 << 30
STAGES: tuple[Stage, ...] = (
    Stage("memory", 2, "memory",
        {"part": 0.8, "at_most": 8 * _GIB}, {"part": 0.25, "at_most": 512 * _MIB}, 40),
    Stage("compute", 2, "gemm",
        {"size": 8192, "warm_up": 20, "repeats": 30}, {"size": 1024, "warm_up": 2, "repeats": 5}, 40),
    Stage("bandwidth", 2, "transfer",
        {"size": 256 * _MIB, "repeats": 5}, {"size": 256 * _MIB, "repeats": 5}, 30, alone=True),
    Stage("throttling", 2, "load",
        {"size": 8192, "seconds": 5.0}, {"size": 1024, "seconds": 3.0}, 40, watched=True),
    Stage("soak", 3, "load", {"size": 8192, "seconds": 600.0}, {"size": 1024, "seconds": 600.0}, 700, watched=True),
    Stage("peers", 3, "peers", {"size": 256 * _MIB, "repeats": 5}, None, 120, whole_machine=True),
    # The limits are those of 8 and 16 GiB; from 2 GiB on, the start of an all-reduce no longer counts.
    Stage("all-reduce", 3, "allreduce",
        {"size": 4 * _GIB, "repeats": 20}, {"size": 16 * _MIB, "repeats": 5, "ranks": 2}, 120, whole_machine=True),
    Stage("nvlink", 3, "", {}, None, 0, whole_machine=True),
)  # fmt: skip
"""In the order in which a machine does them."""
LARGE_MESSAGE = 2 * _GIB
"""Bytes from which an all-reduce is held against its limits."""


def stages(tier: Tier, soak: float) -> tuple[Stage, ...]:
    """Return the stages of a tier: the third tests nearly all of the memory, and works for `soak` seconds."""
    chosen = [stage for stage in STAGES if stage.tier <= tier]
    return tuple(_longer(stage, soak) if tier == 3 else stage for stage in chosen)


def _longer(stage: Stage, soak: float) -> Stage:
    match stage.name:
        case "memory":
            return replace(stage, on_gpu={**stage.on_gpu, "at_most": None}, seconds=120)
        case "soak":
            on_gpu, on_cpu = ({**parameters, "seconds": soak} for parameters in (stage.on_gpu, stage.on_cpu or {}))
            return replace(stage, on_gpu=on_gpu, on_cpu=on_cpu, seconds=soak + 100)
        case _:
            return stage
