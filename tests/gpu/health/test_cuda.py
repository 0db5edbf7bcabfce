"""A toolkit on this machine's driver and GPUs: the verdict, and the cheapest way out."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.errors import GpuInputError
from paddock.gpu.health.cuda import Compatibility, evaluate
from paddock.gpu.model import Driver as DriverModel
from paddock.gpu.model import Gpu, Inventory, Machine, Toolkit
from tests.gpu.test_serialization import any_of
from tests.support.explore import examples
from tests.support.nvml import Driver, box

HOST = Machine("node", "linux", "x86_64")


def machine(driver: str | None, *gpus: Gpu, toolkit: Toolkit | None = None, container: bool = False) -> Inventory:
    return Inventory(
        "2026-11-20T10:00:00Z",
        replace(HOST, container=container),
        "nvml",
        gpus or (card("t4"),),
        driver=DriverModel(driver) if driver else None,
        toolkit=toolkit,
    )


CARDS = {
    "t4": ("Tesla T4", "10de:1eb8", "7.5"),
    "v100": ("Tesla V100-SXM2-16GB", "10de:1db1", "7.0"),
    "h100": ("NVIDIA H100 80GB HBM3", "10de:2330", "9.0"),
    "b200": ("NVIDIA B200", "10de:2901", "10.0"),
    "4090": ("NVIDIA GeForce RTX 4090", "10de:2684", "8.9"),
    "z9": ("NVIDIA Vera Z9", "10de:3fff", "14.2"),
}


def card(which: str) -> Gpu:
    name, device, capability = CARDS[which]
    return Gpu(0, f"GPU-{which}", name, "nvidia", pci_device_id=device, compute_capability=capability)


def kinds(result: Compatibility) -> list[str]:
    return [fix.kind for fix in result.fixes]


@pytest.mark.parametrize(("driver", "gpu", "toolkit", "verdict", "fixes"), [
    ("580.95.05", "t4", "13.0", "ok", []),
    ("580.95.05", "h100", "12.4.1", "ok", []),
    ("570.26", "h100", "12.8.1", "minor-version", ["toolkit", "driver"]),
    ("535.104.05", "t4", "12.9", "minor-version", ["toolkit", "driver"]),
    # R570 under a wheel built for CUDA 13: what `pip install torch` does since 2.11
    ("570.124.06", "t4", "13.0", "needs-compat", ["compat-package", "toolkit", "driver"]),
    ("580.95.05", "v100", "13.0", "impossible", ["toolkit"]),
    ("580.95.05", "b200", "12.4", "impossible", ["toolkit"]),
    ("580.95.05", "h100", "11.6", "impossible", ["toolkit"]),
    ("580.95.05", "4090", "11.6", "unknown", ["toolkit"]),
    ("580.95.05", "t4", "10.2", "ok", []),
    # cards of no catalogue: by compute capability, and nothing is promised of the package
    ("580.95.05", "4090", "13.0", "ok", []),
    ("570.124.06", "4090", "13.0", "unknown", ["toolkit", "driver"]),
    ("610.43.02", "z9", "13.3", "unknown", []),
    ("580.95.05", "t4", "12.7", "unknown", ["toolkit"]),
    ("580.95.05", "t4", "99.0", "unknown", ["toolkit"]),
])  # fmt: skip
def test_a_verdict_and_its_fixes(driver: str, gpu: str, toolkit: str, verdict: str, fixes: list[str]) -> None:
    result = evaluate(machine(driver, card(gpu)), toolkit)
    assert (result.verdict, kinds(result)) == (verdict, fixes), result.why
    assert result.why


@pytest.mark.parametrize(("driver", "gpu", "newest"), [
    ("580.95.05", "t4", "13.0"),
    ("580.95.05", "v100", "12.9"),
    ("570.124.06", "t4", "12.8"),
    ("580.95.05", "4090", "13.0"),
    ("580.95.05", "z9", None),
])  # fmt: skip
def test_the_newest_toolkit_is_named_without_an_installed_one(driver: str, gpu: str, newest: str | None) -> None:
    result = evaluate(machine(driver, card(gpu)))
    assert (result.verdict, result.newest) == ("unknown", newest)
    assert "no CUDA toolkit" in result.why


def test_the_cheapest_fix_comes_first_and_names_what_to_use() -> None:
    first, second, third = evaluate(machine("570.124.06"), "13.0").fixes
    assert "cuda-compat-13-0" in first.text
    assert "CUDA 12.8" in second.text
    assert "580.65.06" in third.text


def test_in_a_container_the_driver_fix_names_the_host() -> None:
    fixes = evaluate(machine("570.124.06", container=True), "13.0").fixes
    assert "host, not of this container" in fixes[-1].text


def test_an_installed_compatibility_package_only_needs_its_path() -> None:
    toolkit = Toolkit("13.0.1", "/usr/local/cuda", compat="580.95.05")
    result = evaluate(machine("570.124.06", toolkit=toolkit))
    assert (result.verdict, result.path) == ("needs-compat", "/usr/local/cuda")
    assert "/usr/local/cuda/compat first in LD_LIBRARY_PATH" in result.fixes[0].text
    old = evaluate(machine("570.124.06", toolkit=replace(toolkit, compat="560.35.05")))
    assert "install cuda-compat-13-0" in old.fixes[0].text


def test_the_worst_of_several_gpus_decides() -> None:
    result = evaluate(machine("580.95.05", card("t4"), card("v100"), card("b200")), "13.0")
    assert result.verdict == "impossible"
    assert [match.verdict for match in result.gpus] == ["ok", "impossible", "ok"]
    assert result.newest == "12.9"
    assert "12.9" in result.fixes[0].text


def test_other_vendors_do_not_run_cuda() -> None:
    amd = Gpu(0, "GPU-1", "AMD Instinct MI300X", "amd", compute_capability="gfx942")
    requested = evaluate(machine(None, amd), "12.8")
    assert (requested.verdict, kinds(requested)) == ("impossible", ["toolkit"])
    assert "ROCm" in requested.fixes[0].text
    own = evaluate(machine(None, amd, toolkit=Toolkit("6.4.1", "/opt/rocm")))
    assert (own.verdict, own.toolkit) == ("unknown", "6.4.1")


def test_a_machine_without_gpus_says_why() -> None:
    assert evaluate(replace(machine("580.95.05"), gpus=(), reason="There is no GPU here."), "12.8").why == (
        "There is no GPU here."
    )


@pytest.mark.parametrize("toolkit", ["", "abc", "12", "cuda12.8", "12.8; rm", "١٢.٨", "-1.0"])
def test_what_is_no_version_is_refused(toolkit: str) -> None:
    with pytest.raises(GpuInputError, match="is not a CUDA version") as caught:
        evaluate(machine("580.95.05"), toolkit)
    assert caught.value.exit_code == 2


def test_the_simulated_driver_is_evaluated(driver: Callable[[Driver], Driver]) -> None:
    driver(Driver(box("H100", 8)))
    result = evaluate(detect.inventory(), "13.0")
    assert result.verdict == "ok"
    document = json.loads(json.dumps(serialization.data(result)))
    assert document["schema"] == 1
    assert len(document["gpus"]) == 8


@examples(30, 500)
@given(any_of(Inventory), st.sampled_from([None, "11.8", "12.4.1", "13.0", "77.7"]))
def test_every_inventory_gets_a_verdict(inventory: Inventory, toolkit: str | None) -> None:
    assert evaluate(inventory, toolkit).why
