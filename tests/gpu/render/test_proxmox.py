"""A GPU given to a virtual machine: whether its host lets it go, and what the host and Proxmox are told."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.errors import GpuError, NoGpu
from paddock.gpu.model import Inventory
from paddock.gpu.render import Rendered, render
from tests.support.boxes import box, gpu
from tests.support.gpu_machines import NO_GPU, host, pci

GEFORCE = {
    "0000:01:00.0": {"id": "10de:2684", "kind": "0300", "group": 14, "driver": "nouveau", "boot_vga": "1",
                     "subsystem_vendor": "0x1043", "subsystem_device": "0x88e2"},
    "0000:01:00.1": {"id": "10de:22ba", "kind": "0403", "group": 14, "driver": "snd_hda_intel"},
    "0000:00:01.0": {"id": "8086:a70d", "kind": "0604", "group": 14},
}  # fmt: skip
DISK = {"0000:02:00.0": {"id": "144d:a80a", "kind": "0108", "group": 14, "driver": "nvme"}}


def card(folder: Path, selection: Any = None, tree: dict[str, Any] | None = None, **more: Any) -> Rendered:
    """Return the one card of a host whose driver is not even loaded, as it is once VFIO has it."""
    root = pci(folder, GEFORCE if tree is None else tree)
    return render("proxmox", NO_GPU, selection or {"PCIDevices": ["01:00.0"]}, root=root, node="pve1", **more)


def settings(rendered: Rendered) -> dict[str, str]:
    document: dict[str, str] = json.loads(rendered.text("vm.json"))
    return document


# Groups.


def test_a_card_with_audio_below_a_bridge_is_passed_whole(tmp_path: Path) -> None:
    rendered = card(tmp_path)
    (mapping,) = json.loads(rendered.text("mapping.json"))
    assert mapping == {
        "id": "gpu-10de-2684",
        "map": ["node=pve1,path=0000:01:00,id=10de:2684,iommugroup=14,subsystem-id=1043:88e2"],
    }
    assert settings(rendered)["hostpci0"] == "mapping=gpu-10de-2684,pcie=1"
    assert "options vfio-pci ids=10de:2684,10de:22ba\n" in rendered.text("host/etc/modprobe.d/paddock-vfio.conf")
    assert "softdep snd_hda_intel pre: vfio-pci" in rendered.text("host/etc/modprobe.d/paddock-vfio.conf")
    assert rendered.warnings == ("0000:01:00.0 is the display that the host started on; its console goes dark.",)
    assert "vfio_virqfd" not in rendered.text("host/etc/modules-load.d/paddock-vfio.conf"), "gone since Linux 6.2"


def test_a_group_shared_with_a_disk_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GpuError) as caught:
        card(tmp_path, tree=GEFORCE | DISK)
    message = str(caught.value)
    assert "shares IOMMU group 14 with 0000:02:00.0 (144d:a80a, class 0108, driver nvme)" in message
    assert "another slot" in message
    assert not re.search(r"acs|override", message, re.IGNORECASE)


def test_the_sound_s_own_group_counts_too(tmp_path: Path) -> None:
    tree = {**GEFORCE, "0000:01:00.1": {**GEFORCE["0000:01:00.1"], "group": 15}, **DISK}
    tree["0000:02:00.0"] = {**DISK["0000:02:00.0"], "group": 15}
    with pytest.raises(GpuError, match=r"0000:01:00\.1 .* shares IOMMU group 15 with 0000:02:00\.0"):
        card(tmp_path, tree=tree)


def test_two_gpus_of_one_group_go_together_or_not_at_all(tmp_path: Path) -> None:
    tree = {f"0000:0{bus}:00.0": {"id": "10de:2330", "group": 3} for bus in (1, 2)}
    with pytest.raises(GpuError, match="if the others are GPUs for the same machine, name them too"):
        card(tmp_path / "one", tree=tree)
    rendered = card(tmp_path / "both", {"PCIDevices": ["01:00.0", "0000:02:00.0", "00000000:02:00"]}, tree)
    assert {name: settings(rendered)[name] for name in ("hostpci0", "hostpci1")} == {
        "hostpci0": "mapping=h100,pcie=1", "hostpci1": "mapping=h100,pcie=1",
    }  # fmt: skip
    assert "hostpci2" not in settings(rendered)


def test_a_disabled_iommu_gets_instructions(tmp_path: Path) -> None:
    tree = {address: {**about, "group": None} for address, about in GEFORCE.items()}
    with pytest.raises(GpuError, match=r"the IOMMU is off(?s:.)*intel_iommu=on iommu=pt"):
        card(tmp_path, tree=tree)


@pytest.mark.parametrize(("address", "expected"), [
    ("03:00.0", "03:00.0 is not a PCI device of this host\n    expected: 0000:01:00.0"),
    ("0000:00:01.0", "0000:00:01.0 (8086:a70d, class 0604) is not a GPU\n    expected: 0000:01:00.0"),
])  # fmt: skip
def test_an_address_that_is_no_gpu_is_refused(tmp_path: Path, address: str, expected: str) -> None:
    with pytest.raises(GpuError) as caught:
        card(tmp_path, {"PCIDevices": [address]})
    assert expected in str(caught.value)


def test_the_inventory_of_another_machine_is_not_given_here(tmp_path: Path) -> None:
    (tmp_path / "sys").mkdir()
    with pytest.raises(GpuError, match="render on the Proxmox host"):
        render("proxmox", box([gpu(0)]), {"GPUIDs": [0]}, root=tmp_path)


# Which cards.


def test_cards_of_the_same_model_that_stay_are_kept_by_address(tmp_path: Path) -> None:
    machine = box([gpu(index) for index in range(4)])
    root = host(tmp_path, machine.gpus)
    rendered = render("proxmox", machine, {"GPUIDs": [1, 3]}, root=root, node="pve1")
    assert "ids=" not in rendered.text("host/etc/modprobe.d/paddock-vfio.conf")
    hook = rendered.text("host/etc/initramfs-tools/scripts/init-top/paddock-vfio")
    assert "for address in 0000:05:00.0 0000:07:00.0; do" in hook
    assert "driver_override" in hook
    assert next(file.mode for file in rendered.files if file.path.endswith("init-top/paddock-vfio")) == 0o755
    every = render("proxmox", machine, {"GPUIDs": [0, 1, 2, 3]}, root=root, node="pve1")
    assert "options vfio-pci ids=10de:2330\n" in every.text("host/etc/modprobe.d/paddock-vfio.conf")
    assert not any("init-top" in file.path for file in every.files)


def test_a_lost_gpu_is_not_given_by_its_address_either(tmp_path: Path) -> None:
    machine = box([gpu(0), gpu(1, state="lost", reason="GPU is lost")])
    with pytest.raises(NoGpu, match=r"0000:05:00\.0 is lost"):
        render("proxmox", machine, {"PCIDevices": ["05:00.0"]}, root=host(tmp_path, machine.gpus))


def test_no_gpu_is_no_machine_and_a_disabled_one_no_files(tmp_path: Path) -> None:
    with pytest.raises(NoGpu):
        card(tmp_path / "a", {"Enabled": True})
    assert card(tmp_path / "b", {"Enabled": False, "PCIDevices": ["01:00.0"]}).files == ()


# Fields.


def test_primary_x_vga_and_rombar(tmp_path: Path) -> None:
    tree = {**GEFORCE, "0000:03:00.0": {"id": "10de:2684", "kind": "0300", "group": 16}}
    both = {"PCIDevices": ["01:00.0", "03:00.0"]}
    configuration = settings(card(tmp_path / "a", {**both, "Primary": True, "ROMBAR": False}, tree))
    assert configuration["vga"] == "none"
    assert configuration["hostpci0"] == "mapping=gpu-10de-2684,pcie=1,x-vga=1,rombar=0"
    assert configuration["hostpci1"] == "mapping=gpu-10de-2684,pcie=1,rombar=0", "one display is the first"
    configuration = settings(card(tmp_path / "b", {**both, "X_VGA": True, "ROMBAR": True}, tree))
    assert "vga" not in configuration
    assert configuration["hostpci0"].endswith(",x-vga=1")


def test_the_name_of_the_mapping_is_one_that_proxmox_takes(tmp_path: Path) -> None:
    assert '"id": "gaming"' in card(tmp_path / "a", mapping="gaming").text("mapping.json")
    with pytest.raises(GpuError, match="a letter, then letters"):
        card(tmp_path / "b", mapping="1 gpu")


# What Proxmox VE's API takes, as its sources say: a stand-in of the schemas of /cluster/mapping/pci and of a machine's
# configuration.

_PCI = r"[a-f0-9]{4,}:[a-f0-9]{2}:[a-f0-9]{2}(?:\.[a-f0-9])?"
_ID = r"[A-Za-z][A-Za-z0-9_-]+"
_MAP = {"node": r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?", "path": rf"(?:{_PCI};)*{_PCI}", "iommugroup": r"\d+",
        "id": r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}", "subsystem-id": r"[0-9A-Fa-f]{4}:[0-9A-Fa-f]{4}"}  # fmt: skip
_HOSTPCI = {"mapping": _ID, "pcie": "[01]", "x-vga": "[01]", "rombar": "[01]"}
_VM = {"machine": r"(pc|q35|virt)([-.+\w]*)", "bios": "seabios|ovmf", "cpu": "host", "vga": "none"}


def _properties(text: str, schema: dict[str, str]) -> None:
    for part in text.split(","):
        name, _, value = part.partition("=")
        assert re.fullmatch(schema[name], value), part


@pytest.mark.parametrize(
    "selection",
    [{"GPUIDs": [0]}, {"GPUIDs": [0, 2], "ROMBAR": False}, {"PCIDevices": ["04:00.0", "06:00.0"]}, {"count": 3}],
)
def test_a_stand_in_of_proxmox_s_schemas_takes_every_parameter(tmp_path: Path, selection: dict[str, Any]) -> None:
    models = ("h100", "t4", "h100", "odd")
    machine: Inventory = box([gpu(index, model) for index, model in enumerate(models)])
    rendered = render("proxmox", machine, selection, root=host(tmp_path, machine.gpus), node="pve-1")
    names = set()
    for mapping in json.loads(rendered.text("mapping.json")):
        assert re.fullmatch(_ID, mapping["id"])
        names.add(mapping["id"])
        for entry in mapping["map"]:
            _properties(entry, _MAP)
            assert {"node", "path", "id", "iommugroup", "subsystem-id"} == {
                part.split("=")[0] for part in entry.split(",")
            }
    machine_settings = settings(rendered)
    for name, value in machine_settings.items():
        if re.fullmatch(r"hostpci(\d|1[0-5])", name):
            _properties(value, _HOSTPCI)
            assert value.split(",")[0].removeprefix("mapping=") in names
        else:
            assert re.fullmatch(_VM[name], value)
    # qm and the file say the same as the API.
    assert rendered.text("vm.conf") == "".join(f"{name}: {value}\n" for name, value in machine_settings.items())
    for name, value in machine_settings.items():
        assert f"--{name} {value}" in rendered.text("vm.sh")


def test_sixteen_gpus_are_the_most_that_a_machine_takes(tmp_path: Path) -> None:
    many = [replace(gpu(index), pci_address=f"0000:{index + 16:02x}:00.0") for index in range(17)]
    with pytest.raises(GpuError, match="17 GPUs for one virtual machine"):
        render("proxmox", box(many), {"GPUIDs": list(range(17))}, root=host(tmp_path, many))
