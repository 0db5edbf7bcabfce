"""Platforms, GPU types and resources that a node is configured for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.model import Inventory, Machine
from paddock.slurm.detect.engine import Engine
from paddock.slurm.detect.machine import detect
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.write.node_files import node_files
from tests.support.boxes import box, gpu, h100s, pair

APPLE = replace(gpu(0), vendor="apple", name="Apple M3")
AMD = replace(gpu(0), vendor="amd", name="AMD Instinct MI300X")


def on(machine: dict[str, Any], *gpus: Any) -> Inventory:
    return replace(box(gpus), machine=Machine("box", **{"system": "linux", "architecture": "x86_64", **machine}))


@pytest.mark.parametrize(("machine", "card", "platform", "gpu_type", "reason"), [
    ({}, gpu(0), "Linux", "nvidia", ""),
    ({}, AMD, "Linux", "amd", ""),
    ({"wsl": True}, gpu(0), "Windows WSL2", "nvidia", ""),
    ({"wsl": True}, AMD, "Windows WSL2", "none", "no /dev/kfd"),
    ({"system": "macos"}, AMD, "macOS Intel", "none", "virtual machine"),
    ({"system": "macos", "architecture": "arm64"}, APPLE, "macOS Apple Silicon", "none", "Metal"),
    ({"system": "other"}, gpu(0), "another system", "none", "no nvidia GPU reaches"),
])  # fmt: skip
def test_every_platform_has_an_answer_with_its_reason(
    machine: dict[str, Any], card: Any, platform: str, gpu_type: str, reason: str
) -> None:
    detection = detect(on(machine, card), None)
    assert (detection.platform, detection.gpu_type) == (platform, gpu_type)
    assert reason in " ".join(detection.notes)
    assert bool(detection.contained.gpus) == (gpu_type != "none")


def test_a_container_numbers_usable_gpus_from_0() -> None:
    lost = replace(gpu(1, minor=1), state="lost", reason="GPU is lost")
    inventory = box([gpu(0, minor=0), lost, gpu(2, minor=2)], [pair(0, 1, nvlinks=4), pair(0, 2, nvlinks=4)])
    detection = detect(inventory, None)
    assert [(g.index, g.minor) for g in detection.contained.gpus] == [(0, 0), (1, 2)]
    assert [(p.a, p.b) for p in detection.contained.pairs] == [(0, 1)]
    assert detection.contained.machine.container
    assert "GPU 1 is left out: it is lost (GPU is lost)." in detection.notes


def test_resources_are_those_of_the_engine_that_runs_the_container() -> None:
    info = {"Name": "docker-desktop", "ServerVersion": "28.1.1", "NCPU": 4, "MemTotal": 8 * 2**30,
            "OperatingSystem": "Docker Desktop"}  # fmt: skip
    detection = detect(h100s(1), Engine.parse(info))
    assert detection.hardware == "CPUs=4 RealMemory=8192"
    assert detection.notes == ()


def test_an_engine_on_another_machine_is_named() -> None:
    engine = Engine.parse({"Name": "gpu-7", "NCPU": 64, "MemTotal": 2**39})
    assert "The Docker engine runs on gpu-7" in " ".join(detect(h100s(1), engine).notes)
    assert not any("gpu-7" in note for note in detect(h100s(1), engine, saved=True).notes)


def test_gpus_of_two_vendors_are_refused() -> None:
    with pytest.raises(SlurmInputError, match="GPUs of amd and nvidia"):
        detect(on({}, gpu(0), replace(AMD, index=1, uuid="GPU-amd")), None)


def test_a_sick_gpu_of_another_vendor_is_left_out() -> None:
    sick = replace(AMD, index=0, state="lost", uuid="GPU-amd")
    detection = detect(on({}, sick, gpu(1, minor=0)), None)
    assert (detection.gpu_type, [device.vendor for device in detection.contained.gpus]) == ("nvidia", ["nvidia"])
    assert "GPU 0 is left out: it is lost." in detection.notes
    files = {file.path: file.text for file in node_files(detection, "p", "image", Path("/nowhere")).files}
    assert "GPU-00000001-aaaa" in files["compose.yaml"]
    assert "File=/dev/nvidia0" in files["gres.conf"]


@pytest.mark.parametrize("info", [{}, {"Runtimes": None, "SecurityOptions": None, "DiscoveredDevices": [None, {}]}])
def test_an_engine_that_says_little_is_unknown_not_guessed(info: dict[str, Any]) -> None:
    detection = detect(h100s(1), Engine.parse(info))
    assert detection.source == "this machine"
