"""AMD GPUs, from trees as the amdgpu driver writes them into sysfs."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace

import pytest

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.drivers.amd import Amd
from paddock.gpu.model import Ecc, Memory

MI300X = {
    "vendor": "0x1002", "device": "0x74a1", "unique_id": "9f1c2d3e4b5a6978", "product_name": "AMD Instinct MI300X OAM",
    "mem_info_vram_total": "206141652992", "mem_info_vram_used": "297795584", "gpu_busy_percent": "97",
    "mem_busy_percent": "12", "serial_number": "692251001124", "vbios_version": "113-M3000100-102", "numa_node": "1",
    "local_cpulist": "48-49,144", "current_link_speed": "32.0 GT/s PCIe", "current_link_width": "16",
    "max_link_speed": "32.0 GT/s PCIe", "max_link_width": "16", "ras/umc_err_count": "ue: 0\nce: 3",
    "ras/gfx_err_count": "ue: 1\nce: 0", "hwmon/hwmon4/power1_average": "141000000",
    "hwmon/hwmon4/power1_cap": "750000000", "hwmon/hwmon4/power1_cap_max": "750000000",
    "hwmon/hwmon4/temp1_input": "40000", "hwmon/hwmon4/temp2_label": "junction", "hwmon/hwmon4/temp2_input": "44000",
    "hwmon/hwmon4/temp3_label": "mem", "hwmon/hwmon4/temp3_input": "38500", "hwmon/hwmon4/freq1_input": "132000000",
    "hwmon/hwmon4/freq2_input": "900000000",
}  # fmt: skip


def add(root: Path, number: int, bus: int, changes: dict[str, str | None]) -> Path:
    """Return a card below a switch; None leaves a file out."""
    address = f"0000:{bus:02x}:00.0"
    device = root / f"sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:{number:02x}.0/{address}"
    for name, text in (MI300X | changes).items():
        if text is not None:
            (device / name).parent.mkdir(parents=True, exist_ok=True)
            (device / name).write_text(text + "\n")
    (device / "drm" / f"renderD{128 + number}").mkdir(parents=True)
    card = device / "drm" / f"card{number}"
    card.mkdir()
    (card / "device").symlink_to(device)
    for folder, name, target in (("sys/class/drm", card.name, card), ("sys/bus/pci/devices", address, device)):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / name).symlink_to(target)
    node = root / f"sys/class/kfd/kfd/topology/nodes/{number + 2}"
    node.mkdir(parents=True)
    (node / "gpu_id").write_text(f"{4000 + number}\n")
    (node / "properties").write_text(
        f"simd_count 1216\ngfx_target_version 90402\nlocation_id {bus << 8}\ndomain 0\nnum_xcc 8\n"
    )
    return device


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return plant(tmp_path)


def plant(root: Path) -> Path:
    add(root, 1, 0x65, {"unique_id": "1111111111111111"})
    add(root, 0, 0x05, {})
    (root / "sys/class/drm/card0-DP-1").mkdir()
    version = root / "sys/module/amdgpu/version"
    version.parent.mkdir(parents=True)
    version.write_text("6.14.14\n")
    (root / "dev").mkdir()
    (root / "dev/kfd").touch()
    return root


def test_everything_that_sysfs_reports_of_a_gpu(tree: Path) -> None:
    inventory = detect.inventory(root=tree, topology=True)
    assert inventory.backend == "amd-sysfs"
    assert inventory.reason is None
    gpu, other = inventory.gpus
    assert (gpu.uuid, gpu.name, gpu.vendor, gpu.minor) == (
        "GPU-9f1c2d3e4b5a6978", "AMD Instinct MI300X OAM", "amd", 128,
    )  # fmt: skip
    assert (gpu.pci_address, gpu.pci_device_id, gpu.serial) == ("0000:05:00.0", "1002:74a1", "692251001124")
    assert (gpu.architecture, gpu.compute_capability, gpu.cores) == ("cdna3", "gfx942", 19456)
    assert gpu.memory == Memory(196592, 284, 196308)
    assert (gpu.power.draw, gpu.power.limit, gpu.power.min_limit) == (141, 750, None)
    assert (gpu.temperature.gpu, gpu.temperature.memory) == (44, 38)
    assert (gpu.clocks.sm, gpu.clocks.memory) == (132, 900)
    assert (gpu.utilisation.gpu, gpu.utilisation.memory) == (97, 12)
    assert gpu.ecc == Ecc(enabled=True, corrected=3, uncorrected=1)
    assert (gpu.pcie.generation, gpu.pcie.width, gpu.pcie.max_generation) == (5, 16, 5)
    assert (gpu.numa_node, gpu.cpus) == (1, (48, 49, 144))
    assert (other.index, other.pci_address) == (1, "0000:65:00.0")
    assert [(pair.a, pair.b, pair.closeness) for pair in inventory.pairs] == [(0, 1, "pcie-switch")]
    assert inventory.driver.version == "6.14.14"
    assert inventory.notes == ()
    assert serialization.loads(serialization.dumps(inventory)) == inventory


def test_processes_of_the_compute_driver(tree: Path) -> None:
    used = tree / "sys/class/kfd/kfd/proc/77/vram_4000"
    used.parent.mkdir(parents=True)
    used.write_text("1073741824\n")
    first, second = Amd(tree).read(processes=True).gpus
    assert [(process.pid, process.memory) for process in first.processes or ()] == [(77, 1024)]
    assert second.processes == ()


def test_a_gpu_that_another_driver_holds_is_never_usable(tree: Path) -> None:
    device = add(tree, 2, 0x85, dict.fromkeys(MI300X) | {"vendor": "0x1002", "device": "0x74a1"})
    (tree / "vfio-pci").mkdir()
    (device / "driver").symlink_to(tree / "vfio-pci")
    inventory = detect.inventory(root=tree)
    assert (inventory.gpus[2].state, inventory.gpus[2].reason) == (
        "unreadable",
        "its driver reports no memory (vfio-pci)",
    )
    assert [gpu.index for gpu in inventory.usable] == [0, 1]


def test_a_gpu_without_an_identity_is_never_usable(tree: Path) -> None:
    add(tree, 2, 0x85, {"unique_id": None})
    inventory = detect.inventory(root=tree)
    assert len(inventory.usable) == 2
    assert any("no unique_id" in note for note in inventory.notes)


def test_a_machine_where_nothing_can_be_computed_says_why(tree: Path) -> None:
    (tree / "dev/kfd").unlink()
    assert any("/dev/kfd" in note and "render" in note for note in Amd(tree).read().notes)


@pytest.fixture
def as_nobody() -> Iterator[None]:
    """Without root's rights for a while, which would read everything."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def open_tree() -> Iterator[Path]:
    """Folder that every user may read: pytest closes its own to other users."""
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        tree = plant(Path(folder))
        for path in tree.rglob("*"):
            if not path.is_symlink():
                path.chmod(0o755)
        yield tree


