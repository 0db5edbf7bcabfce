"""Cost of a period from the bill, the plan's estimate and the use of GPUs. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, date, datetime

from paddock.fleet import Fleet, Stack
from paddock.operate.cost import bill as bills
from paddock.operate.cost.bill import ACTIVATE, FLEET_TAG, METRIC, NAME_TAG, REQUEST_USD, Charge, Reading
from paddock.operate.cost.changes import changes
from paddock.operate.cost.jobs import job_use, why_unknown
from paddock.operate.cost.kinds import left_out, parts
from paddock.operate.cost.report import Bill, Cost, Line, Part, Pool
from paddock.operate.cost.usage import Usage
from paddock.operate.cost.waste import covers, metrics, utilisation, waste, workflows
from paddock.plan.cost.estimate import Cost as Estimate
from paddock.plan.cost.money import HOURS_A_MONTH, Money
from paddock.plan.cost.nodes import PoolCost
from paddock.plan.cost.rightsizing import RightSize

_NO_NODES = "the stack buys no nodes in AWS: the owner of the cluster pays for them"


def cost(
    stack: Stack,
    estimate: Estimate,
    sized: Sequence[RightSize],
    reading: Reading | None,
    usage: Usage | None,
    lost: float | str,
    start: date,
    end: date,
) -> Cost:
    """Return the report. `reading` is None for a stack that buys nothing, `usage` where no Prometheus was named.

    `lost`: GPU-hours of interrupted jobs, or why they are not known.
    """
    fleet, days = stack.fleet, (end - start).days
    hours = days * 24.0
    charges = {pool: _charges(reading, f"{fleet.name}-{pool}") for pool in fleet.pools}
    reason = _why_pools_unknown(reading)
    pools = tuple(_pool(pool_cost, estimate, charges[pool_cost.pool], hours, reason) for pool_cost in estimate.pools)
    whole = _bill(reading)
    own = [charge for charged in charges.values() for charge in charged or ()]
    rest = None if whole.usd is None or reason else whole.usd - sum(charge.usd for charge in own)
    elsewhere = [charge for charge in reading.charges if charge not in own] if reading else []
    one_pool = pools[0].actual_usd if len(pools) == 1 and covers(usage, days) else None
    jobs = job_use(fleet, usage, charges, whole=covers(usage, days))
    return Cost(
        stack=stack.name,
        fleet=fleet.name,
        region=fleet.region,
        at=datetime.now(UTC),
        start=start,
        end=end,
        days=days,
        bill=whole,
        pools=pools,
        rest=_line("all else", estimate.fixed_total, hours, rest, reason),
        total=_line("total", estimate.month.expected, hours, whole.usd, whole.unknown),
        parts=tuple(_parts(fleet, charges, elsewhere, reading)),
        left_out=tuple(left_out(fleet.name, reading)) if reading else (),
        left_out_unknown=str(reading.records_error or "") if reading else "",
        changes=changes(fleet, estimate, sized, charges, hours),
        waste=tuple(waste(fleet, usage, one_pool, jobs, lost)),
        utilisation=tuple(utilisation(usage)),
        workflows=workflows(usage, one_pool, jobs),
        jobs=jobs,
        jobs_unknown="" if jobs else next(why_unknown(usage), ""),
        metrics=metrics(usage),
        remarks=tuple(_notes(estimate, reading)),
    )


def _parts(
    fleet: Fleet, charges: Mapping[str, Sequence[Charge] | None], elsewhere: Sequence[Charge], reading: Reading | None
) -> Iterator[Part]:
    """Yield the parts of every pool, and those of all else."""
    if reading is None:
        return
    known = reading.records_error is None
    names = {f"{fleet.name}-{pool}": pool for pool in fleet.pools}
    for name, pool in names.items():
        covered = [charge for charge in reading.covered if charge.name == name]
        yield from parts(pool, charges[pool] or (), covered, known=known)
    covered = [charge for charge in reading.covered if charge.name not in names]
    yield from parts("all" if _why_pools_unknown(reading) else "all else", elsewhere, covered, known=known)


def _charges(reading: Reading | None, name: str) -> tuple[Charge, ...] | None:
    """Return the charges of what carries a name, None where names are not known."""
    return None if reading is None or _why_pools_unknown(reading) else reading.of(name)


def _why_pools_unknown(reading: Reading | None) -> str:
    if reading is None:
        return _NO_NODES
    if reading.error:
        return str(reading.error)
    if not reading.charges:
        return f"no charge in the bill for these days has {FLEET_TAG}"
    if not any(charge.name for charge in reading.charges):
        return f"no charge in the bill for these days has {NAME_TAG}"
    return ""


def _bill(reading: Reading | None) -> Bill:
    error = reading.error if reading else None
    charges = reading.charges if reading and error is None else ()
    unknown = _why_pools_unknown(reading)
    fix = "" if reading is None else f"{ACTIVATE}   # in the account that pays; counts from the next day"
    requests = reading.requests if reading else 0
    return Bill(
        usd=_sum(charge.usd for charge in charges) if charges else None,
        net_usd=_sum(charge.net for charge in charges) if charges else None,
        unblended_usd=_sum(charge.unblended for charge in charges) if charges else None,
        estimated=reading.estimated if reading else False,
        metric=METRIC,
        source=f"ce:GetCostAndUsage, daily, by {NAME_TAG} and usage type of what carries {FLEET_TAG}",
        requests=requests,
        requests_usd=round(requests * REQUEST_USD, 2),
        unknown=unknown,
        fix=(error.fix if error else fix) if unknown else "",
        permission=error.permission if error else "",
        failed=error is not None,
    )


def _sum(amounts: Iterable[float]) -> float:
    return round(sum(amounts), 2)


def _line(name: str, month: Money, hours: float, actual: float | None, unknown: str) -> Line:
    estimate = _of_period(month, hours)
    return Line(
        name=name,
        estimate_usd=estimate,
        estimate_as_of=month.as_of,
        actual_usd=None if actual is None else round(actual, 2),
        ratio=_ratio(actual, estimate),
        unknown=unknown if actual is None else "",
    )


def _of_period(month: Money, hours: float) -> float | None:
    return None if month.value is None else round(month.value * hours / HOURS_A_MONTH, 2)


def _ratio(actual: float | None, estimate: float | None) -> float | None:
    return round(actual / estimate, 3) if actual is not None and estimate else None


def _pool(pool_cost: PoolCost, estimate: Estimate, charges: Sequence[Charge] | None, hours: float, reason: str) -> Pool:
    actual = None if charges is None else sum(charge.usd for charge in charges)
    line = _line(pool_cost.pool, estimate.pool_months[pool_cost.pool].expected, hours, actual, reason)
    instances = [charge for charge in charges or () if charge.instance]
    node_hours = None if charges is None else sum(charge.quantity for charge in instances)
    paid = sum(charge.usd for charge in instances)
    return Pool(
        **vars(line),
        node_hours=None if node_hours is None else round(node_hours, 2),
        estimate_node_hour=pool_cost.offers[0].instance_hour.value if pool_cost.offers else None,
        actual_node_hour=round(paid / node_hours, 4) if node_hours else None,
    )


def _notes(estimate: Estimate, reading: Reading | None) -> Iterator[str]:
    if reading is not None:
        yield (
            "Cost Explorer shows a day up to 24 hours late, and AWS changes a month's days until its invoice; "
            "tags count from the day on which they were activated as cost allocation tags"
        )
        yield (
            f"{bills.METRIC}: use that a Savings Plan or a reservation covers has its price there, and upfront "
            "payments are spread over their days; the part of a plan that nobody used is in no fleet's bill, and the "
            "estimate has no taxes, support or data transfer"
        )
        yield (
            "not in the bill, though of the fleet: what AWS or a controller made without the fleet's tag (volumes and "
            "snapshots of claims, load balancers, log groups that EKS makes) and traffic that AWS books on no resource "
            "with it (between zones, through a NAT gateway of somebody else)"
        )
    yield "each change is estimated on its own: their effects do not add up"
    if estimate.missing:
        yield f"estimates leave out what the catalogue has no price of: {', '.join(estimate.missing)}"
    use = next((line for line in estimate.assumptions if line.startswith("expected: ")), "")
    day = estimate.month.expected.as_of
    yield f"estimate: the plan's month over {HOURS_A_MONTH} hours, its oldest price of {day or 'an unknown day'}; {use}"
