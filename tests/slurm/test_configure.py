"""`slurm.configure` on a simulated NVIDIA driver, without Docker."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.gpu import serialization
from paddock.tasks.program import main
from tests.support.boxes import box, gpu
from tests.support.nvml import Driver, installed
from tests.support.nvml import box as cards

Ran = subprocess.CompletedProcess[str]
Configure = Callable[..., Ran]


@pytest.fixture
def configure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Configure:
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PADDOCK_CWD", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    for name in [name for name in os.environ if name.endswith("_VISIBLE_DEVICES")]:
        monkeypatch.delenv(name)

    def run(*words: str, gpus: int = 1) -> Ran:
        with installed(Driver(cards("H100", gpus))):
            code = main(["inv", "slurm.configure", *words])
        shown = capsys.readouterr()
        return Ran(words, code, shown.out, shown.err)

    return run


def test_files_for_the_detected_gpus_are_written_without_docker(configure: Configure, tmp_path: Path) -> None:
    completed = configure("--files-only", "--prefix", "lab", gpus=4)
    assert completed.returncode == 0, completed.stderr
    assert "4x NVIDIA H100 80GB HBM3, 81559 MiB each, driver 580.95.05" in completed.stdout
    assert "4 nvidia GPUs (gpu:h100:4). The image paddock/slurm:nvidia was not looked for." in completed.stdout
    assert "Gres=gpu:h100:4" in (tmp_path / "lab-slurm/slurm.conf").read_text()
    again = configure("--files-only", "--prefix", "lab", "--json", gpus=4)
    document = json.loads(again.stdout)
    assert {file["state"] for file in document["files"]} == {"unchanged"}
    assert document["ready"] is False, "nobody has looked for the image"


def test_a_broken_link_is_named_and_nothing_is_written(configure: Configure, tmp_path: Path) -> None:
    completed = configure("--dry-run", gpus=4)
    assert completed.returncode == 1
    assert "/dev/nvidiactl" in completed.stdout
    assert "fix: sudo nvidia-modprobe" in completed.stdout
    assert "slurm.configure --gpu-type none" in completed.stdout
    assert not (tmp_path / "paddock-slurm").exists()
    without = configure("--dry-run", "--gpu-type", "none", "--json", gpus=4)
    assert without.returncode == 0
    assert json.loads(without.stdout)["gpu_type"] == "none"


def test_another_machines_inventory_is_configured_for(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(serialization.dumps(box([gpu(index, minor=index) for index in range(8)])))
    completed = configure("--from", "node.json", "--files-only", "--shards", "4", gpus=1)
    assert completed.returncode == 0, completed.stderr
    assert "gpu:h100:8,shard:32" in completed.stdout


def test_without_docker_the_message_says_what_to_install(configure: Configure, tmp_path: Path) -> None:
    completed = configure("--gpu-type", "none")
    assert completed.returncode == 2
    assert "there is no docker on PATH" in completed.stderr
    assert not (tmp_path / "paddock-slurm").exists()


@pytest.mark.parametrize(("words", "message"), [
    (("--gpu-type", "nvidia"), "the type is detected"),
    (("--shards", "1"), "one shard is the whole GPU"),
    (("--shards", "-4"), "--shards is -4"),
    (("--prefix", "My Lab"), "--prefix 'My Lab'"),
    (("--files-only", "--rebuild"), "--files-only builds no image"),
    (("--image", "x", "--base", "y"), "--image names an image"),
    (("--from", "none.json"), "cannot read"),
])  # fmt: skip
def test_a_flag_that_is_refused_changes_nothing(
    configure: Configure, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    completed = configure(*words, *([] if "--files-only" in words else ["--dry-run"]))
    assert completed.returncode == 2
    assert message in completed.stderr
    assert "expected:" in completed.stderr
    assert not (tmp_path / "paddock-slurm").exists()


def test_a_folder_that_cannot_be_written_is_named(configure: Configure, tmp_path: Path) -> None:
    (tmp_path / "paddock-slurm").write_text("a file")
    completed = configure("--files-only")
    assert completed.returncode in (1, 2)
    assert "paddock-slurm" in completed.stderr
    assert "fix:" in completed.stderr
