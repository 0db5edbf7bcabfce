"""A made-up NVIDIA driver under the real nvidia-ml-py, in this process: no compiler, no GPU, and no cost of its own.

nvidia-ml-py looks every function up by its C name in the module's `nvmlLib`, so an object with callables of those
names is a driver to it: the structures, the error classes and the versioned functions are its own. What is not
written here answers NotSupported, as a real driver does.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pynvml

from paddock.gpu.backends import nvml

MIB = 1 << 20
NOT_SUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
LOST = pynvml.NVML_ERROR_GPU_IS_LOST


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
        """A field of one link."""
        if scope >= self.links:
            return None
        if field_id == pynvml.NVML_FI_DEV_NVLINK_GET_STATE:
            return int(scope not in self.dead_links)
        if field_id == pynvml.NVML_FI_DEV_NVLINK_ERROR_DL_REPLAY:
            return self.link_errors.get(scope, 0)
        return 0


def _put(reference: Any, value: int | bytes) -> None:
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


def _pci(bus: int, device_id: int, out: Any) -> int:
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
    given = count._obj.value
    count._obj.value = len(processes)
    if infos is None or given < len(processes):
        return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE) if processes else 0
    for slot, (pid, mib) in zip(infos, processes, strict=False):
        slot.pid = pid
        slot.usedGpuMemory = 0xFFFFFFFFFFFFFFFF if mib is None else mib * MIB
        slot.gpuInstanceId, slot.computeInstanceId = _ids(part)
    return 0


def _field_values(card: Card, count: Any, values: Any) -> int:
    known = card.fields()
    for value in values._obj:
        number = value.fieldId
        found = card.scoped(number, value.scopeId) if 161 <= number <= 165 else known.get(number)
        if found is None or number in card.fields_missing:
            value.nvmlReturn = NOT_SUPPORTED
        else:
            value.nvmlReturn = 0
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            value.value.ullVal = found
    return 0


CARD: dict[str, Callable[..., int]] = {
    "nvmlDeviceGetName": lambda c, buffer, _: _text(buffer, c.name),
    "nvmlDeviceGetUUID": lambda c, buffer, _: _text(buffer, c.uuid),
    "nvmlDeviceGetSerial": lambda c, buffer, _: _text(buffer, c.serial),
    "nvmlDeviceGetVbiosVersion": lambda c, buffer, _: _text(buffer, c.vbios),
    "nvmlDeviceGetMinorNumber": lambda c, out: _number(out, c.minor),
    "nvmlDeviceGetPciInfo_v3": lambda c, out: _pci(c.bus, c.device_id, out),
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
    "nvmlDeviceGetTotalEnergyConsumption": lambda c, out: _number(out, c.energy_mj),
    "nvmlDeviceGetClockInfo": lambda c, kind, out: _number(out, c.clocks[kind.value == pynvml.NVML_CLOCK_MEM]),
    "nvmlDeviceGetMaxClockInfo": lambda c, kind, out: _number(out, c.max_clocks[kind.value == pynvml.NVML_CLOCK_MEM]),
    "nvmlDeviceGetCurrentClocksEventReasons": lambda c, out: _number(out, c.reasons),
    "nvmlDeviceGetCurrentClocksThrottleReasons": lambda c, out: _number(out, c.reasons),
    "nvmlDeviceGetEccMode": lambda c, now, then: _pair(now, then, None if c.ecc is None else (c.ecc, c.ecc)),
    "nvmlDeviceGetTotalEccErrors": lambda c, kind, counter, out: _number(
        out, (c.uncorrected if kind.value else c.corrected) if c.ecc else None
    ),
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


class Driver:
    """What stands in the place of the loaded library. `calls` counts by C name."""

    def __init__(self, cards: list[Card], version: str = "580.95.05", cuda: int = 13000) -> None:
        self.cards = cards
        self.version = version
        self.cuda = cuda
        self.faults: dict[str, Fault] = {}
        """Of any function, before it looks at a card."""
        self.missing: set[str] = set()
        """Functions that this driver's library does not export."""
        self.calls: Counter[str] = Counter()
        self._handles: dict[int, Card | Part] = {}
        self._structures: dict[int, Any] = {}
        for number, card in enumerate(cards):
            card.uuid = card.uuid or f"GPU-{number:08d}-aaaa-bbbb-cccc-{card.device_id:012x}"
            card.minor = number if card.minor is None else card.minor
            self._give(card)
            for part in card.parts:
                part.uuid = part.uuid or f"MIG-{number:08d}-aaaa-bbbb-cccc-{part.gpu_instance:012d}"
                self._give(part)

    def _give(self, thing: Card | Part) -> None:
        structure = pynvml.struct_c_nvmlDevice_t()
        self._structures[id(thing)] = structure
        self._handles[ctypes.addressof(structure)] = thing

    def _hand(self, thing: Card | Part, out: Any) -> int:
        out._obj.contents = self._structures[id(thing)]
        return 0

    def _behind(self, handle: Any) -> Card | Part:
        return self._handles[ctypes.addressof(handle.contents)]

    def _owner(self, part: Part) -> Card:
        return next(card for card in self.cards if any(one is part for one in card.parts))

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml") or name in self.missing:
            raise AttributeError(name)
        own = getattr(type(self), f"do_{name}", None)
        of_card, of_part = CARD.get(name), PART.get(name)
        calls = self.calls

        def call(*arguments: Any) -> int:
            calls[name] += 1
            if self.faults and (fault := self.faults.get(name)) and fault.due():
                return fault.code
            if not arguments or not isinstance(arguments[0], pynvml.c_nvmlDevice_t):
                return NOT_SUPPORTED if own is None else own(self, *arguments) or 0
            thing = self._behind(arguments[0])
            card = thing if isinstance(thing, Card) else self._owner(thing)
            if card.lost_after is not None:
                card.lost_after -= 1
                card.lost = card.lost or card.lost_after < 0
            if card.lost:
                return LOST
            if card.faults and (fault := card.faults.get(name)) and fault.due():
                return fault.code
            if own is not None:
                return own(self, thing, *arguments[1:]) or 0
            found = of_card if thing is card else of_part
            return NOT_SUPPORTED if found is None else found(thing, *arguments[1:])

        return call

    def do_nvmlInitWithFlags(self, flags: Any) -> None: ...

    def do_nvmlInit_v2(self) -> None: ...

    def do_nvmlShutdown(self) -> None: ...

    def do_nvmlErrorString(self, code: int) -> Any:
        return b"made up"

    def do_nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> None:
        buffer.value = self.version.encode()

    def do_nvmlSystemGetNVMLVersion(self, buffer: Any, size: Any) -> None:
        buffer.value = f"{self.cuda // 1000}.{self.version}".encode()

    def do_nvmlSystemGetCudaDriverVersion(self, out: Any) -> None:
        _put(out, self.cuda)

    do_nvmlSystemGetCudaDriverVersion_v2 = do_nvmlSystemGetCudaDriverVersion

    def do_nvmlDeviceGetCount_v2(self, out: Any) -> None:
        _put(out, len(self.cards))

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        if index.value >= len(self.cards):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        card = self.cards[index.value]
        if (fault := card.faults.get("nvmlDeviceGetHandleByIndex_v2")) and fault.due():
            return fault.code
        return LOST if card.lost else self._hand(card, out)

    def do_nvmlDeviceGetHandleByUUID(self, uuid: Any, out: Any) -> int:
        for thing in self._handles.values():
            if thing.uuid.encode() == uuid.value:
                return self._hand(thing, out)
        return int(pynvml.NVML_ERROR_NOT_FOUND)

    def do_nvmlDeviceGetHandleByPciBusId_v2(self, address: Any, out: Any) -> int:
        bus = int(address.value.decode().split(":")[1], 16)
        for card in self.cards:
            if card.bus == bus:
                return self._hand(card, out)
        return int(pynvml.NVML_ERROR_NOT_FOUND)

    def do_nvmlDeviceGetIndex(self, card: Card, out: Any) -> None:
        _put(out, next(number for number, one in enumerate(self.cards) if one is card))

    def do_nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: Any, out: Any) -> int:
        if not card.mig or not card.mig[0]:
            return NOT_SUPPORTED
        parts = card.parts
        return self._hand(parts[index.value], out) if index.value < len(parts) else int(pynvml.NVML_ERROR_NOT_FOUND)

    def do_nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, part: Part, out: Any) -> int:
        return self._hand(self._owner(part), out)

    def do_nvmlDeviceIsMigDeviceHandle(self, thing: Card | Part, out: Any) -> None:
        _put(out, int(isinstance(thing, Part)))

    def do_nvmlDeviceGetNvLinkRemotePciInfo_v2(self, card: Card, link: int, out: Any) -> int:
        if link >= card.links:
            return NOT_SUPPORTED
        if isinstance(card.links_to, str):
            return _pci(0x80 + link % 4, 0x22A3, out)
        other = self.cards[card.links_to[link]]
        return _pci(other.bus, other.device_id, out)

    def do_nvmlDeviceGetTopologyCommonAncestor(self, card: Card, other: Any, out: Any) -> None:
        far = self._behind(other)
        assert isinstance(far, Card)
        _put(out, pynvml.NVML_TOPOLOGY_NODE if card.numa == far.numa else pynvml.NVML_TOPOLOGY_SYSTEM)

    def do_nvmlDeviceGetP2PStatus(self, card: Card, other: Any, kind: Any, out: Any) -> None:
        _put(out, pynvml.NVML_P2P_STATUS_OK if card.links else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)


