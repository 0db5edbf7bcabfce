"""Fields of one NVIDIA GPU, read by how often they change."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Sequence
from functools import cache, lru_cache
from struct import Struct
from typing import Any

from paddock.gpu import model
from paddock.gpu.drivers.nvml_batch import CallBatch
from paddock.gpu.drivers.nvml_calls import Calls, NvmlDevice
from paddock.gpu.drivers.nvml_processes import read_mig
from paddock.gpu.drivers.nvml_topology import read_links

_MIB = 1 << 20
_ARCHITECTURES = {
    2: "kepler", 3: "maxwell", 4: "pascal", 5: "volta", 6: "turing", 7: "ampere", 8: "ada", 9: "hopper",
    10: "blackwell", 13: "rubin",
}  # fmt: skip
_COMPUTE_MODES = {0: "default", 2: "prohibited", 3: "exclusive-process"}
_THROTTLES: tuple[model.Throttle, ...] = (
    "idle", "application-clocks", "software-power-cap", "hardware-slowdown", "sync-boost", "software-thermal",
    "hardware-thermal", "hardware-power-brake", "display-clocks", "board-limit", "reliability",
)  # fmt: skip
"""By the number of the bit."""
_RECOVERY: tuple[model.RecoveryAction, ...] = (
    "none", "gpu-reset", "node-reboot", "drain-p2p", "drain-and-reset", "recover-imex", "bus-reset", "system-reboot",
)  # fmt: skip

_ECC_ON, _CORRECTED, _UNCORRECTED, _AGGREGATE = (1, 0), (3, 0), (4, 0), (6, 0)
_RETIRED_SINGLE, _RETIRED_DOUBLE, _RETIREMENT_PENDING = (29, 0), (30, 0), (31, 0)
_MEMORY_TEMPERATURE, _ENERGY, _LINKS, _REPLAYS = (82, 0), (83, 0), (91, 0), (94, 0)
_REMAPPED = ((142, 0), (143, 0), (144, 0), (145, 0))
_POWER, _RECOVERY_ACTION, _LINK_STATE = (185, 0), (230, 0), 165
# nvidia-ml-py's own access to a structure's fields takes longer than the call that fills it.
_MEMORY_V1, _MEMORY_V2, _PAIR = Struct("@QQQ"), Struct("@8xQQQQ"), Struct("@II")

_SRAM_ERRORS, _REASONS = "nvmlDeviceGetMemoryErrorCounter", "nvmlDeviceGetCurrentClocksThrottleReasons"
_SHOWS_FAULTS: dict[str, frozenset[Any]] = {
    "recovery_action": frozenset({_RECOVERY_ACTION}),
    "ecc": frozenset({_ECC_ON, _UNCORRECTED, _AGGREGATE, _SRAM_ERRORS}),
    "remapped": frozenset(_REMAPPED),
    "retired_pages": frozenset({_RETIRED_SINGLE, _RETIRED_DOUBLE, _RETIREMENT_PENDING}),
    "throttle": frozenset({"nvmlDeviceGetCurrentClocksEventReasons", _REASONS}),
}
"""Calls and fields by the field of `Gpu` that they fill."""

CHANGING = (_CORRECTED, _UNCORRECTED, _MEMORY_TEMPERATURE, _ENERGY, _REPLAYS, _POWER, _RECOVERY_ACTION)
_SLOW = (_ECC_ON, _AGGREGATE, _RETIRED_SINGLE, _RETIRED_DOUBLE, _RETIREMENT_PENDING, *_REMAPPED)


Link = tuple[float | None, ...]
"""PCIe generation, width, sent and received."""
NO_LINK: Link = (None,) * 4

# Frozen, with few distinct values: shared by all GPUs and samples.
_clocks, _temperature, _utilisation, _pcie = map(
    lru_cache, (model.Clocks, model.Temperature, model.Utilisation, model.Pcie)
)


def read_static(calls: Calls, device: NvmlDevice) -> None:
    """Read what never changes."""
    facts, query = device.facts, calls.query
    facts["name"] = text(query(device, "nvmlDeviceGetName"))
    if pci := query(device, "nvmlDeviceGetPciInfo"):
        facts["pci_address"] = f"{pci.domain:04x}:{pci.bus:02x}:{pci.device:02x}.0"
        facts["pci_device_id"] = f"{pci.pciDeviceId & 0xFFFF:04x}:{pci.pciDeviceId >> 16:04x}"
    facts["minor"] = query(device, "nvmlDeviceGetMinorNumber")
    facts["serial"] = text(query(device, "nvmlDeviceGetSerial"))
    facts["architecture"] = _ARCHITECTURES.get(query(device, "nvmlDeviceGetArchitecture") or 0)
    if compute := query(device, "nvmlDeviceGetCudaComputeCapability"):
        facts["compute_capability"] = f"{compute[0]}.{compute[1]}"
    facts["cores"] = query(device, "nvmlDeviceGetNumGpuCores")
    facts["vbios"] = text(query(device, "nvmlDeviceGetVbiosVersion"))
    nodes = _bits(query(device, "nvmlDeviceGetMemoryAffinity", 4, 0))
    facts["numa_node"] = nodes[0] if len(nodes) == 1 else None
    facts["cpus"] = _bits(query(device, "nvmlDeviceGetCpuAffinity", 16))

    low, high = query(device, "nvmlDeviceGetPowerManagementLimitConstraints") or (None, None)
    default = query(device, "nvmlDeviceGetPowerManagementDefaultLimit")
    device.limits = (_thousandth(low), _thousandth(high), _thousandth(default))
    device.clocks = (
        query(device, "nvmlDeviceGetMaxClockInfo", calls.nvml.NVML_CLOCK_SM),
        query(device, "nvmlDeviceGetMaxClockInfo", calls.nvml.NVML_CLOCK_MEM),
    )
    device.pcie = (query(device, "nvmlDeviceGetMaxPcieLinkGeneration"), query(device, "nvmlDeviceGetMaxPcieLinkWidth"))
    calls.fields(device, (_LINKS,))
    device.links = device.fields[_LINKS] or 0
    device.static_read = True


def read_slow(calls: Calls, device: NvmlDevice, *, topology: bool) -> None:
    """Read what changes by configuration or over days, and all fields."""
    query = calls.query
    device.batch, device.batch_failed = None, False
    device.failed.clear()
    calls.fields(device, (*_SLOW, *CHANGING, *((_LINK_STATE, link) for link in range(device.links))))
    single, double = device.fields[_RETIRED_SINGLE], device.fields[_RETIRED_DOUBLE]
    pending = device.fields[_RETIREMENT_PENDING]
    persistence = query(device, "nvmlDeviceGetPersistenceMode")
    device.limit = _thousandth(query(device, "nvmlDeviceGetEnforcedPowerLimit"))
    device.sram = _sram(calls, device) if device.fields[_ECC_ON] else None
    device.slow_fields = {
        "mig": read_mig(calls, device),
        "nvlinks": read_links(calls, device, ends=topology),
        "compute_mode": _COMPUTE_MODES.get(query(device, "nvmlDeviceGetComputeMode")),
        "persistence": None if persistence is None else bool(persistence),
        "retired_pages": None if single is None or double is None else single + double,
        "retirement_pending": None if pending is None else bool(pending),
        "remapped": _rows(*(device.fields[pair] for pair in _REMAPPED)),
    }


def _sram(calls: Calls, device: NvmlDevice) -> int | None:
    nvml = calls.nvml
    kind, counter = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_AGGREGATE_ECC
    errors = calls.query(device, _SRAM_ERRORS, kind, counter, nvml.NVML_MEMORY_LOCATION_SRAM)
    return None if errors is None else int(errors)


def read_link(calls: Calls, device: NvmlDevice, *, throughput: bool) -> Link:
    """Read the current PCIe link."""
    query, nvml = calls.query, calls.nvml
    link = (query(device, "nvmlDeviceGetCurrPcieLinkGeneration"), query(device, "nvmlDeviceGetCurrPcieLinkWidth"))
    if not throughput:
        return (*link, None, None)
    sent = query(device, "nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_TX_BYTES)
    received = query(device, "nvmlDeviceGetPcieThroughput", nvml.NVML_PCIE_UTIL_RX_BYTES)
    return (*link, _thousandth(sent), _thousandth(received))


def read_sample(
    calls: Calls,
    device: NvmlDevice,
    link: Link = NO_LINK,
    margin: int | None = None,
    running: tuple[model.Process, ...] | None = None,
) -> model.Gpu:
    """Return the GPU from the device's cached facts and its current values. Its fields must have been read."""
    query, nvml = calls.query, calls.nvml
    # The second version of the call fails on WSL.
    memory = calls.first(device, ("nvmlDeviceGetMemoryInfo", nvml.nvmlMemory_v2), ("nvmlDeviceGetMemoryInfo",))
    celsius = calls.first(device, ("nvmlDeviceGetTemperature", 0), ("nvmlDeviceGetTemperatureV", 0))
    busy = query(device, "nvmlDeviceGetUtilizationRates")
    reasons = calls.first(device, ("nvmlDeviceGetCurrentClocksEventReasons",), (_REASONS,))
    sm = query(device, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_SM)
    memory_clock = query(device, "nvmlDeviceGetClockInfo", nvml.NVML_CLOCK_MEM)
    draw = None
    if device.fields[_POWER] is None:  # A100 and older have no such field, but the same value
        draw = query(device, "nvmlDeviceGetPowerUsage")
    answers = memory, busy, celsius, reasons, sm, memory_clock, draw
    changing = _changing(device, [device.fields[pair] for pair in CHANGING], answers, link, margin)
    unread = tuple(name for name, keys in _SHOWS_FAULTS.items() if keys & device.failed) if device.failed else ()
    constant = {"processes": running, "unread": unread, **device.facts, **device.slow_fields}
    return model.Gpu(device.index, vendor="nvidia", **changing, **constant)


