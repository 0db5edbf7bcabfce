"""`init` with what reads a repository's ids at GitHub, which is of a room above it."""

from __future__ import annotations

from paddock.console.command import command
from paddock.console.report import Report
from paddock.init import command as first
from paddock.init.command import InitParameters


@command()
def init(parameters: InitParameters) -> Report | int:
    """Write the stack file of a first fleet. Raises what `paddock.init.command.init` raises."""
    from paddock.operate.credential import read_ids

    return first.init(parameters, read_ids)
