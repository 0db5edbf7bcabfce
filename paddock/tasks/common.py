"""The task decorator, and the project's folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from inspect import Parameter, Signature
from pathlib import Path
from types import MappingProxyType
from typing import Any

from invoke import tasks
from invoke.context import Context
from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task

from paddock.gpu.parameter import Flag


class _Task(Task[Any]):
    flags: Mapping[str, Flag] = MappingProxyType({})
    """Flags by name, where they are those of parameters."""

    checks_values_first = False
    """Whether it calls `work_begins` once its values are read, and needs no more than `base` until then."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """Return the arguments, and keep the texts of help, which Invoke takes out as it reads them."""
        texts = dict(self.help)
        arguments: list[Argument] = super().get_arguments(ignore_unknown_help)
        self.help = texts
        return arguments


# One letter a flag would make `plan -h` mean --html, and move with every flag that is added.
task = partial(tasks.task, auto_shortflags=False, klass=_Task)

ROOT = Path(os.environ.get("PADDOCK_ROOT", ".")).resolve()
"""The project: where the stack files and the Pulumi program are."""


def task_of_flags(
    name: str,
    help: str,
    flags: Mapping[str, Flag],
    perform: Callable[[Context, dict[str, Any]], int],
    *,
    checks_values_first: bool = False,
) -> Task[Any]:
    """Make a task whose flags are those of parameters; `perform` gets their values and returns the exit code."""

    def run(c: Context, **values: Any) -> None:
        code = perform(c, {key: values[_argument(flag)] for key, flag in flags.items()})
        if code:
            raise Exit(code=code)

    run.__doc__ = help
    arguments = [
        Parameter(
            _argument(flag), Parameter.KEYWORD_ONLY, default=Parameter.empty if flag.default is ... else flag.default
        )
        for flag in flags.values()
    ]
    context = Parameter("c", Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = Signature([context, *arguments])  # type: ignore[attr-defined]  # what Invoke derives flags from
    decorate = task(
        name=name,
        help={flag.name: flag.help for flag in flags.values()},
        iterable=[_argument(flag) for flag in flags.values() if flag.iterable],
    )
    decorated: _Task = decorate(run)
    decorated.checks_values_first = checks_values_first
    decorated.flags = {flag.name: flag for flag in flags.values()}
    return decorated


def _argument(flag: Flag) -> str:
    """Return the name of the flag's Python argument, from which Invoke derives the flag."""
    name = flag.name.replace("-", "_")
    return f"{name}_" if name == "from" else name