def test_a_tree_without_permissions_is_read_as_far_as_may_be(open_tree: Path, request: pytest.FixtureRequest) -> None:
    tree = open_tree
    device = (tree / "sys/bus/pci/devices/0000:05:00.0").resolve()
    for name in ("mem_info_vram_used", "serial_number", "hwmon/hwmon4/power1_average"):
        (device / name).chmod(0)
    (device / "ras").chmod(0)
    request.getfixturevalue("as_nobody")
    reading = Amd(tree).read(processes=True, topology=True)
    gpu = reading.gpus[0]
    assert (gpu.state, gpu.memory, gpu.serial, gpu.power.draw) == ("ok", None, None, None)
    assert gpu.utilisation.gpu == 97
    assert sum("cannot be read" in note for note in reading.notes) == 3


def test_an_unreadable_tree_has_no_gpus(open_tree: Path, request: pytest.FixtureRequest) -> None:
    (open_tree / "sys/class").chmod(0)
    request.getfixturevalue("as_nobody")
    assert Amd(open_tree).read(processes=True, topology=True).gpus == ()


def test_amdsmi_adds_what_sysfs_lacks(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    smi = SimpleNamespace(
        amdsmi_init=lambda: None,
        amdsmi_shut_down=lambda: None,
        amdsmi_get_processor_handles=lambda: ["0000:05:00.0"],
        amdsmi_get_gpu_device_bdf=lambda handle: handle,
        amdsmi_get_gpu_asic_info=lambda handle: {"market_name": "MI300X"},
        amdsmi_get_gpu_total_ecc_count=lambda handle: {"correctable_count": 9, "uncorrectable_count": 2},
    )
    monkeypatch.setitem(sys.modules, "amdsmi", smi)
    reading = Amd(tree).read()
    assert reading.backend == "amdsmi"
    assert (reading.gpus[0].name, reading.gpus[0].ecc.corrected) == ("MI300X", 9)
    assert reading.gpus[1].name == "AMD Instinct MI300X OAM"


def test_amdsmi_that_fails_as_it_is_imported_changes_nothing(
    tree: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = "print('Unable to find libamd_smi.so'); raise KeyError('libamd_smi.so')"
    (tree / "amdsmi.py").write_text(broken)
    monkeypatch.syspath_prepend(tree)
    monkeypatch.delitem(sys.modules, "amdsmi", raising=False)
    reading = Amd(tree).read()
    assert (reading.backend, len(reading.gpus)) == ("amd-sysfs", 2)
    assert capsys.readouterr().out == ""
