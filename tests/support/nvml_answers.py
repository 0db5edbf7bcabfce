"""Answers of a simulated NVIDIA driver about one GPU, by the C name of the function.

Each takes the card (or the part) and the call's other arguments, writes through its references, and returns the code.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pynvml

from tests.support.nvml_cards import Card, Part

MIB = 1 << 20
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED


def put(reference: Any, value: int | bytes) -> None:
    reference._obj.value = value


def _text(buffer: Any, value: str | None) -> int:
    if value is None:
        return NOT_SUPPORTED
    buffer.value = value.encode()
    return 0


def _number(reference: Any, value: int | None) -> int:
    if value is None:
        return NOT_SUPPORTED
    reference._obj.value = value
    return 0


def _pair(first: Any, second: Any, values: tuple[int, int] | None) -> int:
    if values is None:
        return NOT_SUPPORTED
    first._obj.value, second._obj.value = values
    return 0


def _memory(card: Card | Part, out: Any, *, second: bool) -> int:
    memory = out._obj
    total = card.total_mib if isinstance(card, Card) else card.memory_mib
    reserved = card.reserved_mib if isinstance(card, Card) else 0
    memory.total = total * MIB
    memory.free = (total - reserved - card.used_mib) * MIB
    memory.used = card.used_mib * MIB
    if second:
        memory.reserved = reserved * MIB
    else:
        memory.used += reserved * MIB
    return 0


def _utilisation(card: Card, out: Any) -> int:
    out._obj.gpu, out._obj.memory = card.utilisation
    return 0


def _temperature(card: Card, out: Any) -> int:
    out._obj.temperature = card.temperature
    return 0


def _margin(card: Card, out: Any) -> int:
    if card.margin is None:
        return NOT_SUPPORTED
    out._obj.marginTemperature = card.margin
    return 0


def pci(bus: int, device_id: int, out: Any) -> int:
    pci = out._obj
    pci.domain, pci.bus, pci.device, pci.pciDeviceId = 0, bus, 0, device_id << 16 | 0x10DE
    pci.busId = f"00000000:{bus:02X}:00.0".encode()
    pci.busIdLegacy = f"0000:{bus:02X}:00.0".encode()
    return 0


def _link_state(card: Card, link: int, out: Any) -> int:
    if link >= card.links:
        return int(pynvml.NVML_ERROR_INVALID_ARGUMENT if card.links else NOT_SUPPORTED)
    return _number(out, int(link not in card.dead_links))


def _link_kind(card: Card, link: int, out: Any) -> int:
    return _number(out, 2 if card.links_to == "switch" else 0) if link < card.links else NOT_SUPPORTED


def _mask(size: int, words: Any, numbers: range) -> int:
    for number in numbers:
        if number // 64 < size:
            words._obj[number // 64] |= 1 << number % 64
    return 0


def _ids(part: Part | None) -> tuple[int, int]:
    return (part.gpu_instance, part.compute_instance) if part else (0xFFFFFFFF, 0xFFFFFFFF)


def _fill(processes: Any, count: Any, infos: Any, part: Part | None = None) -> int:
    capacity = count._obj.value
    count._obj.value = len(processes)
    if infos is None or capacity < len(processes):
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE) if processes else 0
    for slot, (pid, mib) in zip(infos, processes, strict=False):
        slot.pid = pid
        slot.usedGpuMemory = 0xFFFFFFFFFFFFFFFF if mib is None else mib * MIB
        slot.gpuInstanceId, slot.computeInstanceId = _ids(part)
    return 0


def _field_values(card: Card, count: Any, values: Any) -> int:
    fields = card.fields()
    for value in values._obj:
        number = value.fieldId
        answer = card.scoped(number, value.scopeId) if 161 <= number <= 165 else fields.get(number)
        if answer is None or number in card.fields_missing:
            value.nvmlReturn = NOT_SUPPORTED
        else:
            value.nvmlReturn = 0
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            value.value.ullVal = answer
    return 0


CARD: dict[str, Callable[..., int]] = {
    "nvmlDeviceGetName": lambda c, buffer, _: _text(buffer, c.name),
    "nvmlDeviceGetUUID": lambda c, buffer, _: _text(buffer, c.uuid),
    "nvmlDeviceGetSerial": lambda c, buffer, _: _text(buffer, c.serial),
    "nvmlDeviceGetVbiosVersion": lambda c, buffer, _: _text(buffer, c.vbios),
    "nvmlDeviceGetMinorNumber": lambda c, out: _number(out, c.minor),
    "nvmlDeviceGetPciInfo_v3": lambda c, out: pci(c.bus, c.device_id, out),
    "nvmlDeviceGetArchitecture": lambda c, out: _number(out, c.architecture),
    "nvmlDeviceGetCudaComputeCapability": lambda c, major, minor: _pair(major, minor, c.compute),
    "nvmlDeviceGetNumGpuCores": lambda c, out: _number(out, c.cores),
    "nvmlDeviceGetMemoryInfo": lambda c, out: _memory(c, out, second=False),
    "nvmlDeviceGetMemoryInfo_v2": lambda c, out: _memory(c, out, second=True),
    "nvmlDeviceGetUtilizationRates": _utilisation,
    "nvmlDeviceGetTemperature": lambda c, _, out: _number(out, c.temperature),
    "nvmlDeviceGetTemperatureV": _temperature,
    "nvmlDeviceGetMarginTemperature": _margin,
    "nvmlDeviceGetPowerUsage": lambda c, out: _number(out, c.draw_mw),
    "nvmlDeviceGetEnforcedPowerLimit": lambda c, out: _number(out, c.limit_mw),
    "nvmlDeviceGetPowerManagementLimit": lambda c, out: _number(out, c.limit_mw),
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda c, out: _number(out, c.limits_mw[1]),
    "nvmlDeviceGetPowerManagementLimitConstraints": lambda c, low, high: _pair(low, high, c.limits_mw),
    "nvmlDeviceGetClockInfo": lambda c, kind, out: _number(out, c.clocks[kind.value == pynvml.NVML_CLOCK_MEM]),
    "nvmlDeviceGetMaxClockInfo": lambda c, kind, out: _number(out, c.max_clocks[kind.value == pynvml.NVML_CLOCK_MEM]),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda c, out: _number(out, c.reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda c, out: _number(out, c.reasons),
    "nvmlDeviceGetMemoryErrorCounter": lambda c, kind, counter, where, out: _number(out, c.sram if c.ecc else None),
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda c, out: _number(out, c.pcie[0]),
    "nvmlDeviceGetCurrPcieLinkWidth": lambda c, out: _number(out, c.pcie[1]),
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda c, out: _number(out, c.pcie[2]),
    "nvmlDeviceGetMaxPcieLinkWidth": lambda c, out: _number(out, c.pcie[3]),
    "nvmlDeviceGetPcieThroughput": lambda c, kind, out: _number(out, 1_500_000 if kind.value else 250_000),
    "nvmlDeviceGetPersistenceMode": lambda c, out: _number(out, c.persistence),
    "nvmlDeviceGetComputeMode": lambda c, out: _number(out, c.compute_mode),
    "nvmlDeviceGetMigMode": lambda c, now, then: _pair(now, then, c.mig),
    "nvmlDeviceGetMaxMigDeviceCount": lambda c, out: _number(out, 7 if c.mig else 0),
    "nvmlDeviceGetCpuAffinity": lambda c, size, words: _mask(size, words, range(48 * c.numa, 48 * c.numa + 48)),
    "nvmlDeviceGetMemoryAffinity": lambda c, size, words, _: _mask(size, words, range(c.numa, c.numa + 1)),
    "nvmlDeviceGetFieldValues": _field_values,
    "nvmlDeviceGetNvLinkState": _link_state,
    "nvmlDeviceGetNvLinkRemoteDeviceType": _link_kind,
    "nvmlDeviceGetNvLinkErrorCounter": lambda c, link, kind, out: _number(
        out, 0 if kind else c.link_errors.get(link, 0)
    ),
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda c, count, infos: _fill(c.processes, count, infos),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda c, count, infos: _fill(c.graphics, count, infos),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": lambda c, count, infos: _fill(c.mps, count, infos),
}

PART: dict[str, Callable[..., int]] = {
    "nvmlDeviceGetUUID": lambda p, buffer, _: _text(buffer, p.uuid),
    "nvmlDeviceGetName": lambda p, buffer, _: _text(buffer, f"NVIDIA H100 80GB HBM3 MIG {p.slices}g"),
    "nvmlDeviceGetMemoryInfo": lambda p, out: _memory(p, out, second=False),
    "nvmlDeviceGetMemoryInfo_v2": lambda p, out: _memory(p, out, second=True),
    "nvmlDeviceGetGpuInstanceId": lambda p, out: _number(out, p.gpu_instance),
    "nvmlDeviceGetComputeInstanceId": lambda p, out: _number(out, p.compute_instance),
    "nvmlDeviceGetComputeRunningProcesses_v3": lambda p, count, infos: _fill(p.processes, count, infos, p),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": lambda p, count, infos: _fill((), count, infos, p),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": lambda p, count, infos: _fill((), count, infos, p),
}


def _attributes(part: Part, out: Any) -> int:
    out._obj.gpuInstanceSliceCount = part.slices
    out._obj.computeInstanceSliceCount = part.compute_slices or part.slices
    out._obj.memorySizeMB = part.memory_mib
    return 0


PART["nvmlDeviceGetAttributes_v2"] = _attributes
