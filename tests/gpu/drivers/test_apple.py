"""Apple's GPUs, from what macOS's programs print."""

from __future__ import annotations

import json
import plistlib
from collections.abc import Callable, Sequence

import pytest

from paddock.gpu import inventory as detect
from paddock.gpu.drivers.apple import Apple
from paddock.gpu.model import Memory

DISPLAYS = {
    "SPDisplaysDataType": [
        {
            "_name": "Apple M2 Max",
            "spdisplays_mtlgpufamilysupport": "spdisplays_metal3",
            "spdisplays_vendor": "sppci_vendor_Apple",
            "sppci_bus": "spdisplays_builtin",
            "sppci_cores": "38",
            "sppci_device_type": "spdisplays_gpu",
            "sppci_model": "Apple M2 Max",
        }
    ]
}
ACCELERATOR = [{"PerformanceStatistics": {"Device Utilization %": 41, "In use system memory": 3 << 30}}]
PLATFORM = [{"IOPlatformUUID": "0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0"}]


def recorded(**changes: str | None) -> Callable[[Sequence[str]], str | None]:
    outputs = {
        "SPDisplaysDataType": json.dumps(DISPLAYS),
        "IOAccelerator": plistlib.dumps(ACCELERATOR).decode(),
        "IOPlatformExpertDevice": plistlib.dumps(PLATFORM).decode(),
        "hw.memsize": f"{64 << 30}\n",
    } | changes
    return lambda command: next(text for name, text in outputs.items() if name in command)


def test_an_apple_chip_in_a_recorded_form() -> None:
    inventory = detect.inventory(reader=Apple(recorded()))
    (gpu,) = inventory.gpus
    assert (inventory.backend, gpu.vendor, gpu.name, gpu.cores) == ("apple", "apple", "Apple M2 Max", 38)
    assert gpu.uuid == "APPLE-0F1E2D3C-4B5A-6978-8796-A5B4C3D2E1F0-0"
    assert (gpu.compute_capability, gpu.unified_memory) == ("metal3", True)
    assert gpu.memory == Memory(65536, 3072, 62464)
    assert gpu.utilisation.gpu == 41


@pytest.mark.parametrize("text", [None, "", "<plist", "[]"])
def test_programs_that_print_nothing_of_use_in_a_recorded_form(text: str | None) -> None:
    quiet = recorded(IOAccelerator=text, IOPlatformExpertDevice=text, **{"hw.memsize": None})
    (gpu,) = Apple(quiet).read().gpus
    assert (gpu.name, gpu.uuid, gpu.memory, gpu.utilisation.gpu) == ("Apple M2 Max", None, None, None)


@pytest.mark.parametrize("text", [None, "{", "{}", json.dumps({"SPDisplaysDataType": [{"sppci_model": "AMD 5500M"}]})])
def test_a_mac_without_an_apple_gpu_gives_the_reason(text: str | None) -> None:
    inventory = detect.inventory(reader=Apple(recorded(SPDisplaysDataType=text)))
    assert inventory.reason == "macOS lists no GPU of an Apple chip (`system_profiler SPDisplaysDataType`)."