def resample(device: NvmlDevice, link: Link) -> model.Gpu | None:
    """Return the same as `read_sample` by prepared calls, faster; None where those do not work."""
    batch = device.batch
    if batch is None:
        return None
    if not batch.execute():
        device.batch, device.batch_failed = None, True
        return None
    gpu = object.__new__(model.Gpu)  # the constructor of a frozen class writes field by field, in eight times the time
    object.__setattr__(gpu, "__dict__", batch.gpu_fields | _changing(device, batch.fields, batch.answers(), link))
    return gpu


def cache_calls(calls: Calls, device: NvmlDevice, gpu: model.Gpu) -> None:
    """Prepare the calls of a sample for `resample`."""
    if not device.batch_failed:
        with contextlib.suppress(AttributeError):
            device.batch = CallBatch(calls, device, CHANGING, vars(gpu), draw=device.fields[_POWER] is None)


def _changing(
    device: NvmlDevice, fields: Sequence[int | None], answers: tuple[Any, ...], link: Link, margin: int | None = None
) -> dict[str, Any]:
    """Return fields of `Gpu` from the values of the fields in CHANGING and the answers of `CallBatch.answers`."""
    corrected, uncorrected, memory_celsius, energy, replays, power, recovery = fields
    memory, busy, celsius, reasons, sm, memory_clock, draw = answers
    low, high, default = device.limits
    generation, width, sent, received = link
    watt = draw if power is None else power
    return {
        "memory": None if memory is None else _memory(memory),
        "power": model.Power(_thousandth(watt), device.limit, default, low, high, _thousandth(energy)),
        "clocks": _clocks(sm, memory_clock, *device.clocks),
        "temperature": _temperature(celsius, memory_celsius, margin),
        "utilisation": _utilisation(*_PAIR.unpack(busy)) if busy else model.Utilisation(),
        "throttle": None if reasons is None else _throttles(reasons),
        "ecc": _ecc(device.fields[_ECC_ON], corrected, uncorrected, device.fields[_AGGREGATE], device.sram),
        "recovery_action": _recovery(recovery),
        "pcie": _pcie(generation, width, *device.pcie, replays, sent, received),
    }


