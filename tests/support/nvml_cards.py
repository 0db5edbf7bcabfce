"""GPUs as a made-up NVIDIA driver describes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pynvml


@dataclass
class Fault:
    """A call fails with `code` once it has worked `after` times, and works again after failing `times` times."""

    code: int
    after: int = 0
    times: int | None = None

    def due(self) -> bool:
        if self.after > 0:
            self.after -= 1
            return False
        if self.times is None:
            return True
        self.times -= 1
        return self.times >= 0


@dataclass
class Part:
    """A MIG device."""

    gpu_instance: int
    slices: int = 1
    memory_mib: int = 9856
    compute_instance: int = 0
    compute_slices: int | None = None
    used_mib: int = 12
    uuid: str = ""
    processes: tuple[tuple[int, int | None], ...] = ()


@dataclass
class Card:
    """One GPU as the driver sees it. None: it says NotSupported. Processes are (pid, MiB) pairs."""

    name: str = "NVIDIA H100 80GB HBM3"
    uuid: str = ""
    bus: int = 4
    device_id: int = 0x2330
    minor: int | None = None
    serial: str | None = "1650522003820"
    architecture: int = pynvml.NVML_DEVICE_ARCH_HOPPER
    compute: tuple[int, int] = (9, 0)
    cores: int = 16896
    total_mib: int = 81559
    reserved_mib: int = 551
    used_mib: int = 0
    utilisation: tuple[int, int] = (0, 0)
    temperature: int = 34
    memory_temperature: int | None = 41
    margin: int | None = 53
    draw_mw: int = 71_432
    limit_mw: int = 700_000
    limits_mw: tuple[int, int] = (200_000, 700_000)
    energy_mj: int | None = 5_400_000_123
    clocks: tuple[int, int] = (345, 2619)
    max_clocks: tuple[int, int] = (1980, 2619)
    reasons: int = 0x1
    ecc: bool | None = True
    corrected: int = 0
    uncorrected: int = 0
    aggregate: int = 0
    sram: int = 0
    remapped: tuple[int, int, int, int] | None = (0, 0, 0, 0)
    retired: tuple[int, int, int] | None = None
    """Pages of single and double bit errors, and whether some are pending: before Ampere."""
    recovery: int | None = 0
    pcie: tuple[int, int, int, int] = (5, 16, 5, 16)
    replays: int = 0
    links: int = 18
    dead_links: frozenset[int] = frozenset()
    links_to: str | list[int] = "switch"
    """`switch`, or the index of the GPU that each link leads to."""
    link_errors: dict[int, int] = field(default_factory=dict)
    numa: int = 0
    persistence: bool = True
    compute_mode: int = 0
    mig: tuple[int, int] | None = (0, 0)
    parts: list[Part] = field(default_factory=list)
    vbios: str = "96.00.89.00.01"
    processes: list[tuple[int, int | None]] = field(default_factory=list)
    graphics: list[tuple[int, int | None]] = field(default_factory=list)
    mps: list[tuple[int, int | None]] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)
    """By C name of the function."""
    fields_missing: frozenset[int] = frozenset()
    lost: bool = False
    lost_after: int | None = None
    """Calls that the GPU still answers before it is lost."""

    def fields(self) -> Mapping[int, int | None]:
        ecc = self.ecc
        remapped: tuple[int | None, ...] = self.remapped or (None,) * 4
        retired: tuple[int | None, ...] = self.retired or (None,) * 3
        return {
            pynvml.NVML_FI_DEV_ECC_CURRENT: None if ecc is None else int(ecc),
            pynvml.NVML_FI_DEV_ECC_SBE_VOL_TOTAL: self.corrected if ecc else None,
            pynvml.NVML_FI_DEV_ECC_DBE_VOL_TOTAL: self.uncorrected if ecc else None,
            pynvml.NVML_FI_DEV_ECC_DBE_AGG_TOTAL: self.aggregate if ecc else None,
            pynvml.NVML_FI_DEV_RETIRED_SBE: retired[0],
            pynvml.NVML_FI_DEV_RETIRED_DBE: retired[1],
            pynvml.NVML_FI_DEV_RETIRED_PENDING: retired[2],
            pynvml.NVML_FI_DEV_MEMORY_TEMP: self.memory_temperature,
            pynvml.NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION: self.energy_mj,
            pynvml.NVML_FI_DEV_NVLINK_LINK_COUNT: self.links or None,
            pynvml.NVML_FI_DEV_PCIE_REPLAY_COUNTER: self.replays,
            pynvml.NVML_FI_DEV_REMAPPED_COR: remapped[0],
            pynvml.NVML_FI_DEV_REMAPPED_UNC: remapped[1],
            pynvml.NVML_FI_DEV_REMAPPED_PENDING: remapped[2],
            pynvml.NVML_FI_DEV_REMAPPED_FAILURE: remapped[3],
            pynvml.NVML_FI_DEV_POWER_AVERAGE: self.draw_mw if self.compute >= (8, 6) else None,
            pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION: self.recovery,
        }

    def scoped(self, field_id: int, scope: int) -> int | None:
        """Return a field of one link."""
        if scope >= self.links:
            return None
        if field_id == pynvml.NVML_FI_DEV_NVLINK_GET_STATE:
            return int(scope not in self.dead_links)
        if field_id == pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY:
            return self.link_errors.get(scope, 0)
        return 0


def card(model: str, **changes: Any) -> Card:
    """Return a card of MODELS, with some of it otherwise."""
    return replace(Card(**MODELS[model]), **changes)


def box(model: str, count: int, **changes: Any) -> list[Card]:
    """`count` cards of a model, on buses of their own, half of them on each of two NUMA nodes."""
    near = max(1, count // 2) if count > 1 else 1
    return [card(model, bus=4 + 8 * n, numa=n // near % 2, **changes) for n in range(count)]


_NO_LINKS = {"links": 0, "mig": None}
_OLD: dict[str, Any] = {"margin": None, "memory_temperature": None}

MODELS: dict[str, dict[str, Any]] = {
    "T4": _NO_LINKS | _OLD | {
        "name": "Tesla T4", "device_id": 0x1EB8, "architecture": 6, "compute": (7, 5), "cores": 2560,
        "total_mib": 15360, "reserved_mib": 429, "draw_mw": 9_120, "limit_mw": 70_000, "limits_mw": (60_000, 70_000),
        "clocks": (300, 405), "max_clocks": (1590, 5001), "pcie": (1, 8, 3, 16), "remapped": None,
        "retired": (0, 0, 0), "recovery": None,
    },
    "A10G": _NO_LINKS | _OLD | {
        "name": "NVIDIA A10G", "device_id": 0x2237, "architecture": 7, "compute": (8, 6), "cores": 9216,
        "total_mib": 23028, "reserved_mib": 300, "draw_mw": 22_300, "limit_mw": 300_000,
        "limits_mw": (100_000, 300_000), "clocks": (210, 405), "max_clocks": (1710, 6251), "pcie": (1, 8, 4, 8),
    },
    "L4": _NO_LINKS | _OLD | {
        "name": "NVIDIA L4", "device_id": 0x27B8, "architecture": 8, "compute": (8, 9), "cores": 7424,
        "total_mib": 23034, "reserved_mib": 433, "draw_mw": 16_800, "limit_mw": 72_000, "limits_mw": (40_000, 72_000),
        "clocks": (210, 405), "max_clocks": (2040, 6251), "pcie": (1, 8, 4, 16),
    },
    "L40S": _NO_LINKS | {
        "name": "NVIDIA L40S", "device_id": 0x26B9, "architecture": 8, "compute": (8, 9), "cores": 18176,
        "total_mib": 46068, "reserved_mib": 598, "draw_mw": 35_100, "limit_mw": 350_000,
        "limits_mw": (100_000, 350_000), "clocks": (210, 405), "max_clocks": (2520, 9001), "pcie": (1, 16, 4, 16),
    },
    "A100": {
        "name": "NVIDIA A100-SXM4-80GB", "device_id": 0x20B2, "architecture": 7, "compute": (8, 0), "cores": 6912,
        "total_mib": 81920, "reserved_mib": 626, "draw_mw": 61_900, "limit_mw": 400_000,
        "limits_mw": (100_000, 400_000), "clocks": (210, 1593), "max_clocks": (1410, 1593), "pcie": (4, 16, 4, 16),
        "links": 12,
    },
    "H100": {},
    "H200": {"name": "NVIDIA H200", "device_id": 0x2335, "total_mib": 143771, "reserved_mib": 603},
    "B200": {
        "name": "NVIDIA B200", "device_id": 0x2901, "architecture": 10, "compute": (10, 0), "cores": 18944,
        "total_mib": 183359, "reserved_mib": 709, "draw_mw": 143_000, "limit_mw": 1_000_000,
        "limits_mw": (200_000, 1_000_000), "clocks": (120, 3996), "max_clocks": (1965, 3996),
    },
    "RTX 4090": _NO_LINKS | {
        "name": "NVIDIA GeForce RTX 4090", "device_id": 0x2684, "architecture": 8, "compute": (8, 9), "cores": 16384,
        "total_mib": 24564, "reserved_mib": 400, "serial": None, "ecc": None, "remapped": None, "recovery": None,
        "memory_temperature": None, "limit_mw": 450_000, "limits_mw": (150_000, 600_000), "draw_mw": 18_000,
        "max_clocks": (3105, 10501), "pcie": (1, 16, 4, 16),
    },
    "Vera Z9": {
        "name": "NVIDIA Vera Z9", "device_id": 0x3FFF, "architecture": 99, "compute": (14, 2), "total_mib": 400_000,
    },
}  # fmt: skip
"""As the driver describes the idle card; the last one is made up, a model nobody knows yet."""
