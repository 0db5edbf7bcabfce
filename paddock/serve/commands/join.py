"""`serve.join`: join this machine to a head."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.progress import progress
from paddock.console.report import Report
from paddock.serve.agents.home import Home
from paddock.serve.agents.ray_process import join as join_head
from paddock.serve.agents.this_machine import agent_name
from paddock.serve.commands.connection import own_report
from paddock.serve.errors import ServeInputError


@dataclass(frozen=True, kw_only=True)
class Join(Parameters):
    """Parameters of `serve.join`."""

    address: str = parameter(..., "the head's address, as serve.up prints it")
    token_file: Path | None = parameter(None, "the head's token, by default this user's own")
    name: str = parameter("", "name of the agent, by default the machine's")
    devices: Path | None = parameter(None, "rehearse: report this file's devices, and compute on the CPU")


@dataclass(frozen=True, kw_only=True)
class Joined(Report):
    """An agent that has joined."""

    SCHEMA = 1
    agent: str
    address: str
    broken: dict[str, str]

    def text(self) -> Iterator[str]:
        yield f"agent {self.agent} has joined {self.address}; serve.down ends it"


@command(checks_values_first=True)
def join(parameters: Join) -> Joined:
    """Join this machine to a head. Raises ServeError."""
    home = Home.of()
    host, _, port = parameters.address.rpartition(":")
    if not host or not port.isdecimal():
        raise ServeInputError(
            f"{parameters.address!r} is not an address\n    expected: HOST:PORT, as serve.up prints it"
        )
    name = agent_name(parameters.name or os.uname().nodename.partition(".")[0])
    token = home.token(parameters.token_file)
    with progress() as shown:
        report = own_report(parameters.devices, name, shown)
        shown.now(f"joining {parameters.address}")
        member = join_head(home, parameters.address, token=token, name=name, report=report)
    return Joined(agent=member.name, address=member.address, broken=dict(report.broken))
