"""A made-up NVIDIA driver under the real nvidia-ml-py, in this process: no compiler, no GPU, and no cost of its own.

nvidia-ml-py looks every function up by its C name in the module's `nvmlLib`, so an object with callables of those
names is a driver to it: the structures, the error classes and the versioned functions are its own. What is not
written here answers NotSupported, as a real driver does.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pynvml

from paddock.gpu.drivers import nvml
from tests.support.nvml_answers import CARD, NOT_SUPPORTED, PART, pci, put
from tests.support.nvml_cards import MODELS, Card, Fault, Part, box, card

__all__ = ["PROFILES", "Card", "Driver", "Fault", "Part", "box", "card", "installed", "library"]

LOST = pynvml.NVML_ERROR_GPU_IS_LOST


class Driver:
    """Stand-in for the loaded library. `calls` counts by C name."""

    def __init__(self, cards: list[Card], version: str = "580.95.05", cuda: int = 13000) -> None:
        self.cards = cards
        self.version = version
        self.cuda = cuda
        self.faults: dict[str, Fault] = {}
        """Of any function, before it looks at a card."""
        self.missing: set[str] = set()
        """Functions that this driver's library does not export."""
        self.calls: Counter[str] = Counter()
        self._process: int | None = None
        """The process that started it: one that was forked from it has to start it anew."""
        self._handles: dict[int, Card | Part] = {}
        self._structures: dict[int, Any] = {}
        for number, gpu_card in enumerate(cards):
            gpu_card.uuid = gpu_card.uuid or f"GPU-{number:08d}-aaaa-bbbb-cccc-{gpu_card.device_id:012x}"
            gpu_card.minor = number if gpu_card.minor is None else gpu_card.minor
            self._give(gpu_card)
            for part in gpu_card.parts:
                part.uuid = part.uuid or f"MIG-{number:08d}-aaaa-bbbb-cccc-{part.gpu_instance:012d}"
                self._give(part)

    def _give(self, device: Card | Part) -> None:
        structure = pynvml.struct_c_nvmlDevice_t()
        self._structures[id(device)] = structure
        self._handles[ctypes.addressof(structure)] = device

    def _hand(self, device: Card | Part, out: Any) -> int:
        out._obj.contents = self._structures[id(device)]
        return 0

    def _behind(self, handle: Any) -> Card | Part:
        return self._handles[ctypes.addressof(handle.contents)]

    def _owner(self, part: Part) -> Card:
        return next(card for card in self.cards if any(own is part for own in card.parts))

    def __getattr__(self, name: str) -> Callable[..., int]:
        if not name.startswith("nvml") or name in self.missing:
            raise AttributeError(name)
        own = getattr(type(self), f"do_{name}", None)
        of_card, of_part = CARD.get(name), PART.get(name)
        calls = self.calls

        def call(*arguments: Any) -> int:
            calls[name] += 1
            if self._process not in (None, os.getpid()) and not name.startswith("nvmlInit"):
                if name == "nvmlShutdown":  # as driver 580 does
                    os.kill(os.getpid(), signal.SIGSEGV)
                return int(pynvml.NVML_ERROR_UNINITIALIZED)
            if self.faults and (fault := self.faults.get(name)) and fault.due():
                return fault.code
            if not arguments or not isinstance(arguments[0], pynvml.c_nvmlDevice_t):
                return NOT_SUPPORTED if own is None else own(self, *arguments) or 0
            device = self._behind(arguments[0])
            card = device if isinstance(device, Card) else self._owner(device)
            if card.lost_after is not None:
                card.lost_after -= 1
                card.lost = card.lost or card.lost_after < 0
            if card.lost:
                return LOST
            if card.faults and (fault := card.faults.get(name)) and fault.due():
                return fault.code
            if own is not None:
                return own(self, device, *arguments[1:]) or 0
            answers = of_card if device is card else of_part
            return NOT_SUPPORTED if answers is None else answers(device, *arguments[1:])

        return call

    def do_nvmlInitWithFlags(self, flags: Any) -> None:
        self._process = os.getpid()

    def do_nvmlShutdown(self) -> None: ...

    def do_nvmlErrorString(self, code: int) -> Any:
        return b"made up"

    def do_nvmlSystemGetDriverVersion(self, buffer: Any, size: Any) -> None:
        buffer.value = self.version.encode()

    def do_nvmlSystemGetNVMLVersion(self, buffer: Any, size: Any) -> None:
        buffer.value = f"{self.cuda // 1000}.{self.version}".encode()

    def do_nvmlSystemGetCudaDriverVersion(self, out: Any) -> None:
        put(out, self.cuda)

    do_nvmlSystemGetCudaDriverVersion_v2 = do_nvmlSystemGetCudaDriverVersion

    def do_nvmlDeviceGetCount_v2(self, out: Any) -> None:
        put(out, len(self.cards))

    def do_nvmlDeviceGetHandleByIndex_v2(self, index: Any, out: Any) -> int:
        if index.value >= len(self.cards):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        card = self.cards[index.value]
        if (fault := card.faults.get("nvmlDeviceGetHandleByIndex_v2")) and fault.due():
            return fault.code
        return LOST if card.lost else self._hand(card, out)

    def do_nvmlDeviceGetHandleByUUID(self, uuid: Any, out: Any) -> int:
        for device in self._handles.values():
            if device.uuid.encode() == uuid.value:
                return self._hand(device, out)
        return int(pynvml.NVML_ERROR_NOT_FOUND)

    def do_nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: Any, out: Any) -> int:
        if not card.mig or not card.mig[0]:
            return NOT_SUPPORTED
        parts = card.parts
        return self._hand(parts[index.value], out) if index.value < len(parts) else int(pynvml.NVML_ERROR_NOT_FOUND)

    def do_nvmlDeviceGetNvLinkRemotePciInfo_v2(self, card: Card, link: int, out: Any) -> int:
        if link >= card.links:
            return NOT_SUPPORTED
        if isinstance(card.links_to, str):
            return pci(0x80 + link % 4, 0x22A3, out)
        other = self.cards[card.links_to[link]]
        return pci(other.bus, other.device_id, out)

    def do_nvmlDeviceGetTopologyCommonAncestor(self, card: Card, other: Any, out: Any) -> None:
        far = self._behind(other)
        assert isinstance(far, Card)
        put(out, pynvml.NVML_TOPOLOGY_NODE if card.numa == far.numa else pynvml.NVML_TOPOLOGY_SYSTEM)

    def do_nvmlDeviceGetP2PStatus(self, card: Card, other: Any, kind: Any, out: Any) -> None:
        put(out, pynvml.NVML_P2P_STATUS_OK if card.links else pynvml.NVML_P2P_STATUS_NOT_SUPPORTED)


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
    names = set(re.findall(r'_nvmlGetFunctionPointer\("(nvml\w+)"\)', Path(pynvml.__file__).read_text()))
    rest = folder / "rest.c"
    rest.write_text("".join(f"int {name}(void) {{ return {NOT_SUPPORTED}; }}\n" for name in sorted(names - written)))
    built = folder / "libnvidia-ml.so.1"
    command = [compiler, "-O2", "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1", "-o", built, source, rest]
    subprocess.run(command, check=True)
    return built


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
    **{model.lower(): lambda model=model: Driver([card(model)]) for model in MODELS},
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
