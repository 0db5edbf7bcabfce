"""Lines that replace those before them."""

from __future__ import annotations

import io

import pytest

from paddock.console.watch import Screen


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_lines_on_a_terminal_replace_those_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    screen = Screen()
    screen.show(["one", "x" * 50])  # which takes two rows
    screen.show(["two"])
    assert terminal.getvalue() == f"one\n{'x' * 50}\n\033[3A\033[Jtwo\n"


def test_lines_elsewhere_follow_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen()
    screen.show(["one"])
    screen.show(["two"])
    assert capsys.readouterr().out == "one\ntwo\n"