@contextmanager
def installed(driver: Driver) -> Iterator[Driver]:
    """nvidia-ml-py answers from `driver` inside the block, and our own session with the driver begins anew."""
    cache = pynvml._nvmlGetFunctionPointer_cache
    saved = pynvml.nvmlLib, dict(cache), pynvml._nvmlLib_refcount
    nvml.close()
    pynvml.nvmlLib, pynvml._nvmlLib_refcount = driver, 0
    cache.clear()
    try:
        yield driver
    finally:
        nvml.close()
        pynvml.nvmlLib, pynvml._nvmlLib_refcount = saved[0], saved[2]
        cache.clear()
        cache.update(saved[1])


def library(folder: Path, compiler: str = "cc") -> Path:
    """Compiles libnvml.c into `folder`, which goes into LD_LIBRARY_PATH of a program that shall see its GPUs."""
    source = Path(__file__).with_name("libnvml.c")
    written = set(re.findall(r"\b(nvml\w+)[(,]", source.read_text()))
    known = set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', Path(pynvml.__file__).read_text()))
    rest = folder / "rest.c"
    rest.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in sorted(known - written)))
    built = folder / "libnvidia-ml.so.1"
    command = [compiler, "-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", built, source, rest]
    subprocess.run(command, check=True)
    return built


