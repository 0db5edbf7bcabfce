"""Files of a start: what Slurm refuses is given up, and what a person customised is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from paddock.gpu.model import Inventory
from paddock.gpu.render.rendered import unedited
from paddock.slurm.errors import SlurmError
from paddock.slurm.start.configuration import Check, Written, gpu_count, write
from paddock.slurm.start.devices import usable
from paddock.slurm.start.hardware import hardware, limits
from paddock.slurm.start.layout import Layout, User, Users
from paddock.slurm.start.request import request
from tests.support.boxes import box, divided, gpu
from tests.support.gpu_machines import NO_GPU

LINE = "NodeName=x CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000"
ROOT = Users(User("munge", 101, 101), User("slurm", 64030, 64030), User("root", 0, 0))
ANA = User("ana", 1000, 0)


def contained(count: int) -> Inventory:
    inventory = box(gpu(index, minor=index) for index in range(count))
    return replace(inventory, machine=replace(inventory.machine, container=True))


def written(
    folder: Path, inventory: Inventory, check: Check = lambda folder, node: "", plugins: str = "", users: Users = ROOT,
    **flags: object,
) -> tuple[Written, str, str]:  # fmt: skip
    """Return the outcome, slurm.conf and gres.conf."""
    layout = Layout(etc=folder / "etc", source=folder / "source")
    layout.etc.mkdir(exist_ok=True)
    asked = request(name="box", **flags)  # type: ignore[arg-type]  # values as the command line has them
    slurm = {"version": "22.05.8", "plugins": plugins}
    result = write(asked, layout, users, inventory, hardware(LINE, limits(folder)), slurm, check)
    return result, (layout.etc / "slurm.conf").read_text(), (layout.etc / "gres.conf").read_text()


def test_the_files_are_for_the_gpus_that_are_here(tmp_path: Path) -> None:
    result, slurm_conf, gres_conf = written(tmp_path, contained(2))
    assert (result.gres, result.warnings, result.changed) == ("gpu:h100:2", (), True)
    assert "SlurmUser=slurm\n" in slurm_conf
    assert "File=/dev/nvidia[0-1]" in gres_conf
    assert not written(tmp_path, contained(2))[0].changed
    assert written(tmp_path, contained(0))[0].gres == ""


def test_autodetection_that_fails_gives_way_to_listed_devices_and_then_to_none(tmp_path: Path) -> None:
    def without_plugin(folder: Path, node: str) -> str:
        return "no lib" if "AutoDetect" in (folder / "gres.conf").read_text() else ""

    def without_devices(folder: Path, node: str) -> str:
        return "no device" if "Name=gpu" in (folder / "gres.conf").read_text() else without_plugin(folder, node)

    result, _, gres_conf = written(tmp_path, contained(2), without_plugin, "gpu_nvml")
    assert "File=/dev/nvidia[0-1]" in gres_conf
    assert result.warnings == ("no lib; the node starts with the device files listed",)
    result, slurm_conf, _ = written(tmp_path, contained(2), without_devices, "gpu_nvml")
    assert "Gres=" not in slurm_conf
    assert "GresTypes=gpu,shard" in slurm_conf, "jobs in the queue keep their requests"
    assert result.warnings[1] == "no device; the node starts with no GPUs"
    with pytest.raises(SlurmError, match="even without GPUs: broken"):
        written(tmp_path, contained(2), lambda folder, node: "broken")


def test_parts_that_only_nvml_finds_leave_a_node_without_gpus(tmp_path: Path) -> None:
    result, slurm_conf, _ = written(tmp_path, box([divided(0)], container=True))
    assert "Gres=" not in slurm_conf
    assert "MIG" in result.warnings[0]


def test_a_customised_file_is_used_whatever_slurm_says_of_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    text = "# USER_CUSTOMIZED=true\nNodeName=box Name=gpu File=/dev/nvidia[0-7]\n"
    (source / "gres.conf").write_text(text)
    (source / "slurm.conf").write_text("# generated, and of another machine\n")
    result, slurm_conf, gres_conf = written(tmp_path, contained(2), lambda folder, node: "8 are not 2")
    assert gres_conf == text
    assert "NodeName=box " in slurm_conf
    assert result.warnings == ("gres.conf (customised) does not fit this machine: 8 are not 2",)
    assert result.customised == ("gres.conf",)


def test_the_node_has_the_name_of_a_customised_file(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    text = "# USER_CUSTOMIZED=true\nNodeName=gpu7 CPUs=2 RealMemory=1000 Gres=gpu:2\n"
    (tmp_path / "source/slurm.conf").write_text(text)
    result, _, _ = written(tmp_path, contained(2))
    assert (result.node, result.gres) == ("gpu7", "gpu:2")


def test_nodes_of_a_controller_join_with_what_they_have(tmp_path: Path) -> None:
    node, of_node, _ = written(tmp_path, contained(2), role="node", controller="head", nodes=9)
    assert node.join.startswith(
        "CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=15200"
        " Gres=gpu:h100:2 Feature=gpu"
    )
    (tmp_path / "head").mkdir()
    _, of_controller, _ = written(tmp_path / "head", replace(NO_GPU, machine=contained(0).machine), role="controller")
    assert "MaxNodeCount=9\n" in of_node
    assert "NodeName=" not in of_node + of_controller
    assert "SlurmctldHost=head\n" in of_node
    assert unedited(of_node) is True


def test_a_user_who_is_not_root_runs_every_daemon(tmp_path: Path) -> None:
    _, slurm_conf, _ = written(tmp_path, contained(0), users=Users(ANA, ANA, ANA))
    assert "SlurmUser=ana\n" in slurm_conf
    assert "SlurmdUser=ana\n" in slurm_conf
    assert "SlurmdSpoolDir=/var/spool/slurmd/ana\n" in slurm_conf


@pytest.mark.parametrize(
    ("gres", "count"), [("", 0), ("gpu:h100:4", 4), ("gpu:h100:2,gpu:t4:1,shard:8", 3), ("gpu", 1), ("gpu:3(S:0-1)", 3)]
)
def test_gpus_are_counted_in_any_form_of_gres(gres: str, count: int) -> None:
    assert gpu_count(gres) == count


def test_gpus_without_device_file_are_left_out_and_the_rest_numbered_anew(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    for number in (0, 2):
        (tmp_path / f"dev/nvidia{number}").symlink_to("/dev/null")
    (tmp_path / "dev/nvidia1").touch()
    inventory, warnings = usable(contained(3), tmp_path)
    assert [(device.index, device.minor) for device in inventory.gpus] == [(0, 0), (1, 2)]
    assert warnings == ("GPU 1 (NVIDIA H100 80GB HBM3) is left out: this container has no /dev/nvidia1",)


def test_gpus_of_two_vendors_leave_those_of_one(tmp_path: Path) -> None:
    mixed = box([gpu(0, minor=0), gpu(1, minor=1), gpu(2, vendor="amd", minor=128)], container=True)
    (tmp_path / "dev").mkdir()
    for number in (0, 1):
        (tmp_path / f"dev/nvidia{number}").symlink_to("/dev/null")
    inventory, warnings = usable(mixed, tmp_path)
    assert len(inventory.gpus) == 2
    assert "it is of amd" in warnings[0]
