"""Help: the greeting, the list of tasks, the flags of a task, and all of it as a page of the documentation."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from inspect import getdoc
from typing import Any

from invoke.parser.argument import Argument
from invoke.tasks import Task

from paddock.duration import Seconds
from paddock.errors import did_you_mean, program
from paddock.gpu.parameter import Flag
from paddock.tasks import ALIASES, GROUPS, ON_A_NODE, PURPOSES, namespace
from paddock.terminal import NARROWEST

_WIDEST = 100
_NAMES = {int: "N", float: "NUMBER"}


def tasks() -> dict[str, Task[Any]]:
    """Return every task by name, without the second names."""
    return {name: namespace[name] for name in namespace.task_names if name not in ALIASES}


def groups() -> dict[str, list[str]]:
    """Return the names of the tasks that this installation has, under the heading of their group."""
    names, here = sorted(tasks()), is_checkout()
    return {
        title: chosen
        for title, rooms in GROUPS.items()
        if (chosen := [name for name in _in(rooms, names) if here or list(_in(ON_A_NODE, [name]))])
    }


def _in(rooms: Iterable[str], names: Iterable[str]) -> Iterable[str]:
    """Return the names that are of these rooms, in the order of the rooms."""
    return dict.fromkeys(name for room in rooms for name in names if name == room or name.startswith(f"{room}."))


def is_checkout() -> bool:
    """Report whether the Pulumi program is here: an installation on a node has only what works on a machine's GPUs."""
    return find_spec("infra") is not None


def other_names(name: str) -> list[str]:
    """Return the names that a task has beside this one."""
    own = ALIASES.get(name, name)
    names = [own, *namespace.task_names[own], *(alias for alias, task in ALIASES.items() if task == own)]
    return [other for other in names if other != name]


def greeting() -> str:
    """Return what the program says when it is called alone: what one can do, each with its first command."""
    first = {title: names[0] for title, names in groups().items() if title in PURPOSES}
    commands = {name: f"{program()} {usage(name).removesuffix(' [flags]')}" for name in first.values()}
    more = [
        (f"{program()} --list", "Show every task."),
        (f"{program()} TASK --help", "Show the flags of a task, with their defaults."),
    ]
    width = max(map(len, [*commands.values(), *(command for command, _ in more)]))
    lines = list(_wrapped("Paddock: GPU runners for GitHub Actions on your own AWS account, and GPUs of any machine."))
    for title, name in first.items():
        lines += ["", title, *_columns([(commands[name], summary(name))], width)]
    return "\n".join([*lines, "", *_columns(more, width)])


def listing(room: str = "") -> str:
    """Return every task with a line of help, or those of a room such as `lab`."""
    lines, width = [], max(map(len, tasks()))
    for title, names in groups().items():
        chosen = [name for name in names if not room or name.startswith(f"{room}.")]
        if chosen:
            rows = [(name, summary(name)) for name in chosen]
            lines += [title, *_columns(rows, width), ""]
    if not lines:
        return f"The tasks of {room} need a checkout."
    return "\n".join([*lines, f"{program()} TASK --help shows the flags of a task."])


def task_help(name: str) -> str:
    """Return how a task is called, what it does and its flags with their defaults."""
    lines = [f"{program()} {usage(name)}", "", *_wrapped(getdoc(namespace[name]) or "")]
    rows = flags(name)
    lines += ["", *_columns(rows)] if rows else []
    others = other_names(name)
    lines += ["", f"The same task: {', '.join(others)}."] if others else []
    return "\n".join(lines)


def usage(name: str) -> str:
    """Return the task with what it needs."""
    arguments = namespace[name].get_arguments()
    needed = [
        argument.names[0].upper() if argument.default is None else f"[{argument.names[0].upper()}]"
        for argument in arguments
        if argument.positional
    ]
    return " ".join([name, *needed, *(["[flags]"] if len(needed) < len(arguments) else [])])


def flags(name: str) -> list[tuple[str, str]]:
    """Return the flags of a task with the names of their values, each with its help and default."""
    task = namespace[name]
    declared = getattr(task, "flags", {})
    return [_row(argument, declared.get(argument.names[0], Flag(""))) for argument in task.get_arguments()]


def summary(name: str) -> str:
    """Return the line of help of a task."""
    return " ".join((getdoc(namespace[name]) or "").split("\n\n")[0].split())


def explain_unknown(word: str) -> str:
    """Return a hint for a word that is no task: those of the group that it names, or the nearest name."""
    if word in namespace.collections:
        return f"It is a group: {', '.join(name for name in sorted(tasks()) if name.startswith(f'{word}.'))}."
    near = did_you_mean(word, [*tasks(), *ALIASES])
    return f"{near[:1].upper()}{near[1:]}" if near else f"`{program()} --list` shows the tasks."


def _row(argument: Argument, flag: Flag) -> tuple[str, str]:
    """Return a flag with the name of its value, and its help with its default."""
    name, text = argument.names[0], argument.help or ""
    usual = flag.usual or (str(argument.default) if argument.default not in (None, "", [], False) else "")
    if usual and "by default" not in text:
        text += f" (default: {usual.removesuffix('.0')})"
    if argument.positional:
        return name.upper(), text
    if not argument.takes_value:
        return f"--{name}", text
    kind = "TIME" if issubclass(argument.kind, Seconds) else _NAMES.get(argument.kind, "VALUE")
    value = "[FILE]" if name == "json" else f"[{kind}]" if argument.optional else flag.metavar or kind
    return f"--{name} {value}", text


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