def text(value: str | bytes | None) -> str | None:
    """Decode the bytes that old releases of nvidia-ml-py return."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _bits(words: Any) -> tuple[int, ...]:
    """Return the positions of the set bits in an array of 64-bit words."""
    return tuple(64 * at + bit for at, word in enumerate(words or ()) if word for bit in range(64) if word >> bit & 1)


def _thousandth(value: int | None) -> float | None:
    return None if value is None else value / 1000


def _memory(structure: Any) -> model.Memory:
    if ctypes.sizeof(structure) == _MEMORY_V2.size:
        total, reserved, free, used = _MEMORY_V2.unpack(structure)
        return _mebibytes(total, used, free, reserved)
    total, free, used = _MEMORY_V1.unpack(structure)
    return _mebibytes(total, used, free)


@lru_cache
def _mebibytes(*sizes: int) -> model.Memory:
    return model.Memory(*[size // _MIB for size in sizes])


def _rows(
    corrected: int | None, uncorrected: int | None, pending: int | None, failed: int | None
) -> model.RemappedRows | None:
    if corrected is None or uncorrected is None or pending is None or failed is None:
        return None
    return model.RemappedRows(corrected, uncorrected, bool(pending), bool(failed))


def _recovery(number: int | None) -> model.RecoveryAction | None:
    return _RECOVERY[number] if number is not None and number < len(_RECOVERY) else None


@lru_cache
def _ecc(
    on: int | None, corrected: int | None, uncorrected: int | None, aggregate: int | None, sram: int | None
) -> model.Ecc:
    return model.Ecc(None if on is None else bool(on), corrected, uncorrected, aggregate, sram)


@cache
def _throttles(mask: int) -> tuple[model.Throttle, ...]:
    return tuple(name for bit, name in enumerate(_THROTTLES) if mask >> bit & 1)
