"""The machine around the GPUs, and why a GPU cannot be had: from trees of files, and from what the driver said."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.gpu import inventory as detect
from paddock.gpu import serialization
from paddock.gpu.drivers import nvml_calls
from paddock.gpu.errors import GpuError
from paddock.gpu.host.machine import container_runtime, machine, run, toolkit
from paddock.gpu.model import ContainerRuntime, Inventory
from tests.support.nvml import Driver, Fault

Install = Callable[[str | Driver], Driver]
MODULE = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.82.07  Release Build  (root@dvs)\n"


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def nvidia_card(root: Path, held_by: str | None = None) -> Path:
    folder = "sys/bus/pci/devices/0000:04:00.0"
    write(root, {f"{folder}/vendor": "0x10de\n", f"{folder}/class": "0x030200\n", f"{folder}/device": "0x2330\n"})
    if held_by:
        (root / "sys/bus/pci/drivers" / held_by).mkdir(parents=True)
        (root / folder / "driver").symlink_to(root / "sys/bus/pci/drivers" / held_by)
    return root


def read_inventory(root: Path) -> Inventory:
    inventory = detect.inventory(root=root, environ={})
    assert serialization.loads(serialization.dumps(inventory)) == inventory
    assert inventory.gpus == ()
    return inventory


@pytest.fixture
def code(driver: Install) -> Callable[[int], None]:
    """Starting NVML fails with this code."""
    fake = driver("none")

    def fail(number: int) -> None:
        fake.faults["nvmlInitWithFlags"] = Fault(number)

    return fail


def test_no_gpu_and_no_driver(code: Callable[[int], None], tmp_path: Path) -> None:
    code(12)
    assert read_inventory(tmp_path).reason == "This machine has no GPU: no NVIDIA driver or GPU, and no AMD one."


@pytest.mark.parametrize(("held_by", "why"), [
    (None, "no NVIDIA driver: 0000:04:00.0 (10de:2330); install"),
    ("nouveau", "held by nouveau); install NVIDIA's driver"),
    ("vfio-pci", "held by vfio-pci); they are reserved for virtual machines"),
])  # fmt: skip
def test_a_gpu_without_a_driver(code: Callable[[int], None], tmp_path: Path, held_by: str | None, why: str) -> None:
    code(12)
    assert why in str(read_inventory(nvidia_card(tmp_path, held_by)).reason)


def test_a_driver_without_its_library(code: Callable[[int], None], tmp_path: Path) -> None:
    code(12)
    reason = str(read_inventory(write(tmp_path, {"proc/driver/nvidia/version": MODULE})).reason)
    assert "driver 580.82.07 is loaded, but its library libnvidia-ml.so.1 is not found" in reason
    assert "libnvidia-compute-580" in reason


def test_a_container_that_was_started_without_gpus(code: Callable[[int], None], tmp_path: Path) -> None:
    code(12)
    root = write(tmp_path, {"proc/driver/nvidia/version": MODULE, ".dockerenv": ""})
    assert "container was started without GPUs: start it with `docker run --gpus all`" in str(
        read_inventory(root).reason
    )


def test_library_and_driver_of_different_versions(code: Callable[[int], None], tmp_path: Path) -> None:
    code(18)
    library = "usr/lib/x86_64-linux-gnu/libnvidia-ml.so.580.95.05"
    reason = str(read_inventory(write(tmp_path, {"proc/driver/nvidia/version": MODULE, library: ""})).reason)
    assert "different versions (library 580.95.05, driver 580.82.07)" in reason
    assert "Reboot, or unload it with `modprobe -r" in reason


def test_a_container_that_lost_its_gpus_to_a_daemon_reload(code: Callable[[int], None], tmp_path: Path) -> None:
    code(999)
    assert "dmesg" in str(read_inventory(tmp_path).reason)
    reason = str(read_inventory(write(tmp_path, {"run/.containerenv": ""})).reason)
    assert "systemctl daemon-reload" in reason
    assert "recreate the container" in reason


def test_a_container_that_lost_its_gpus_after_it_had_them(driver: Install, tmp_path: Path) -> None:
    fake = driver("8xh100")
    sampler = detect.sampler(root=write(tmp_path, {".dockerenv": ""}))
    fake.faults["nvmlDeviceGetFieldValues"] = Fault(1)
    fake.faults["nvmlInitWithFlags"] = Fault(999)
    with pytest.raises(GpuError):
        sampler.read()
    with pytest.raises(GpuError, match="recreate the container"):
        sampler.read()


@pytest.mark.parametrize(
    ("number", "why"),
    [(9, "`modprobe nvidia`"), (4, "No permission to use the NVIDIA driver"), (27, "still starting"), (77, "(77)")],
)
def test_what_starting_the_driver_says(code: Callable[[int], None], tmp_path: Path, number: int, why: str) -> None:
    code(number)
    assert why in str(read_inventory(tmp_path).reason)


def test_wsl_without_a_gpu(code: Callable[[int], None], tmp_path: Path) -> None:
    code(12)
    inventory = read_inventory(write(tmp_path, {"proc/sys/kernel/osrelease": "5.15.153.1-microsoft-standard-WSL2\n"}))
    assert inventory.machine.wsl
    assert "install NVIDIA's driver in Windows" in str(inventory.reason)


def test_a_driver_that_has_no_gpu_to_show(driver: Install, tmp_path: Path) -> None:
    driver("none")
    assert read_inventory(tmp_path).reason == "The NVIDIA driver runs, but there is no NVIDIA GPU in this machine."
    assert "0000:04:00.0 (10de:2330, held by vfio-pci)" in str(read_inventory(nvidia_card(tmp_path, "vfio-pci")).reason)
    write(tmp_path, {".dockerenv": ""})
    inventory = detect.inventory(root=tmp_path, environ={"NVIDIA_VISIBLE_DEVICES": "void"})
    assert "this container has no GPU (NVIDIA_VISIBLE_DEVICES=void)" in str(inventory.reason)
    assert inventory.driver.version == "580.95.05"


def test_a_library_that_cannot_be_loaded_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "libnvidia-ml.so.1").write_bytes(b"not an ELF file, but long enough to be read as one" * 9)
    monkeypatch.setattr(nvml_calls, "_LIBRARY", str(tmp_path / "libnvidia-ml.so.1"))
    monkeypatch.delitem(sys.modules, "pynvml")
    assert "is there but cannot be loaded" in str(read_inventory(tmp_path).reason)


def test_without_a_library_nvidia_ml_py_is_not_even_loaded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvml_calls, "_LIBRARY", "libnvidia-ml-that-is-nowhere.so.1")
    monkeypatch.delitem(sys.modules, "pynvml")
    read_inventory(tmp_path)
    assert "pynvml" not in sys.modules


@pytest.mark.parametrize("mark", [".dockerenv", "run/.containerenv", "run/systemd/container"])
def test_marks_of_a_container(tmp_path: Path, mark: str) -> None:
    assert not machine(tmp_path, {}).container
    assert machine(write(tmp_path, {mark: ""}), {}).container


def test_a_pod_is_a_container(tmp_path: Path) -> None:
    assert machine(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}).container
    group = "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-4f.scope\n"
    assert machine(write(tmp_path, {"proc/1/cgroup": group}), {}).container


def test_the_boot_has_an_identity(tmp_path: Path) -> None:
    write(tmp_path, {"proc/sys/kernel/random/boot_id": "5f0c9d6e-8a9f-4f3c-9d1b-0a1b2c3d4e5f\n"})
    assert machine(tmp_path, {}).boot_id == "5f0c9d6e-8a9f-4f3c-9d1b-0a1b2c3d4e5f"


def test_the_toolkit_that_is_named_goes_before_the_usual_one(tmp_path: Path) -> None:
    new = json.dumps({"cuda": {"name": "CUDA SDK", "version": "12.8.1"}})
    write(tmp_path, {"usr/local/cuda/version.txt": "CUDA Version 10.2.89\n", "opt/cuda-12/version.json": new})
    usual = toolkit(tmp_path, {})
    assert (usual.version, usual.path) == ("10.2.89", "/usr/local/cuda")
    named = toolkit(tmp_path, {"CUDA_HOME": "/opt/cuda-12"})
    assert (named.version, named.path, named.compat) == ("12.8.1", "/opt/cuda-12", None)


def test_compatibility_libraries_have_their_newest_version(tmp_path: Path) -> None:
    folder = "usr/local/cuda/"
    files = [f"{folder}compat/libcuda.so.{version}" for version in ("1", "570.26", "570.124.06")]
    write(tmp_path, {f"{folder}version.json": '{"cuda": {"version": "12.8"}}', **dict.fromkeys(files, "")})
    cuda_toolkit = toolkit(tmp_path, {})
    assert cuda_toolkit.compat == "570.124.06"


def test_nvcc_is_asked_only_when_programs_may_be(tmp_path: Path) -> None:
    printed = "Cuda compilation tools, release 12.4, V12.4.131\nBuild cuda_12.4.r12.4/compiler.34097967_0\n"
    assert toolkit(tmp_path, {}) is None
    cuda_toolkit = toolkit(tmp_path, {}, lambda command: printed if command == ["nvcc", "--version"] else None)
    assert (cuda_toolkit.version, cuda_toolkit.path) == ("12.4.131", "nvcc")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"cuda": 12}', '{"cuda": {"version": 12}}'])
def test_a_toolkit_without_a_version_is_none(tmp_path: Path, text: str) -> None:
    assert toolkit(write(tmp_path, {"usr/local/cuda/version.json": text}), {}) is None


def test_what_gives_gpus_to_containers(tmp_path: Path) -> None:
    assert container_runtime(tmp_path) is None
    daemon = {"default-runtime": "nvidia", "runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}
    files = {"etc/docker/daemon.json": json.dumps(daemon), "etc/cdi/nvidia.yaml": "", "var/run/cdi/a.json": ""}
    root = write(tmp_path, files | {"etc/cdi/README": ""})
    expected = ContainerRuntime(None, None, ("nvidia",), "nvidia", ("/etc/cdi/nvidia.yaml", "/var/run/cdi/a.json"))
    assert container_runtime(root) == expected


def test_programs_tell_more_of_the_container_runtime(tmp_path: Path) -> None:
    engine = {"ServerVersion": "28.5.1", "Runtimes": {"runc": {}, "nvidia": {}}, "DefaultRuntime": "runc"}
    outputs = {
        "nvidia-ctk": "NVIDIA Container Toolkit CLI version 1.18.0\ncommit: 0\n",
        "docker": json.dumps(engine),
    }
    runtime = container_runtime(tmp_path, lambda command: outputs[command[0]])
    assert runtime == ContainerRuntime("1.18.0", "28.5.1", ("nvidia", "runc"), "runc")
    without_programs = container_runtime(tmp_path, lambda command: None)
    assert without_programs is None


def test_a_program_that_is_absent_or_fails_prints_nothing() -> None:
    assert run(["no-such-program-anywhere"]) is None
    assert run(["false"]) is None
    assert run(["echo", "yes"]) == "yes\n"
