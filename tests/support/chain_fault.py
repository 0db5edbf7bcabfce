"""What a fault of the chain is: a change of a world at work, and the link that it breaks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from tests.support.chain_world import World, variant

Change = Callable[[World], None]


@dataclass(frozen=True)
class Fault:
    """A change, and what the chain must say of it."""

    name: str
    link: str
    runbook: str
    change: Change
    fleet: str = "dev"
    """Kind of fleet that it needs."""
    alone: bool = False
    """True where it changes what the walk is about, so that no other fault can stand beside it."""
    also: str = ""
    """Later link that is broken, too."""

    def world(self, at: datetime) -> World:
        """Return the world with the fault in it."""
        world = World(variant(self.fleet), at)
        self.change(world)
        return world


FAULTS: list[Fault] = []


def fault(
    link: str, runbook: str, fleet: str = "dev", *, alone: bool = False, also: str = ""
) -> Callable[[Change], Change]:
    """Add a change to the faults, under its own name."""

    def add(change: Change) -> Change:
        FAULTS.append(Fault(change.__name__, link, runbook, change, fleet, alone, also))
        return change

    return add
