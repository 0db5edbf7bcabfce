"""The lab as its README tells it, on the command line: up, one GPU job, down, and nothing of it stays."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.lab.stack.engine import Programs
from tests.support.door import Door

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("story")]
ROOT = Path(__file__).resolve().parents[2]
LAB_BIN = ("PADDOCK_LAB_BIN", "PADDOCK_LAB_CHARTS")
Inv = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory, control_plane_programs: None, programs: Programs) -> Path:
    return tmp_path_factory.mktemp("labs")


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Door:
    return Door(ROOT, tmp_path_factory.mktemp("door"))


@pytest.fixture(scope="module")
def env(labs: Path) -> dict[str, str]:
    return {"PADDOCK_LAB_STATE": str(labs)} | {name: os.environ[name] for name in LAB_BIN if name in os.environ}


@pytest.fixture(scope="module")
def inv(door: Door, env: dict[str, str]) -> Iterator[Inv]:
    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return door(*words, env=env, seconds=400)

    try:
        yield run
    finally:
        run("lab.down")


@pytest.fixture(scope="module")
def interrupted(door: Door, env: dict[str, str], inv: Inv) -> tuple[int, str]:
    """Return exit code and words of a first `lab.up` that Ctrl-C ended once its control plane ran."""
    starting = door.start("lab.up", env=env)
    assert starting.stderr
    for line in starting.stderr:
        if " plan" in line:
            break
    code, _, errors = door.interrupt(starting)
    return code, errors


@pytest.mark.door("lab.up", "real Pulumi and Kubernetes, stand-ins for AWS and GitHub", interrupted=True)
def test_ctrl_c_ends_the_lab_and_says_how_to_go_on(interrupted: tuple[int, str], labs: Path) -> None:
    code, words = interrupted
    assert (code, "Traceback" in words) == (130, False), words
    assert "the lab: it was ended, its state is kept" in words
    assert "./inv lab.up continues from here" in words
    assert [line for line in _command_lines() if str(labs) in line] == []


@pytest.fixture(scope="module")
def up(inv: Inv, interrupted: tuple[int, str]) -> dict[str, Any]:
    completed = inv("lab.up", "--json")
    assert completed.returncode == 0, completed.stderr
    document: dict[str, Any] = json.loads(completed.stdout)
    return document


@pytest.mark.door("lab.up", "real Pulumi and Kubernetes, stand-ins for AWS and GitHub")
def test_up_applies_the_stack(up: dict[str, Any]) -> None:
    assert up["up"]
    assert up["applied"]["resources"] > 50
    assert {"etcd", "kube-apiserver", "autoscaler", "github"} < set(up["processes"])
    assert {node["pool"] for node in up["nodes"]} == {""}  # the system's; the GPU pools start at zero


@pytest.mark.door("lab.demo", "real Pulumi and Kubernetes, stand-ins for AWS and GitHub", interrupted=True)
def test_ctrl_c_cancels_the_job_and_leaves_the_lab(
    up: dict[str, Any], door: Door, env: dict[str, str], inv: Inv
) -> None:
    showing = door.start("lab.demo", "--job-seconds", "600", env=env)
    assert showing.stdout
    assert showing.stdout.readline().startswith("job ")
    code, _, errors = door.interrupt(showing)
    assert (code, "Traceback" in errors) == (130, False), errors
    assert "interrupted; its job was cancelled and the lab runs on" in errors
    assert [job["result"] for job in json.loads(inv("lab.status", "--json").stdout)["jobs"]] == ["canceled"]


@pytest.mark.door("lab.demo", "real Pulumi and Kubernetes, stand-ins for AWS and GitHub")
@pytest.mark.door("lab.status", "real Pulumi and Kubernetes, stand-ins for AWS and GitHub")
def test_a_gpu_job_runs_and_the_status_shows_it(up: dict[str, Any], inv: Inv) -> None:
    completed = inv("lab.demo", "--job-seconds", "2", "--json")

    assert completed.returncode == 0, completed.stdout + completed.stderr
    document = json.loads(completed.stdout)
    reached = [step["step"] for step in document["steps"] if step["seconds"] is not None]
    assert reached[:3] == ["queued", "acquired", "pod made"]
    assert reached[-4:] == ["scheduled", "started", "completed", "node gone"]
    assert document["node"].startswith("t4-")
    displayed = inv("lab.status")
    assert displayed.returncode == 0
    for text in ("kube-scheduler", "system-0", "nvidia-device-plugin", "runs-on", "succeeded"):
        assert text in displayed.stdout


@pytest.mark.door("lab.down", "real Pulumi and Kubernetes, stand-ins for AWS and GitHub")
def test_down_leaves_no_process_and_no_file(up: dict[str, Any], inv: Inv, labs: Path) -> None:
    completed = inv("lab.down")

    assert completed.returncode == 0
    assert f"ended {len(up['processes'])} processes" in completed.stdout
    assert list(labs.iterdir()) == []
    assert [line for line in _command_lines() if str(labs) in line] == []
    assert inv("lab.status").returncode == 1


def _command_lines() -> list[str]:
    return subprocess.run(["ps", "-ww", "-eo", "args"], capture_output=True, text=True, check=True).stdout.splitlines()
