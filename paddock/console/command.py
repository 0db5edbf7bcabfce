"""Commands: a set of parameters, and a function of it that returns a report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeVar

from paddock import process
from paddock.console.output import OutputError
from paddock.console.parameters import Parameters
from paddock.console.report import Report
from paddock.errors import PaddockError, printable

_Function = TypeVar("_Function", bound=Callable[[Any], "Report | int"])


@dataclass(frozen=True, slots=True)
class Entry:
    """A line in the table of commands."""

    name: str
    where: str
    """Module and function."""
    help: str
    group: str
    hidden: bool = False

    @property
    def summary(self) -> str:
        """The first sentence of the help."""
        first, point, _ = self.help.partition(". ")
        return f"{first}{point}".rstrip()

    def load(self) -> Command:
        """Import the command."""
        module, _, name = self.where.partition(":")
        found: Command = getattr(import_module(module), name).command
        return found


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its parameters, and the function that performs it and returns a report, or an exit code.

    One that returns a code has printed by itself, as it goes.
    """

    parameters: type[Parameters]
    function: Callable[[Any], Report | int]
    reports: bool = True
    """Whether it has `--json`."""
    checks_values_first: bool = False
    """Whether it calls `work_begins` once its values are read, and needs no more than `base` until then."""


def command(*, reports: bool = True, checks_values_first: bool = False) -> Callable[[_Function], _Function]:
    """Make a function of one set of parameters a command."""

    def decorate(function: _Function) -> _Function:
        kind = function.__globals__[next(iter(function.__annotations__.values()))]  # annotations are text
        function.command = Command(kind, function, reports, checks_values_first)  # type: ignore[attr-defined]  # read by Entry.load
        return function

    return decorate


def perform(command: Command, parameters: Parameters) -> int:
    """Perform a command, print its report and return the exit code. Raises what the command raises."""
    with _error_document(parameters), _named_flags(command), process.sigterm_as_interrupt():
        report = command.function(parameters)
    if isinstance(report, int):
        return report
    if parameters.json.path is not None:
        parameters.json.write(report.document())
    if not parameters.json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in report.text())
        sys.stderr.writelines(f"{printable(line)}\n" for line in report.notes())
    return report.exit_code


@contextmanager
def _error_document(parameters: Parameters) -> Iterator[None]:
    """Write `{"error": ...}` as the document of a command that fails, and let the error go on.

    An error with a `document` adds its keys.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError | OutputError):
            parameters.json.write({"error": str(error), **getattr(error, "document", {})})
        raise


@contextmanager
def _named_flags(command: Command) -> Iterator[None]:
    """Let an error whose `parameter` names one name its flag: nobody who typed `--gpus 0` has written a `count`."""
    try:
        yield
    except PaddockError as error:
        names = {flag.name: flag.option for flag in command.parameters.flags()}
        if (name := getattr(error, "parameter", "")) in names:
            raise error.named(names[name]) from None  # type: ignore[attr-defined]  # what has a parameter has it
        raise
