"""Requirements of the real ARC, and the message where one is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.lab.control_plane import daemon
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabInputError
from paddock.lab.simulators import arc_programs


def _program(folder: Path, name: str, text: str = "exit 0") -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the only one on PATH, with everything that is needed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PADDOCK_LAB_BIN", str(tmp_path))
    for name in (arc_programs.MANAGER, arc_programs.LISTENER, "unshare", "setpriv", "mount"):
        _program(tmp_path, name)
    return tmp_path


def test_with_all_of_it_there_is_nothing_to_say(folder: Path) -> None:
    assert arc_programs.unavailable_reason() == ""


def test_programs_that_are_not_there_are_named(folder: Path) -> None:
    (folder / arc_programs.LISTENER).unlink()

    assert arc_programs.unavailable_reason() == "arc-listener is not here"


def test_missing_user_namespaces_are_reported_with_the_systems_message(folder: Path) -> None:
    _program(folder, "unshare", "echo 'unshare: unshare failed: Operation not permitted' >&2; exit 1")

    assert "no user namespaces" in arc_programs.unavailable_reason()
    assert "Operation not permitted" in arc_programs.unavailable_reason()


def test_missing_tools_are_named(folder: Path) -> None:
    (folder / "setpriv").unlink()

    assert arc_programs.unavailable_reason() == "setpriv of util-linux is not here"


def test_it_does_not_start_beside_the_stand_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "is_running", lambda lab, name: name == "arc")

    with pytest.raises(LabInputError, match=r"the stand-in for ARC serves[\s\S]*lab\.down"):
        arc_programs.start(Lab(folder, {}, {}, ()), "http://127.0.0.1:1")
