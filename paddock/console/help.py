"""Help: the greeting, the list of commands, and the flags of one."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator

from paddock.console.command import Entry
from paddock.console.contents import Contents
from paddock.console.output import JSON_HELP, NARROWEST, BadFlag
from paddock.console.parser import usage
from paddock.errors import program

_WIDEST = 100


def greeting(contents: Contents) -> str:
    """Return what the program says when it is called alone: what one can do, each with its first command."""
    first = {title: entries[0] for title, entries in contents.groups().items() if ":" in title}
    commands = {
        title: f"{program()} {usage(entry.name, entry.load()).removesuffix(' [flags]')}"
        for title, entry in first.items()
    }
    more = [
        (f"{program()} --list", "Show every command."),
        (f"{program()} COMMAND --help", "Show the flags of a command, with their defaults."),
    ]
    width = max(map(len, [*commands.values(), *(command for command, _ in more)]))
    lines = list(_wrapped("Paddock: GPU runners for GitHub Actions on your own AWS account, and GPUs of any machine."))
    for title, entry in first.items():
        lines += ["", title, *_columns([(commands[title], entry.summary)], width)]
    return "\n".join([*lines, "", *_columns(more, width)])


def listing(contents: Contents, room: str = "") -> str:
    """Return every command with a line of help, or those of a group such as `lab`. Raises BadFlag."""
    if found := contents.find(room):
        room = found[0].name
    elif room and not contents.members(room):
        raise BadFlag(f"no command or group is called {room!r}\n    fix: {contents.explain(room)}")
    lines: list[str] = []
    width = max(len(entry.name) for entry in contents.entries.values() if not entry.hidden)
    for title, entries in contents.groups(hidden=bool(room)).items():
        rows = [
            (entry.name, entry.summary)
            for entry in entries
            if room in ("", entry.name) or entry.name.startswith(f"{room}.")
        ]
        if rows:
            lines += [title, *_columns(rows, width)]
    if not lines:
        return f"The commands of {room} need a checkout."
    return "\n".join([*lines, "", f"{program()} COMMAND --help shows the flags of a command."])


def about(contents: Contents, word: str) -> str:
    """Return the help of a command, the list of a group, and both of a word that is both. Raises BadFlag."""
    found, members = contents.find(word), contents.members(word)
    parts = [command_help(contents, found[0])] if found else []
    return "\n\n".join([*parts, *([listing(contents, word)] if members or not found else [])])


def command_help(contents: Contents, entry: Entry) -> str:
    """Return how a command is called, what it does and its flags with their defaults."""
    lines = [f"{program()} {usage(entry.name, entry.load())}", "", *_wrapped(entry.help)]
    rows = flags(entry)
    lines += ["", *_columns(rows)] if rows else []
    lines += [
        line for alias in contents.aliases_of(entry.name) for line in ("", f"{alias} is {contents.aliases[alias]}.")
    ]
    return "\n".join(lines)


def flags(entry: Entry) -> list[tuple[str, str]]:
    """Return the flags of a command with the names of their values, each with its help and default."""
    command = entry.load()
    rows = []
    for flag in sorted(command.parameters.flags(), key=lambda flag: not flag.positional):
        name = flag.flag.name
        shown = name.upper() if flag.positional else f"-- {name.upper()}" if flag.trailing else flag.option
        rows.append((shown if flag.positional or flag.trailing else f"{shown} {flag.metavar}".rstrip(), flag.about()))
    return [*rows, *([("--json [FILE]", JSON_HELP)] if command.reports else [])]


def _columns(rows: Iterable[tuple[str, str]], least: int = 0) -> Iterator[str]:
    """Yield lines of two columns, the second broken between words."""
    listed = list(rows)
    width = max(least, *(len(left) for left, _ in listed)) + 2
    for left, right in listed:
        for line in textwrap.wrap(right, max(20, _width() - width - 2)) or [""]:
            yield f"  {left:{width}}{line}".rstrip()
            left = ""


def _wrapped(text: str) -> Iterator[str]:
    for paragraph in text.split("\n\n"):
        yield from textwrap.wrap(" ".join(paragraph.split()), _width())


def _width() -> int:
    return min(max(shutil.get_terminal_size().columns, NARROWEST), _WIDEST)
