"""`gpu.run`: run a program on GPUs that are its own until it ends."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.console.report import Report
from paddock.duration import Seconds
from paddock.gpu.commands.criteria import Criteria


@dataclass(frozen=True, kw_only=True)
class RunOptions(Criteria):
    """Parameters of `gpu.run`."""

    command: tuple[str, ...] = parameter(
        (), "the program and its arguments; no shell reads them", trailing=True, required=True, min_length=1
    )
    wait: float = parameter(0, "how long to wait for GPUs that others have", unit=Seconds, ge=0)
    priority: int = parameter(0, "place in the queue of those who wait: higher is served first", ge=-100, le=100)


@dataclass(frozen=True, kw_only=True)
class Ran(Report):
    """End of the program, whose output was the command's."""

    SCHEMA = 1
    code: int

    @property
    def exit_code(self) -> int:
        return self.code

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "exit_code": self.code}

    def text(self) -> Iterable[str]:
        return ()


@command(reports=False)
def run(parameters: RunOptions) -> Ran:
    """Run a program, which has this process's output. Raises NoneFree and GpuInputError; then nothing has run."""
    from paddock.gpu.leases.run import run

    code = run(parameters.command, parameters.request(), wait=parameters.wait, priority=parameters.priority)
    return Ran(code=code)
