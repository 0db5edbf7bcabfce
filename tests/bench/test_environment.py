"""The environment of a run: which image and machine it is, and what could not be read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from paddock.bench.measurement import environment
from paddock.gpu.errors import GpuError
from paddock.gpu.host import imds
from paddock.gpu.inventory import inventory
from tests.support.nvml import Driver, installed


def written(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


def test_limits_of_a_container_are_those_of_its_run(tmp_path: Path) -> None:
    written(tmp_path, "sys/fs/cgroup/cpu.max", "50000 100000\n")
    written(tmp_path, "sys/fs/cgroup/memory.max", "1000000\n")
    with installed(Driver([])):
        read = environment.environment(inventory(), {}, tmp_path)
    assert (read["vcpus"], read["cpu_quota"], read["memory_bytes"]) == (1, 0.5, 1_000_000)
    assert (read["governor"], read["gpus"], read["driver"]) == (None, [], "580.95.05")


def test_image_and_machine_image_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {"instance-type": "g5.xlarge", "ami-id": "ami-0123456789abcdef0"}

    def answer(host: str, seconds: float, method: str, path: str, headers: Mapping[str, str]) -> str:
        return "token" if method == "PUT" else answers[path.rpartition("/")[2]]

    monkeypatch.setattr(imds, "_answer", answer)
    written(tmp_path, "sys/class/dmi/id/sys_vendor", "Amazon EC2\n")
    with installed(Driver([])):
        here = inventory()
        read = environment.environment(here, {"PADDOCK_IMAGE": "runner-gpu:12.8-abc"}, tmp_path)
        assert (read["instance"], read["ami"], read["image"]) == (*answers.values(), "runner-gpu:12.8-abc")
        said = environment.environment(here, {"PADDOCK_AMI": "ami-1", "PADDOCK_INSTANCE_TYPE": "p5.48xlarge"}, tmp_path)
        assert (said["instance"], said["ami"]) == ("p5.48xlarge", "ami-1")
        elsewhere = environment.environment(here, {}, tmp_path / "no EC2")
        assert (elsewhere["instance"], elsewhere["ami"], elsewhere["image"]) == (None, None, None)
    answers["ami-id"] = "<html>"
    with pytest.raises(GpuError, match="is not a valid ami id"):
        imds.machine_image()
