"""`runners.drain`: runners take no new job, while those that run go on."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.duration import Seconds
from paddock.operate.parameters import LONGEST_JOB, Declined
from paddock.operate.runners import draining
from paddock.operate.runners.change import OfRunnersOrPool, change
from paddock.operate.runners.report import RunnersChanged


@dataclass(frozen=True, kw_only=True)
class Drain(OfRunnersOrPool):
    """Parameters of `runners.drain`."""

    wait: bool = parameter(False, "wait until no runner is left")
    timeout: float = parameter(LONGEST_JOB, "for --wait, by default GitHub's own limit of a job", unit=Seconds, gt=0)


@command()
def drain(parameters: Drain) -> RunnersChanged | Declined:
    """Let runners take no new job. Raises FleetError, BadFlag, NoCluster and Refused."""
    wait = parameters.timeout if parameters.wait else None
    return change("drain", parameters, draining.drain, draining.PARTS, wait=wait)
