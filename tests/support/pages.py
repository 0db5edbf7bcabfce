"""Commands of a page of the documentation, with what it says that they print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MARK = re.compile(r"<!-- walk: (?P<kind>stand-in|not run), (?P<why>.+) -->")
"""Before a fence: its commands meet a stand-in, or are not run, and why."""
_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[a-z]*)\n(?P<body>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Command:
    """A command as it is typed; `output` is what the page shows of it, None where it shows nothing."""

    text: str
    line: int
    mark: str
    """`stand-in`, `not run`, or empty for a command that is run as it is."""
    output: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class File:
    """A file that the page tells to write: a fence whose first line is a comment with its path."""

    path: str
    content: str
    line: int


def steps(page: Path) -> Iterator[Command | File]:
    """Yield commands and files in the page's order."""
    text = page.read_text(encoding="utf-8")
    for fence in _FENCE.finditer(text):
        line = text.count("\n", 0, fence.start()) + 2
        body = [part.removeprefix(fence["indent"]) for part in fence["body"].splitlines()]
        above = text[: fence.start()].rstrip("\n").rpartition("\n")[2].strip()
        mark = MARK.fullmatch(above)
        match fence["language"]:
            case "console":
                yield from _console(body, line, mark["kind"] if mark else "")
            case "sh":
                for number, written in enumerate(body, line):
                    if command := _without_comment(written):
                        yield Command(command, number, mark["kind"] if mark else "", None)
            case "yaml" if body and (named := re.fullmatch(r"# (\S+\.ya?ml)(?: .*)?", body[0])):
                yield File(named[1], "\n".join(body) + "\n", line)


def _console(body: list[str], first: int, mark: str) -> Iterator[Command]:
    begins = [number for number, line in enumerate(body) if line.startswith("$ ")]
    for begin, end in zip(begins, [*begins[1:], len(body)], strict=True):
        output = tuple(body[begin + 1 : end])
        command = _without_comment(body[begin].removeprefix("$ "))
        yield Command(command, first + begin, mark, output if any(output) else None)


def _without_comment(line: str) -> str:
    return re.sub(r"(^|\s+)#\s.*", "", line).strip()


def differences(expected: tuple[str, ...], printed: str) -> str:
    """Return the first difference between a page and what was printed; empty where there is none.

    `...` alone on a line stands for any lines, within one for any part of it. What differs from run to run is compared
    by its form: times, random ends of names, addresses on loopback.
    """
    lines = [_plain(line) for line in printed.splitlines()]
    at, skipping = 0, False
    for line in map(_plain, expected):
        if line == "...":
            skipping = True
            continue
        if not line:
            continue
        form = re.compile(".*".join(map(re.escape, line.split("..."))))
        while at < len(lines) and (not lines[at] or (skipping and not form.fullmatch(lines[at]))):
            at += 1
        if at == len(lines) or not form.fullmatch(lines[at]):
            return f"{line!r} is not printed there; printed is {lines[at] if at < len(lines) else 'the end'!r}"
        at, skipping = at + 1, False
    rest = [] if skipping else list(filter(None, lines[at:]))
    return f"the page ends before {rest[0]!r}, which is printed too" if rest else ""


_VARIES = (
    (re.compile(r"\b\d+(\.\d+)?(ms|s|m|h)(\d+s)?\b"), "TIME"),
    (re.compile(r"-[0-9a-z]{5,10}\b(?=\s|$|-runner-)"), "-RANDOM"),
    (re.compile(r"http://127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\s+"), " "),
)


def _plain(line: str) -> str:
    for pattern, form in _VARIES:
        line = pattern.sub(form, line)
    return line.strip()
