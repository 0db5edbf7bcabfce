"""`cost`: what AWS charged for a fleet, compared with the plan's estimate."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, timedelta

from paddock import clock
from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import parameter
from paddock.console.project import OfStack, root
from paddock.errors import printable
from paddock.fleet import load
from paddock.operate.cost import bill, usage
from paddock.operate.cost.compute import cost as computed
from paddock.operate.cost.report import Cost
from paddock.operate.cost.waste import lost_hours
from paddock.operate.sources import interruptions
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.prometheus import PrometheusReader, check_url
from paddock.operate.sources.unavailable import Unavailable
from paddock.plan import fit
from paddock.plan.cost.estimate import estimate
from paddock.plan.cost.rightsizing import right_size
from paddock.plan.serving.fit import served_fits

_MOST_DAYS = 365
"""Cost Explorer keeps the days of 14 months."""


@dataclass(frozen=True, kw_only=True)
class ShowCost(OfStack):
    """Parameters of `cost`."""

    days: int = parameter(7, f"whole days until today, in UTC: 1 to {_MOST_DAYS}", ge=1, le=_MOST_DAYS)
    prometheus: str = parameter("", "the address of the Prometheus that reads the fleet, for waste and workflows")


@command()
def cost(parameters: ShowCost) -> Cost:
    """Return what a fleet cost in whole days until today. Raises FleetError and BadFlag."""
    # It plans the stack, for which `base` does not have the SDK.
    from paddock.plan.engine.program import plan_graph

    days, prometheus = parameters.days, parameters.prometheus
    if days > _MOST_DAYS:
        raise BadFlag(f"--days is {days}\n    expected: 1 to {_MOST_DAYS}\n    fix: leave it out for a week")
    if prometheus and (problem := check_url(prometheus)):
        shown = "" if "credential" in problem else f" {printable(prometheus)}"
        raise BadFlag(
            f"--prometheus{shown}: {problem}\n    expected: an address such as http://localhost:9090"
            "\n    fix: kubectl port-forward to the service, and http://localhost:9090"
        )
    stack = load(root(), parameters.stack)
    fleet, end = stack.fleet, clock.today()
    start = end - timedelta(days=days)
    owns = fleet.owns_nodes and fleet.holds("cluster")
    return computed(
        stack,
        estimate(fleet, plan_graph(stack), fit.fit(fleet), served_fits(fleet), today=end),
        right_size(fleet),
        bill.read(AwsReader(fleet.region), fleet, start, end) if owns else None,
        usage.read(PrometheusReader(prometheus), end, days) if prometheus else None,
        _lost(stack.name, start, end),
        start,
        end,
    )


def _lost(stack: str, start: date, end: date) -> float | str:
    """Return the GPU-hours of interrupted jobs that this machine's record has, or why they are not known."""
    try:
        return lost_hours(interruptions.read(stack), start, end)
    except Unavailable as error:
        return str(error)
