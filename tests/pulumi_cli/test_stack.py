"""Runs of Pulumi's CLI, with a program in its place that prints what Pulumi prints."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from paddock.pulumi_cli.stack import Pulumi, PulumiError, PulumiMissing, RunInterrupted, title
from tests.support.waiting import until

URN = "urn:pulumi:dev::paddock::paddock:infra:GpuPool$aws:eks/nodeGroup:NodeGroup::t4-spot"


def event(operation: str, kind: str = "resOutputsEvent") -> dict[str, Any]:
    return {kind: {"metadata": {"op": operation, "urn": URN}}}


@pytest.fixture
def messages() -> list[str]:
    return []


def program(folder: Path, script: str, *events: dict[str, Any]) -> Pulumi:
    """Return Pulumi with a program that notes its words, prints events, and then runs a script."""
    path = folder / "pulumi"
    lines = "\n".join(json.dumps(one) for one in events)
    (folder / "events").write_text(f"{lines}\n" if lines else "")
    path.write_text(f'#!/bin/sh\ncd {folder}\necho "$@" >> words\nenv > environment\ncat events\n{script}\n')
    path.chmod(0o755)
    return Pulumi(folder, "dev", program=str(path), environment={"PATH": os.environ["PATH"], "MARK": "1"})


def words(folder: Path) -> str:
    return (folder / "words").read_text()


def test_state_is_read_without_secrets_in_clear(tmp_path: Path) -> None:
    resource = {"urn": URN, "type": "aws:eks/nodeGroup:NodeGroup", "id": "i", "protect": True, "retainOnDelete": True}
    export = {"deployment": {"resources": [resource]}}
    pulumi = program(tmp_path, f"echo '{json.dumps(export)}'")
    (found,) = pulumi.resources()
    assert (found.title, found.id, found.protect, found.retained) == ("eks NodeGroup t4-spot", "i", True, True)
    assert "--show-secrets" not in words(tmp_path)


def test_only_changes_are_reported(tmp_path: Path, messages: list[str]) -> None:
    run = program(tmp_path, "exit 0", event("same"), event("update"), event("delete")).up(
        messages.append, targets=[URN]
    )
    assert messages == ["pulumi: updated eks NodeGroup t4-spot", "pulumi: deleted eks NodeGroup t4-spot"]
    assert run.touched("update") == [URN]
    assert f"--target {URN}" in words(tmp_path)


def test_a_failure_has_pulumis_reason_and_what_was_done(tmp_path: Path, messages: list[str]) -> None:
    said = {"diagnosticEvent": {"severity": "error", "message": "timed out\n", "urn": URN}}
    pulumi = program(tmp_path, "exit 255", event("create"), event("update", "resOpFailedEvent"), said)
    with pytest.raises(PulumiError, match="eks NodeGroup t4-spot: timed out") as failed:
        pulumi.destroy(messages.append)
    assert failed.value.run is not None
    assert [step.operation for step in failed.value.run.steps] == ["create"]
    assert "--exclude-protected" in words(tmp_path)


def test_a_locked_stack_says_what_frees_it(tmp_path: Path) -> None:
    pulumi = program(tmp_path, "echo 'error: the stack is currently locked by 1 lock(s)' >&2; exit 255")
    with pytest.raises(PulumiError) as failed:
        pulumi.up(lambda text: None)
    assert "pulumi cancel --stack dev" in failed.value.fix


def test_its_environment_is_the_one_that_was_given(tmp_path: Path) -> None:
    program(tmp_path, "exit 0").preview()
    environment = (tmp_path / "environment").read_text()
    assert "MARK=1" in environment
    assert "PULUMI_ENABLE_STREAMING_JSON_PREVIEW=true" in environment
    assert "PYTEST_CURRENT_TEST" not in environment


def test_a_stack_that_was_never_made_holds_nothing(tmp_path: Path) -> None:
    assert not program(tmp_path, "echo \"error: no stack named 'dev' found\" >&2; exit 255").exists()


def test_absent_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(PulumiMissing, match="no-pulumi is not on PATH"):
        Pulumi(tmp_path, "dev", program="no-pulumi").resources()


@pytest.mark.parametrize("text", ["{", "[]", '{"deployment": {"resources": [{}]}}'])
def test_a_state_of_another_form_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(PulumiError, match="not of its form"):
        program(tmp_path, f"echo '{text}'").resources()


def test_ctrl_c_lets_pulumi_finish_what_it_makes(tmp_path: Path, messages: list[str]) -> None:
    script = "trap 'sleep 0.3; touch finished; exit 255' INT; touch started; while :; do sleep 0.05; done"
    pulumi = program(tmp_path, script, event("create"))
    _interrupt_when(tmp_path / "started")
    with pytest.raises(RunInterrupted) as interrupted:
        pulumi.up(messages.append)
    assert (tmp_path / "finished").exists()
    assert [step.operation for step in interrupted.value.run.steps] == ["create"]
    assert messages[-1].startswith("interrupted: Pulumi finishes")


def test_a_second_ctrl_c_ends_it_and_its_children(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("paddock.pulumi_cli.run.GRACE", 0.2)
    script = f"trap '' INT; {sys.executable} -c 'import time; time.sleep(60)' & echo $! > child; touch started; wait"
    pulumi = program(tmp_path, script)
    _interrupt_when(tmp_path / "started", times=2)
    with pytest.raises(RunInterrupted):
        pulumi.up(lambda text: None)
    child = int((tmp_path / "child").read_text())
    until(lambda: not Path(f"/proc/{child}/exe").exists(), seconds=10)


def test_titles_are_short() -> None:
    assert title("urn:pulumi:dev::paddock::a$kubernetes:helm.sh/v3:Release::arc") == "Release arc"
    assert title("urn:pulumi:dev::paddock::pulumi:pulumi:Stack::paddock-dev") == "Stack paddock-dev"


def _interrupt_when(path: Path, times: int = 1) -> None:
    """Send this process SIGINT, as a terminal's Ctrl-C, once a file is there."""

    def run() -> None:
        until(path.exists)
        for _ in range(times):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.3)

    threading.Thread(target=run, daemon=True).start()
