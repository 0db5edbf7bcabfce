"""State of a user's cluster: the token, and records of what was started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from paddock.process import Process, start_time
from paddock.serve.agents.home import Home, Member
from paddock.serve.agents.ray_process import sweep
from paddock.serve.errors import ServeError, ServeInputError


def member(name: str, process: Process) -> Member:
    return Member(name, "192.0.2.2:6379", process.pid, process.started, "/tmp/none")


def test_a_token_is_made_once_and_nobody_else_reads_it(tmp_path: Path) -> None:
    home = Home.of({"XDG_STATE_HOME": str(tmp_path)})
    token = home.token()
    assert home.token() == token
    assert len(token) == 64
    assert (home.token_path.stat().st_mode & 0o777, home.folder.stat().st_mode & 0o777) == (0o600, 0o700)


@pytest.mark.parametrize("text", ["", "short", "with spaces " * 8])
def test_a_file_without_a_token_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "token"
    file.write_text(text)
    with pytest.raises(ServeInputError, match="holds no token"):
        Home(tmp_path).token(file)
    with pytest.raises(ServeInputError, match="there is no"):
        Home(tmp_path).token(tmp_path / "absent")


def test_a_member_whose_process_ended_is_no_member(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.save(member("head", Process(os.getpid(), start_time(os.getpid()) or "")))
    home.save(member("box", Process(os.getpid(), "another start")))
    assert [member.name for member in home.members()] == ["head"]
    assert [member.name for member in home.ended()] == ["box"]
    sweep(home)
    assert not (tmp_path / "box.json").exists()


def test_without_a_head_the_message_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(ServeError, match=r"serve\.up"):
        Home(tmp_path).head()
