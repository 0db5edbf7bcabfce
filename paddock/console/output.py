"""Output of the tasks: the console, JSON and files."""

from __future__ import annotations

import codecs
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from paddock import files
from paddock.errors import PaddockError, printable

if TYPE_CHECKING:
    from rich.console import Console


NARROWEST = 40
"""Columns below which nothing can be laid out: a terminal that reports fewer is not believed."""


PARSE_ONLY = "PADDOCK_PARSE_ONLY"
"""Variable by which `./inv` has a command line and its values read before it fetches gigabytes for its tasks."""


def work_begins() -> None:
    """End the program where only its command line was to be read: a command calls this when its values are good."""
    if os.environ.get(PARSE_ONLY):
        sys.exit(0)


class BadFlag(PaddockError):
    """A flag whose value is not valid."""

    exit_code = 2


def caller_path(path: str) -> Path:
    """Return a path as the user meant it: relative to where `./inv` was called, not to the project."""
    return Path(os.environ.get("PADDOCK_CWD", "."), path)


def optional_path(flag: str, path: str | None) -> Path | None:
    """`caller_path` of a flag that may be left out. Raises BadFlag for an empty one: a variable that nobody set."""
    if path == "":
        raise BadFlag(f"--{flag} is empty\n    expected: the name of a file\n    fix: name one, or leave --{flag} out")
    return None if path is None else caller_path(path)


_WRITABLE = "    fix: choose a file in a folder that exists and is yours"


class OutputError(PaddockError):
    """A file that was to be written cannot be."""

    exit_code = 2


def output_path(flag: str, path: str | None) -> Path | None:
    """`optional_path` of a file that a command will write. Raises BadFlag, and OutputError before any work is done."""
    chosen = optional_path(flag, path)
    if chosen is None:
        return None
    folder = chosen.parent
    reason = (
        f"there is no folder {folder}"
        if not folder.is_dir()
        else "it is a folder"
        if chosen.is_dir()
        else f"{folder} is not writable"
        if not os.access(folder, os.W_OK)
        else ""
    )
    if reason:
        raise OutputError(f"cannot write {chosen}: {reason}\n{_WRITABLE}")
    return chosen


def console(file: IO[str] | None = None) -> Console:
    """Console without any escape codes where the output is not a terminal or NO_COLOR is set.

    On a terminal only rich's own codes reach it: those in a text are printed as text.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            raise  # rich would end with 1, which says that the plan has errors

        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for segment in super().render(renderable, options):
                yield segment if segment.control else Segment(printable(segment.text), segment.style)

    file = file or sys.stdout
    terminal = file.isatty()
    plain = bool(os.environ.get("NO_COLOR")) or not terminal
    columns = os.environ.get("COLUMNS", "")
    width = None if terminal else int(columns) if columns.isdecimal() and int(columns) else 120
    result = _Console(file=file, color_system=None if plain else "auto", width=width, highlight=False)
    result.width = max(result.width, NARROWEST)
    return result


_PLAIN = str.maketrans(
    {
        **dict.fromkeys("─━", "-"), **dict.fromkeys("│┃", "|"), **dict.fromkeys("┌┐└┘├┤┬┴┼╭╮╰╯", "+"),
        **dict.fromkeys("█▇▆▅▄▃▂▁▏▎▍▌▋▊▉▓▒░", "#"), "…": "...", "→": "->", "≤": "<=", "≥": ">=", "·": ".", "✓": "+",
        "✔": "+", "✗": "x", "✘": "x",
    }
)  # fmt: skip
"""What stands for a character that a terminal lacks."""


def write_any_text() -> None:
    """Let the terminal take any text: what its encoding lacks comes in plainer characters, else as `?`."""

    def plainer(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        lacking = error.object[error.start : error.end].translate(_PLAIN)
        return lacking.encode("ascii", "replace").decode("ascii"), error.end

    codecs.register_error("paddock.plainer", plainer)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower().replace("-", "") != "utf8":
            stream.reconfigure(errors="paddock.plainer")


_STANDARD_OUTPUT = Path("-")
JSON_HELP = "print JSON and nothing else; with FILE write it there, and print the text"


@dataclass(frozen=True, slots=True)
class JsonOutput:
    """Destination of a command's JSON: none, standard output in place of the text, or a file besides the text."""

    path: Path | None = None

    @classmethod
    def parse(cls, value: str) -> JsonOutput:
        """Return the destination of a `--json` flag. Raises BadFlag and OutputError."""
        return PRINTED_JSON if value == str(_STANDARD_OUTPUT) else cls(output_path("json", value))

    @property
    def replaces_text(self) -> bool:
        return self.path == _STANDARD_OUTPUT

    def write(self, document: Mapping[str, Any]) -> None:
        """Write the document there, if anywhere. Raises OutputError."""
        if self.path is not None:
            self.write_text(f"{json.dumps(document, indent=2)}\n")

    def write_text(self, text: str) -> None:
        """Write JSON, or lines of it, there, if anywhere. Raises OutputError."""
        if self.replaces_text:
            sys.stdout.write(text)
        elif self.path is not None:
            write(self.path, text)


def say(json: JsonOutput, *lines: str) -> None:
    """Print lines of text at once, unless JSON is printed in their place."""
    if not json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)
        sys.stdout.flush()


NO_JSON = JsonOutput()
PRINTED_JSON = JsonOutput(_STANDARD_OUTPUT)


def write(path: Path, text: str) -> None:
    """Write a file whole or not at all. Raises OutputError."""
    try:
        files.write(path, text)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}\n{_WRITABLE}") from None


def update(path: Path, text: str) -> bool:
    """Write a file that has another text, and return whether it had. Raises OutputError."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return False
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}\n{_WRITABLE}") from None
    write(path, text)
    return True
