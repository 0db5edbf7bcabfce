"""`serve.down`: end what serving started on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paddock.console.command import command
from paddock.console.output import work_begins
from paddock.console.parameters import NoParameters
from paddock.console.report import Report
from paddock.ray_labels import HEAD
from paddock.serve.agents.home import Home
from paddock.serve.agents.ray_process import stop, sweep
from paddock.serve.deployment.instances.registry import FILE


@dataclass(frozen=True, kw_only=True)
class Ended(Report):
    """The head and the agents that were ended, by name."""

    SCHEMA = 1
    ended: list[str]

    def text(self) -> Iterator[str]:
        yield from [f"ended {name}" for name in self.ended] or ["nothing runs here"]


@command(checks_values_first=True)
def down(parameters: NoParameters) -> Ended:
    """End the head and the agents that were started here, and forget the head's models. Raises ServeError."""
    home = Home.of()
    work_begins()
    members = sorted(home.members(), key=lambda member: member.name == HEAD)  # the head last
    for member in members:
        stop(home, member)
    sweep(home)
    (home.folder / FILE).unlink(missing_ok=True)  # also of a head that was killed
    return Ended(ended=[member.name for member in members])
