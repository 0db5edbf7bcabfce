"""Command lines of GPU actions: their flags, and how they are read without Invoke."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from paddock.gpu.actions.registry import ACTIONS, Action
from paddock.gpu.parameter import JSON, Flag
from paddock.terminal import JsonOutput, optional_path


def run(words: Sequence[str]) -> int | None:
    """Perform the GPU action of a command line that is complete and correct, and return its exit code.

    None where it is another task, asks for help or has a mistake: the parser of all tasks takes it from there, and
    explains. Raises GpuError, and BadFlag for an empty path.
    """
    action = _action(words)
    if action is None:
        return None
    end = words.index("--") if "--" in words else len(words)
    values = _values(flags(action), words[1:end])
    return None if values is None else perform(action, values, words[end + 1 :])


def expand(words: Sequence[str]) -> list[str]:
    """Give the bare words behind an action to its flag for them: Invoke has no argument that may be left out."""
    action = _action(words)
    if action is None or not action.words:
        return list(words)
    switches = {f"--{flag.name}" for flag in flags(action).values() if isinstance(flag.default, bool)}
    result, bare, rest = [words[0]], [], iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            bare.append(word)
            continue
        result.append(word)
        if "=" not in word and word not in {*switches, "--help", "-h"}:
            result += islice(rest, 1)
    return [*result, *([f"--{action.words}={','.join(bare)}"] if bare else [])]


def _action(words: Sequence[str]) -> Action | None:
    collection, _, name = words[0].partition(".") if words else ("", "", "")
    return ACTIONS.get(name) if collection == "gpu" else None


def flags(action: Action) -> dict[str, Flag]:
    """Return the flags by name of parameter, with `source` and `json` where the action has them."""
    all_flags = {name: flag for name, _, flag in action.parameters.flags()}
    if action.saved:
        all_flags["source"] = Flag("from", default=None, help=action.saved)
    if not action.separate:
        all_flags["json"] = JSON
    return all_flags


def perform(action: Action, values: Mapping[str, Any], command: Sequence[str] = ()) -> int:
    """Perform an action with a value for every flag. Raises GpuError, and BadFlag for an empty path."""
    from paddock.gpu.cli import program

    paths = {name for name, kind, _ in action.parameters.flags() if kind.startswith("Path")}
    names = {name: flag.name for name, flag in flags(action).items() if name in {*paths, "source"}}
    chosen = {**values, **{name: optional_path(flag, values[name]) for name, flag in names.items()}}
    source, json = chosen.pop("source", None), JsonOutput.parse(chosen.pop("json", None))
    return program.perform(action, chosen, source=source, json=json, command=command if action.separate else ())


def _values(known: Mapping[str, Flag], words: Sequence[str]) -> dict[str, Any] | None:
    """Return a value for every flag by name of parameter, None where the words are not plainly flags with values."""
    by_flag = {f"--{flag.name}": name for name, flag in known.items()}
    required = [name for name, flag in known.items() if flag.default is ...]
    values: dict[str, Any] = {
        name: [] if flag.iterable else flag.default for name, flag in known.items() if flag.default is not ...
    }
    rest = list(words)
    while rest:
        word, separator, text = rest.pop(0).partition("=")
        if not word.startswith("-"):
            missing = [name for name in required if name not in values]
            if not missing:
                return None
            values[missing[0]] = word + separator + text
            continue
        name = by_flag.pop(word, None)
        if name is None or (name in required and name in values):
            return None
        default = known[name].default
        if isinstance(default, bool):
            if separator:
                return None
            values[name] = not default
            continue
        if not separator:
            if not rest or rest[0].startswith("-"):
                return None
            text = rest.pop(0)
        try:
            value = type(default)(text) if isinstance(default, int | float) else text
        except ValueError:
            return None
        if known[name].iterable:
            by_flag[word] = name
            values[name].append(value)
        else:
            values[name] = value
    return values if all(name in values for name in required) else None
