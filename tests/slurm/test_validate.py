"""Links from a GPU to a container, on stand-in trees of /dev and /etc and with recorded words of Docker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu import serialization
from paddock.gpu.model import ContainerRuntime, Driver, Inventory
from paddock.images.docker.model import Finished
from paddock.slurm.detect.engine import Engine
from paddock.slurm.detect.machine import Detection, detect
from paddock.slurm.validate.container import container_link
from paddock.slurm.validate.host import host_links
from paddock.slurm.validate.link import broken
from tests.support.boxes import h100s
from tests.support.gpu_machines import instincts

ENGINE = Engine("box", "28.1.1", 8, 64000, runtimes=("nvidia", "runc"), cgroup_driver="cgroupfs", cgroup_version="2")


def nvidia(**changes: Any) -> Detection:
    facts: dict[str, Any] = {"driver": Driver("580.95.05", "13.0"), "runtime": ContainerRuntime(toolkit="1.18.0")}
    inventory = replace(h100s(2), **facts | changes)
    return detect(replace(inventory, gpus=tuple(replace(gpu, minor=gpu.index) for gpu in inventory.gpus)), None)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "dev").mkdir()
    for name in ("nvidiactl", "nvidia-uvm", "nvidia0", "nvidia1"):
        (tmp_path / "dev" / name).touch()
    return tmp_path


def test_all_links_of_a_good_machine_are_ok(root: Path) -> None:
    links = host_links(nvidia(), ENGINE, root)
    assert [(link.name, link.state) for link in links] == [
        ("driver", "ok"), ("devices", "ok"), ("toolkit", "ok"), ("runtime", "ok"),
    ]  # fmt: skip


def test_a_machine_without_gpus_has_no_links(root: Path) -> None:
    assert host_links(detect(replace(h100s(0), reason="none"), None), ENGINE, root) == ()


@pytest.mark.parametrize(("missing", "fix"), [("nvidia-uvm", "nvidia-modprobe"), ("nvidia1", "nvidia-modprobe")])
def test_a_missing_device_file_is_the_broken_link(root: Path, missing: str, fix: str) -> None:
    (root / "dev" / missing).unlink()
    link = broken(host_links(nvidia(), ENGINE, root))
    assert (link.name, link.evidence) == ("devices", f"/dev/{missing} missing")
    assert fix in link.fix


def test_a_missing_toolkit_gets_install_instructions(root: Path) -> None:
    link = broken(host_links(nvidia(runtime=None), replace(ENGINE, runtimes=("runc",)), root))
    assert link.name == "toolkit"
    assert "nvidia-ctk runtime configure" in link.fix


@pytest.mark.parametrize(
    ("setting", "rootless", "fix"),
    [("no-cgroups = true", False, "no-cgroups=false"), ("#no-cgroups = false", True, "no-cgroups=true"),
     ("no-cgroups = true", True, ""), ("no-cgroups = false", False, "")],
)  # fmt: skip
def test_toolkit_and_engine_must_agree_on_cgroups(root: Path, setting: str, rootless: bool, fix: str) -> None:
    folder = root / "etc/nvidia-container-runtime"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f"[nvidia-container-cli]\n{setting}\n")
    link = broken(host_links(nvidia(), replace(ENGINE, rootless=rootless), root))
    assert (link is None) == (not fix)
    assert link is None or (link.name == "cgroup" and fix in link.fix)


def test_a_systemd_reload_that_takes_gpus_away_is_a_warning(root: Path) -> None:
    links = host_links(nvidia(), replace(ENGINE, cgroup_driver="systemd"), root)
    assert [(link.name, link.state) for link in links][-1] == ("cgroup", "warning")
    (root / "dev/char").mkdir()
    (root / "dev/char/195:0").touch()
    assert host_links(nvidia(), replace(ENGINE, cgroup_driver="systemd"), root)[-1].name == "runtime"


def test_amd_links_name_device_files_and_the_group(tmp_path: Path) -> None:
    detection = detect(instincts(tmp_path), None)
    assert broken(host_links(detection, ENGINE, tmp_path)).name == "devices"  # type: ignore[union-attr]  # one is broken
    (tmp_path / "dev/dri").mkdir()
    for number in (128, 129):
        (tmp_path / f"dev/dri/renderD{number}").touch()
    assert [link.state for link in host_links(detection, ENGINE, tmp_path)] == ["ok", "ok", "ok"]
    (tmp_path / "dev/kfd").unlink()
    assert broken(host_links(detection, ENGINE, tmp_path)).name == "driver"  # type: ignore[union-attr]  # one is broken


class _Engine:
    """Stand-in for Docker whose containers print and end as they are told."""

    def __init__(self, *results: Finished) -> None:
        self.results = list(results)
        self.options: list[str] = []

    def run(self, image: str, command: list[str], *, options: list[str], **_: Any) -> Finished:
        self.options = options
        return self.results.pop(0)


def listed(inventory: Inventory) -> Finished:
    return Finished(0, serialization.dumps(inventory), "")


def test_a_container_that_lists_every_gpu_passes() -> None:
    engine: Any = _Engine(listed(nvidia().contained))
    link = container_link(engine, "paddock/slurm:nvidia", nvidia())
    assert (link.state, link.evidence) == ("ok", "a container lists 2 GPUs")
    assert engine.options[:2] == ["--gpus", "all"]


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ('Error response from daemon: could not select device driver "" with capabilities: [[gpu]].', "toolkit"),
        ("docker: Error response from daemon: unknown or invalid runtime name: nvidia.", "runtime"),
        ("error running hook #0: Auto-detected mode as 'legacy'\nnvidia-container-cli: initialization error: load"
         " library failed: libnvidia-ml.so.1: cannot open shared object file: no such file", "driver"),
        ("nvidia-container-cli: initialization error: nvml error: driver not loaded: unknown", "driver"),
        ("CDI device injection failed: unresolvable CDI devices nvidia.com/gpu=all", "CDI"),
        ("nvidia-container-cli: requirement error: unsatisfied condition: cuda>=13.0", "driver"),
        ('error gathering device information while adding custom device "/dev/kfd": no such file', "devices"),
    ],
)  # fmt: skip
def test_recorded_words_of_docker_name_the_broken_link(words: str, name: str) -> None:
    engine: Any = _Engine(Finished(125, "", words))
    link = container_link(engine, "paddock/slurm:nvidia", nvidia())
    assert (link.name, link.state) == (name, "broken")
    assert link.fix


def test_a_container_without_the_gpus_says_why() -> None:
    inside = replace(nvidia().contained, gpus=(), reason="this container was started without GPUs.")
    engine: Any = _Engine(listed(inside))
    link = container_link(engine, "paddock/slurm:nvidia", nvidia())
    assert link.state == "broken"
    assert "started without GPUs" in link.evidence


def test_an_amd_device_that_may_not_be_opened_is_the_broken_link(tmp_path: Path) -> None:
    engine: Any = _Engine(Finished(0, "/dev/kfd\n", ""))
    link = container_link(engine, "paddock/slurm:amd", detect(instincts(tmp_path), None))
    assert (link.name, link.evidence) == ("group", "the container may not open /dev/kfd")


def test_an_image_that_cannot_list_gpus_is_broken() -> None:
    for finished in (Finished(127, "", "sh: paddock: not found"), Finished(0, "{}", "")):
        engine: Any = _Engine(finished)
        assert container_link(engine, "paddock/slurm:nvidia", nvidia()).name == "container"
