"""GPUs: what a card can do, which CUDA drives it, how MIG cuts it, and speeds below which one is faulty."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping

Dtype = Literal["fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8", "int4", "fp4"]


class UnknownGpu(_data.UnknownName):
    """No GPU of that key; `suggestions` are the nearest keys."""

    kind = "GPU"


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One way to cut a GPU: ``1g.5gb`` is one compute slice with 5 GB, up to `max_instances` of them on one GPU."""

    name: str
    memory_gib: int
    compute_slices: int
    max_instances: int


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU model.

    Units: `memory_mib` MiB as EC2 reports it, `bandwidth_gbs` and `nvlink_gbs` GB/s (NVLink both ways, 0 without),
    `tflops` peak dense TFLOP/s (TOP/s for integers), `tdp_w` watt. None is a value no source gave.
    `product` is the NVML name.
    """

    key: str
    name: str
    product: str | None
    ec2_name: str
    pci_device_id: str | None
    architecture: str
    compute_capability: str
    memory_mib: int
    bandwidth_gbs: int | None
    tflops: Mapping[str, float] = field(hash=False)
    unsupported: tuple[str, ...]
    nvlink_gbs: int
    tdp_w: int | None
    cuda_first: str
    cuda_last: str | None
    accelerator_label: str
    mig: tuple[MigProfile, ...]

    def supports(self, dtype: Dtype) -> bool | None:
        """Return whether the hardware computes in `dtype`; None when not known."""
        if dtype in self.tflops:
            return True
        return False if dtype in self.unsupported else None

    def runs_cuda(self, toolkit: str) -> bool:
        """Return whether code built by CUDA `toolkit` (``"12.8"``) can target this GPU."""
        minor = _data.version(toolkit)[:2]
        return minor >= _data.version(self.cuda_first) and (
            self.cuda_last is None or minor <= _data.version(self.cuda_last)
        )

    def mig_profile(self, name: str) -> MigProfile:
        """The profile of that name (``"1g.10gb"``). Raises UnknownMigProfile, also where the GPU has no MIG."""
        for profile in self.mig:
            if profile.name == name:
                return profile
        raise UnknownMigProfile(name, (profile.name for profile in self.mig))


class UnknownMigProfile(_data.UnknownName):
    """The GPU has no MIG profile of that name."""

    kind = "MIG profile"


@cache
def gpus() -> Mapping[str, Gpu]:
    """Every GPU by key (``"a100-40gb"``), oldest architecture first."""
    return MappingProxyType({row["key"]: _gpu(row) for row in _data.rows("gpus.json")})


def gpu(key: str) -> Gpu:
    """The GPU of that key. Raises UnknownGpu with the nearest keys."""
    try:
        return gpus()[key]
    except KeyError:
        raise UnknownGpu(key, gpus()) from None


def _gpu(row: _data.Row) -> Gpu:
    return Gpu(
        **row
        | {
            "tflops": MappingProxyType(row["tflops"]),
            "unsupported": tuple(row["unsupported"]),
            "mig": tuple(MigProfile(**profile) for profile in row["mig"]),
        }
    )


@dataclass(frozen=True, slots=True)
class Limit:
    """Below `warn` a GPU is slower than it should be, below `fail` unfit for work. None is a limit without a source."""

    warn: float | None
    fail: float | None
    source: str
    """Name of the source, with its address."""


@dataclass(frozen=True, slots=True)
class SmokeLimits:
    """Limits of one GPU model: GEMM in `dtype` in TFLOP/s, memory and all-reduce in GB/s.

    A copy counts the bytes that it reads and those that it writes. The all-reduce is that of 8 GPUs, bus bandwidth.
    """

    gpu: str
    dtype: Dtype
    gemm_tflops: Limit
    memory_gbs: Limit
    allreduce_gbs: Limit


def smoke_limits(gpu: str) -> SmokeLimits | None:
    """Return the limits of a GPU model (``"a100-40gb"``); None where no source has any."""
    return _smoke_limits().get(gpu)


def pcie_limit(generation: int | None, lanes: int | None) -> Limit | None:
    """Return the limit of pinned copies over a PCIe link, in GB/s in each direction; None where no source has one."""
    for row in _data.rows("smoke_limits.json", "pcie"):
        if (row["generation"], row["lanes"]) == (generation, lanes):
            return _limit(row)
    return None


@cache
def _smoke_limits() -> Mapping[str, SmokeLimits]:
    names = ("gemm_tflops", "memory_gbs", "allreduce_gbs")
    return MappingProxyType(
        {
            row["gpu"]: SmokeLimits(**row | {name: _limit(row[name]) for name in names})
            for row in _data.rows("smoke_limits.json")
        }
    )


def _limit(row: _data.Row) -> Limit:
    sources = {source["key"]: source for source in _data.document("smoke_limits.json")["sources"]}
    source = sources[row["source"]]
    return Limit(row["warn"], row["fail"], f"{source['name']} ({source['url']})")
