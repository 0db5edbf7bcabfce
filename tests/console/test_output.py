"""Only escape codes of our own reach a terminal."""

from __future__ import annotations

import io

import pytest
from rich.table import Table
from rich.text import Text

from paddock.console import output as terminal
from paddock.errors import printable

HOSTILE = "a\x1b[2J\x00\u202eb\x9b31m"
VISIBLE = r"a\x1b[2J\x00\u202eb\x9b31m"


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_steers_a_terminal_is_printed_as_text() -> None:
    assert printable(HOSTILE) == VISIBLE
    assert printable("two\n\tlines, \u00e9\u4e2d\u2265\U0001f600") == "two\n\tlines, \u00e9\u4e2d\u2265\U0001f600"


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_terminal_gets_no_escape_codes_of_a_text(wrapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Screen()
    console = terminal.console(screen)
    table = Table(HOSTILE)
    table.add_row(Text(HOSTILE, "bold red"))
    console.print(table if wrapped else Text(HOSTILE, "bold red"))
    written = screen.getvalue()
    assert r"a\x1b[2J" in written
    assert "\x1b[1;31m" in written
    assert not any(code in written for code in ("\x1b[2J", "\x00", "\u202e", "\x9b"))