def card(model: str, **changes: Any) -> Card:
    """A card of MODELS, with some of it otherwise."""
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


def lost_one() -> Driver:
    """Eight H100s, the third of them off the bus."""
    cards = box("H100", 8)
    cards[2].lost = True
    return Driver(cards)


def mig_box() -> Driver:
    """One H100 cut into seven `1g.10gb`."""
    return Driver([card("H100", mig=(1, 1), parts=[Part(gpu_instance=7 + n) for n in range(7)])])


def old_driver() -> Driver:
    """Branch 535: the clocks' reasons by their old name, no field 230, neither the new temperature calls."""
    driver = Driver(box("A100", 2, fields_missing=frozenset({230})), version="535.104.05", cuda=12020)
    driver.missing = {
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature",
    }  # fmt: skip
    return driver


PROFILES: dict[str, Callable[[], Driver]] = {
    "none": lambda: Driver([]),
    **{model.lower(): lambda model=model: Driver([card(model)]) for model in MODELS},  # type: ignore[misc]
    "8xh100": lambda: Driver(box("H100", 8)),
    "16xa100": lambda: Driver(box("A100", 16)),
    "mixed": lambda: Driver([card("T4", bus=0x1E), card("A10G", bus=0x1F)]),
    "lost": lost_one,
    "remap-pending": lambda: Driver([card("A100", remapped=(0, 1, 1, 0)), card("A100", bus=5)]),
    "thermal": lambda: Driver([card("H100", reasons=0x48, temperature=91, margin=-3, clocks=(345, 2619))]),
    "mig": mig_box,
    "535": old_driver,
}
"""Machines by name."""
