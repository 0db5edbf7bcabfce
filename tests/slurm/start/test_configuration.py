"""Files of a start: what Slurm refuses is given up, and what a person customised is kept."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.host import cgroup
from paddock.gpu.model import Inventory
from paddock.gpu.render.rendered import unedited
from paddock.slurm.errors import SlurmError
from paddock.slurm.programs.nodes import gpu_count
from paddock.slurm.start.configuration import Check, Written, write
from paddock.slurm.start.devices import Usable, usable
from paddock.slurm.start.hardware import hardware
from paddock.slurm.start.layout import Layout, User, Users
from paddock.slurm.start.request import StartRequest
from tests.support.boxes import box, divided, gpu
from tests.support.gpu_machines import NO_GPU

LINE = "NodeName=x CPUs=8 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=2 RealMemory=16000"
ROOT = Users(
    *(User((name, "x", uid, uid, "", "/", "")) for name, uid in (("munge", 101), ("slurm", 64030), ("root", 0)))
)
ANA = User(("ana", "x", 1000, 0, "", "/", ""))


def contained(count: int) -> Inventory:
    inventory = box(gpu(index, minor=index) for index in range(count))
    return replace(inventory, machine=replace(inventory.machine, container=True))


def written(
    folder: Path, inventory: Inventory | Usable, check: Check = lambda folder, node: "", plugins: str = "",
    users: Users = ROOT,
    **flags: object,
) -> tuple[Written, str, str]:  # fmt: skip
    """Return the outcome, slurm.conf and gres.conf."""
    layout = Layout(etc=folder / "etc", source=folder / "source")
    layout.etc.mkdir(exist_ok=True)
    start = StartRequest(name="box", **flags)  # type: ignore[arg-type]  # values as the command line has them
    slurm = {"version": "22.05.8", "plugins": plugins}
    gpus = inventory if isinstance(inventory, Usable) else Usable(inventory, whole=True)
    result = write(start, layout, users, gpus, hardware(LINE, cgroup.limits(folder)), slurm, check)
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
    result = usable(contained(3), tmp_path)
    assert [(device.index, device.minor) for device in result.inventory.gpus] == [(0, 0), (1, 2)]
    assert result.warnings == (
        "GPU 1 (NVIDIA H100 80GB HBM3) is left out: this container has no /dev/nvidia1",
        "the driver counts more GPUs than Slurm has, so jobs get theirs by UUID",
    )


@pytest.mark.parametrize(("amd", "vendors", "warning"), [
    ({}, ["nvidia"] * 2, "GPU 2 is left out: it is of amd"),
    ({"state": "lost"}, ["nvidia"] * 2, "GPU 2 is left out: it is of amd"),
    ({"count": 3}, ["amd"] * 3, "GPU 0 is left out: it is of nvidia"),
])  # fmt: skip
def test_gpus_of_two_vendors_leave_those_of_the_vendor_with_more(
    tmp_path: Path, amd: dict[str, Any], vendors: list[str], warning: str
) -> None:
    count = amd.pop("count", 1)
    others = [gpu(2 + number, vendor="amd", minor=128 + number, **amd) for number in range(count)]
    mixed = box([gpu(0, minor=0), gpu(1, minor=1), *others], container=True)
    for name in ("nvidia0", "nvidia1", "dri/renderD128", "dri/renderD129", "dri/renderD130"):
        (tmp_path / "dev" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dev" / name).symlink_to("/dev/null")
    result = usable(mixed, tmp_path)
    assert [device.vendor for device in result.inventory.gpus] == vendors
    assert warning in result.warnings[0]
    assert result.whole


@pytest.mark.parametrize("sick", [0, 2, 3])
def test_jobs_get_healthy_gpus_by_uuid_where_the_driver_also_counts_a_sick_one(tmp_path: Path, sick: int) -> None:
    (tmp_path / "dev").mkdir()
    for number in range(4):
        (tmp_path / f"dev/nvidia{number}").symlink_to("/dev/null")
    inventory = contained(4)
    gpus = [replace(device, state="lost") if device.index == sick else device for device in inventory.gpus]
    result, slurm_conf, gres_conf = written(tmp_path, usable(replace(inventory, gpus=(*gpus,)), tmp_path),
                                            plugins="gpu_nvml")  # fmt: skip
    assert result.gres == "gpu:h100:3"
    assert "AutoDetect" not in gres_conf, "it would take the sick one too"
    prolog = tmp_path / "etc/task-prolog.sh"
    assert f"TaskProlog={prolog}\n" in slurm_conf
    healthy = [str(device.uuid) for device in gpus if device.index != sick]
    assert shown(prolog, SLURM_JOB_GPUS="0,1,2", CUDA_VISIBLE_DEVICES="0,1,2") == ",".join(healthy)
    assert shown(prolog, SLURM_STEP_GPUS="2", CUDA_VISIBLE_DEVICES="2") == healthy[2]
    assert shown(prolog, SLURM_STEP_GPUS="3", CUDA_VISIBLE_DEVICES="3") == "-1"


def test_gpus_are_hidden_from_tasks_that_slurm_gave_none(tmp_path: Path) -> None:
    written(tmp_path, contained(2))
    prolog = tmp_path / "etc/task-prolog.sh"
    assert shown(prolog) == "-1"
    assert shown(prolog, CUDA_VISIBLE_DEVICES="0") == "-1", "of the environment that the job was submitted in"
    assert shown(prolog, SLURM_JOB_GPUS="0") == "-1", "a step without GPUs in a job with one"
    assert shown(prolog, SLURM_JOB_GPUS="0,1", CUDA_VISIBLE_DEVICES="0,1") == "0,1", "as Slurm says"
    assert shown(prolog, "ROCR_VISIBLE_DEVICES", SLURM_JOB_GPUS="1", ROCR_VISIBLE_DEVICES="1") == "1"


def test_customised_files_that_undo_the_choice_of_gpus_are_warned_of(tmp_path: Path) -> None:
    (tmp_path / "source").mkdir()
    for name in ("slurm.conf", "gres.conf"):
        (tmp_path / "source" / name).write_text("# USER_CUSTOMIZED=true\nNodeName=box Gres=gpu:2\n")
    result, _, _ = written(tmp_path, Usable(contained(2), whole=False))
    assert f"slurm.conf (customised) lacks the line TaskProlog={tmp_path}/etc/task-prolog.sh" in result.warnings[0]
    assert "GPU-00000000-aaaa, GPU-00000001-aaaa" in result.warnings[1]


def shown(prolog: Path, name: str = "CUDA_VISIBLE_DEVICES", **environ: str) -> str:
    """Return the variable's value in a task whose environment was this, after what the program prints for Slurm."""
    done = subprocess.run(
        [prolog], env={"PATH": "/usr/bin:/bin", **environ}, capture_output=True, text=True, check=True
    )
    lines = [line.removeprefix("export ").partition("=") for line in done.stdout.splitlines()]
    changed = {key: value for key, _, value in lines}
    assert changed["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    return {**environ, **changed}[name]
