"""`runners.resume`: what a drain has kept is given back."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.console.command import command
from paddock.operate.parameters import Declined
from paddock.operate.runners import draining
from paddock.operate.runners.change import OfRunnersOrPool, change
from paddock.operate.runners.report import RunnersChanged


@dataclass(frozen=True, kw_only=True)
class Resume(OfRunnersOrPool):
    """Parameters of `runners.resume`."""


@command()
def resume(parameters: Resume) -> RunnersChanged | Declined:
    """Take jobs again after a drain. Raises FleetError, BadFlag, NoCluster, NotDrained and Refused."""
    return change("resume", parameters, draining.resume, draining.PARTS)
