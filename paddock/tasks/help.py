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
from paddock.terminal import NARROWEST, BadFlag

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
    names = _names()
    return [other for other, own in names.items() if own == names[name] and other != name]


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
    """Return every task with a line of help, or those of a room such as `lab`. Raises BadFlag."""
    if room and not is_group(room) and room not in namespace.task_names:
        raise BadFlag(f"No idea what {room!r} is! {explain_unknown(room)}")
    lines, width = [], max(map(len, tasks()))
    for title, names in groups().items():
        chosen = [name for name in names if room in ("", name) or name.startswith(f"{room}.")]
        if chosen:
            rows = [(name, " ".join([summary(name), *_also(name)])) for name in chosen]
            lines += [title, *_columns(rows, width), ""]
    if not lines:
        return f"The tasks of {room} need a checkout."
    return "\n".join([*lines, f"{program()} TASK --help shows the flags of a task."])


def about(word: str) -> str:
    """Return the help of a task, the list of a group, and both of a word that is both. Raises BadFlag."""
    if is_group(word) and not is_bare_group(word):
        return f"{task_help(word)}\n\n{listing(word)}"
    if is_group(word) or word not in _names():
        return listing(word)
    return task_help(word)


def is_group(word: str) -> bool:
    """Report whether tasks have the word before a dot."""
    return word in namespace.collections


def is_bare_group(word: str) -> bool:
    """Report whether the word is a group and not a task beside, as `bench` is."""
    return is_group(word) and namespace.collections[word].default is None


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
    """Return a hint for a word that is neither task nor group: the nearest name."""
    return _capital(did_you_mean(word, _names(), f"`{program()} --list` shows the tasks."))


def explain_group(group: str, words: Iterable[str]) -> str:
    """Return a hint for a group that stands where a task should, before these words."""
    members = [name for name in sorted(tasks()) if name.startswith(f"{group}.")]
    near = next((hint for word in words if (hint := did_you_mean(f"{group}.{word}", members))), "")
    return _capital(near) or f"It is a group: {', '.join(members)}."


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _names() -> dict[str, str]:
    """Return every name of a task, with the first of the task's."""
    return {name: own for own, others in namespace.task_names.items() for name in (own, *others)} | ALIASES


def _also(name: str) -> Iterator[str]:
    if others := other_names(name):
        yield f"Also: {', '.join(others)}."


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
