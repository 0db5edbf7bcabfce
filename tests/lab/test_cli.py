"""Messages of the lab's commands: failures as JSON, conflicting processes, unknown names, and why no job can run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paddock.fleet import load
from paddock.lab import commands, demo, status
from paddock.lab.control_plane import servers, state
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.status import LabState
from paddock.process import Process
from paddock.tasks.program import main
from tests.support.fleets import ROOT

POD = "kube-system/nvidia-device-plugin-node-feature-discovery-master-849b888784w5"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """One whose programs run, as far as its state says, and that has nothing else."""
    monkeypatch.setenv("PADDOCK_LAB_STATE", str(tmp_path))
    folder = state.folder("prod")
    state.prepare(folder)
    running = dict.fromkeys(servers.PROGRAMS, Process(1, "long ago"))
    return Lab(folder, {"kube-apiserver": 6443}, running, ())


def test_a_failure_is_json_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inv", "lab.status", "--stack", "a/b", "--json"]) == 2
    assert "cannot be a lab's name" in json.loads(capsys.readouterr().out)["error"]


def test_a_lab_is_not_ended_during_another_command(lab: Lab) -> None:
    with state.exclusive_command(lab.folder), pytest.raises(LabInputError, match="at work"):
        commands.down(commands.Down(stack="prod"))


def test_a_screen_says_what_it_does_not_know(lab: Lab) -> None:
    assert "nodes, pods and jobs are unknown" in "\n".join(LabState.of("prod", lab).text())


def test_a_narrow_screen_cuts_no_pods_name_off(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    about = {"pool": "", "capacity": "spot", "instance": "g4dn.xlarge", "gpus": 1, "gpus_used": 1}
    nodes = [{"name": "t4-spot-348b09", "pods": [POD], **about}]
    waiting = [{"pod": "default/big", "why": "2 Insufficient nvidia.com/gpu"}]
    cluster = {"nodes": nodes, "waiting": waiting, "unknown": "", "jobs": None}
    monkeypatch.setattr(status, "_cluster", lambda lab: cluster)
    monkeypatch.setenv("COLUMNS", "60")

    output = "\n".join(LabState.of("prod", lab).text())
    assert POD in output
    assert "default/big: 2 Insufficient nvidia.com/gpu" in output


def test_a_demo_says_which_program_is_missing_and_for_which_stack(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(lab.folder))
    monkeypatch.delenv("PADDOCK_LAB_BIN", raising=False)
    with pytest.raises(LabError, match=r"needs pulumi and[\s\S]*then: \./inv lab\.up --stack prod"):
        demo.demo(lab, load(ROOT, "prod"))
