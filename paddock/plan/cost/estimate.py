"""Cost of a fleet: fixed by the month, by the hour a pool, by the job a runner, and a month of stated use.

Every amount carries its source and date. A price that the catalogue does not have is missing by name and makes the sum
a lower bound; it is never taken for zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from paddock.fleet import Fleet
from paddock.fleet.model.runner import Runner, occurrences
from paddock.fleet.sizing.alike import kind_of
from paddock.plan.cost import fixed as cost_fixed
from paddock.plan.cost import nodes as cost_nodes
from paddock.plan.cost.fixed import Line
from paddock.plan.cost.money import HOURS_A_MONTH, Money, least, total
from paddock.plan.cost.nodes import PoolCost, Range, RunnerCost
from paddock.plan.cost.priced_types import Entry, census
from paddock.plan.cost.serving import ServedCost, served_costs
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.resource_types import NODE_GROUP
from paddock.plan.finding import Finding
from paddock.plan.fit import Fit, by_runner
from paddock.plan.serving.fit import ServedFit

IMAGE_GB = 10.0
"""Compressed size of a CUDA image with a framework, where none is stated: those of PyTorch and vLLM are 8 to 12 GB."""
WORKING_HOURS = 40 * 52 / 12
"""Hours a month that people work, and start jobs."""
BUSY_SHARE = 0.5
"""Of all runners, on average over working hours, where no number of jobs is stated."""
COLD_SHARE = 0.3
"""Jobs that wait for a new node: 17 % when they come singly, 58 % when one push starts many (idle nodes kept 5 min)."""

_START = datetime(2026, 6, 1, tzinfo=UTC)
_END = _START + timedelta(days=28)
_NOTHING = Range(*(Money(0.0, "USD/month"),) * 3)
_TYPICAL = "of the pool's first type and way to buy"


@dataclass(frozen=True, slots=True)
class Cost:
    """All amounts of one fleet. `month` is low, expected and high of the use that `assumptions` state."""

    region: str
    fixed: tuple[Line, ...]
    fixed_total: Money
    by_use: tuple[Line, ...]
    pools: tuple[PoolCost, ...]
    runners: tuple[RunnerCost, ...]
    served: tuple[ServedCost, ...]
    month: Range
    pool_months: Mapping[str, Range]
    """Part of `month` that each pool costs. `low` is what it costs without a job."""
    runner_months: Mapping[str, Money]
    """Part of `month.expected` that each runner's jobs cost."""
    jobs: Mapping[str, float]
    """Jobs a month that `month.expected` counts, by runner."""
    assumptions: tuple[str, ...]
    census: tuple[Entry, ...]

    @property
    def counts(self) -> dict[str, int]:
        """Resources by kind: priced, free, unpriced."""
        by_kind = {"priced": 0, "free": 0, "unpriced": 0}
        for entry in self.census:
            by_kind[entry.kind] += entry.count
        return by_kind

    @property
    def missing(self) -> tuple[str, ...]:
        """Names of the prices that the catalogue lacks."""
        lines = [line.price for line in self.fixed]
        offers = [offer for pool in self.pools for offer in pool.offers]
        ranges = [amount for offer in offers for amount in (offer.instance_hour, offer.volume_hour)]
        return tuple(dict.fromkeys(name for amount in [*lines, *ranges] for name in amount.missing))


def estimate(
    fleet: Fleet,
    graph: Graph,
    fits: tuple[Fit, ...],
    served_fits: tuple[ServedFit, ...] = (),
    *,
    job_minutes: float = 30,
    jobs_per_month: Mapping[str, float] | float | None = None,
    image_gb: float = IMAGE_GB,
    today: date | None = None,
) -> Cost:
    """Estimate the cost. `jobs_per_month` is by runner, or the same for all; `today` decides on extended support."""
    lines = cost_fixed.lines(fleet, graph, today)
    fixed_total = _mostly_known(total((line.monthly for line in lines), "USD/month"), [line.price for line in lines])
    fixed_most = total((fixed_total, cost_fixed.more_system_nodes(fleet, lines)), "USD/month")
    pools = tuple(cost_nodes.pool_cost(fleet, pool) for pool in fleet.pools.values())
    idle_seconds = cost_nodes.idle_seconds(graph)
    idle = idle_seconds if idle_seconds is not None else 0.0
    offers, fits_by_runner = {pool.pool: pool.offers for pool in pools}, by_runner(fits)

    def cost_of(runner: Runner) -> RunnerCost:
        runner_fits = fits_by_runner.get(runner.name, ())
        return cost_nodes.runner_cost(fleet, runner, offers[runner.pool], runner_fits, job_minutes, image_gb, idle)

    runners = tuple(_runner_costs(fleet, cost_of))
    served = served_costs(fleet, offers, served_fits)
    stated_jobs = _stated_jobs(fleet, jobs_per_month)
    jobs = stated_jobs if stated_jobs is not None else _assumed(fleet, job_minutes)
    buys_nodes = fleet.owns_nodes and fleet.holds("cluster")
    runner_months = {cost.runner: _jobs_month(cost, jobs[cost.runner] if buys_nodes else 0.0) for cost in runners}
    pool_months = {
        pool.name: _pool_month(fleet, cost, runners, runner_months, stated_jobs, served) if buys_nodes else _NOTHING
        for pool, cost in zip(fleet.pools.values(), pools, strict=True)
    }
    return Cost(
        region=fleet.region,
        fixed=lines,
        fixed_total=fixed_total,
        by_use=cost_fixed.by_use(fleet, graph),
        pools=pools,
        runners=runners,
        served=served,
        month=_month(Range(fixed_total, fixed_total, fixed_most), pools, pool_months),
        pool_months=pool_months,
        runner_months=runner_months,
        jobs=jobs,
        assumptions=tuple(_assumptions(job_minutes, image_gb, idle_seconds, stated_jobs is not None, served)),
        census=census(graph, _left_out(fleet, graph, lines, pools)),
    )


def findings(cost: Cost) -> tuple[Finding, ...]:
    """Prices that are not known: the estimate is then the least that will be paid."""
    if not cost.missing:
        return ()
    names = ", ".join(cost.missing[:5]) + (f" and {len(cost.missing) - 5} more" if len(cost.missing) > 5 else "")
    offers = [offer for pool in cost.pools for offer in pool.offers]
    nothing = bool(offers) and not any(offer.instance_hour.complete for offer in offers)
    refreshable = any("Capacity Block" not in name for name in cost.missing)
    count = len(cost.missing)
    return (
        Finding(
            "CST001",
            "warning" if nothing else "info",
            "region",
            f"{'one price is' if count == 1 else f'{count} prices are'} not known, so amounts are the least that will "
            f"be paid: {names}",
            f"./inv catalog.refresh --region {cost.region}" if refreshable else "",
        ),
    )


def _pool_month(
    fleet: Fleet,
    pool: PoolCost,
    runners: Sequence[RunnerCost],
    runner_months: Mapping[str, Money],
    stated_jobs: Mapping[str, float] | None,
    served: Sequence[ServedCost],
) -> Range:
    """Return what a pool costs a month: what always runs, and the jobs of its runners.

    The fewest replicas of a served model always run, on the first of its pools.
    """
    runners = [cost for cost in runners if cost.pool == pool.pool]
    idle = [mean_idle(fleet.runners[cost.runner]) * HOURS_A_MONTH for cost in runners]
    first = [cost.idle_month for cost, model in zip(served, fleet.served, strict=True) if model.pools[0] == pool.pool]
    waiting = [cost.per_hour.times(hours) for cost, hours in zip(runners, idle, strict=True)]
    floor = _floor(pool.at_min, [*waiting, *first])
    low, high = [floor.low], [pool.at_max.high.times(HOURS_A_MONTH)]
    expected = [floor.expected, *(runner_months[cost.runner] for cost in runners)]
    if stated_jobs is not None:
        low += [cost.job.warm.low.times(stated_jobs[cost.runner]) for cost in runners]
        high = [floor.high, *(cost.job.alone.high.times(stated_jobs[cost.runner]) for cost in runners)]
    return Range(*map(_known, (low, expected, high)))


def _known(amounts: Sequence[Money]) -> Money:
    """Return a sum; unknown where nothing but zeros is known of it."""
    amount = total(amounts, "USD/month")
    return amount if amount.value or not amount.missing else replace(amount, value=None)


def _month(fixed: Range, pools: Sequence[PoolCost], pool_months: Mapping[str, Range]) -> Range:
    month = _sum([fixed, *pool_months.values()])
    nodes = [least(offer.instance_hour for offer in pool.offers) for pool in pools]
    main = [fixed.low, *(price for price in nodes if price)]
    low = month.low if fixed.low.value is not None else replace(month.low, value=None)
    return Range(low, _mostly_known(month.expected, main), _mostly_known(month.high, main))


def _mostly_known(amount: Money, parts: Sequence[Money]) -> Money:
    """Return an amount, unknown where half of its parts have no price: a sum of the others would pass for the whole."""
    unpriced = sum(part.value is None for part in parts)
    return replace(amount, value=None) if unpriced and 2 * unpriced >= len(parts) else amount


def _jobs_month(cost: RunnerCost, jobs: float) -> Money:
    """Return what that many jobs of a runner are expected to cost."""
    warm, cold = cost.job.warm.expected, cost.job.cold.expected
    return total((warm.times(jobs * (1 - COLD_SHARE)), cold.times(jobs * COLD_SHARE)), "USD/month")


def _sum(ranges: list[Range]) -> Range:
    columns = zip(*((amounts.low, amounts.expected, amounts.high) for amounts in ranges), strict=True)
    return Range(*(total(column, "USD/month") for column in columns))


def _floor(at_min: Range, idle: list[Range]) -> Range:
    """Return the cost of what always runs: the pool's fewest nodes or the idle runners' share, whichever is more."""
    nodes = at_min.times(HOURS_A_MONTH, "USD/month")
    if not idle:
        return nodes
    waiting = _sum(idle)
    return Range(
        _larger(nodes.low, waiting.low), _larger(nodes.expected, waiting.expected), _larger(nodes.high, waiting.high)
    )


def _larger(first: Money, other: Money) -> Money:
    larger = first if (first.value or 0.0) >= (other.value or 0.0) else other
    return replace(larger, missing=tuple(dict.fromkeys((*first.missing, *other.missing))))


def _runner_costs(fleet: Fleet, cost_of: Callable[[Runner], RunnerCost]) -> Iterator[RunnerCost]:
    """Yield the cost of each runner. Those of a kind cost the same, unless they fit nowhere, which is reported."""
    by_kind: dict[str, RunnerCost] = {}
    for runner in fleet.runners.values():
        kind = kind_of(fleet, fleet.pools[runner.pool], runner)
        if kind in by_kind:
            yield replace(by_kind[kind], runner=runner.name, pool=runner.pool)
            continue
        cost = cost_of(runner)
        if any(cost.per_node.values()):
            by_kind[kind] = cost
        yield cost


def _stated_jobs(fleet: Fleet, jobs: Mapping[str, float] | float | None) -> dict[str, float] | None:
    if jobs is None:
        return None
    if isinstance(jobs, Mapping):
        return {name: float(jobs.get(name, 0)) for name in fleet.runners}
    return {name: float(jobs) for name in fleet.runners}


def _assumed(fleet: Fleet, minutes: float) -> dict[str, float]:
    hours = WORKING_HOURS * BUSY_SHARE
    return {name: fleet.max_runners(runner) * hours * 60 / minutes for name, runner in fleet.runners.items()}


def _assumptions(
    minutes: float, image_gb: float, idle: float | None, is_stated: bool, served: Sequence[ServedCost]
) -> Iterator[str]:
    yield f"a month has {HOURS_A_MONTH} hours; a job takes {minutes:g} minutes"
    if is_stated:
        yield "low: the stated jobs all find a warm runner, on the cheapest nodes"
        yield f"expected: {COLD_SHARE:.0%} of them wait for a new node; nodes are {_TYPICAL}"
        yield (
            "high: each has a node to itself, of the most expensive type, bought in the most expensive way; "
            "system nodes are at their maximum"
        )
    else:
        yield "low: no job runs; only what is fixed, and nodes that are kept ready"
        yield (
            f"expected: {BUSY_SHARE:.0%} of all runners are busy in {WORKING_HOURS:.0f} working hours, "
            f"{COLD_SHARE:.0%} of their jobs wait for a new node; nodes are {_TYPICAL}"
        )
        yield (
            "high: every pool is at its maximum all month, of the most expensive type, bought in the most expensive "
            "way; so are system nodes"
        )
    if served:
        yield "served models run at their fewest replicas all month; high: their pools are at their maximum"
    yield "a runner costs its share of a node that is full of its kind; gaps between jobs cost more"
    yield f"a cold start pulls an image of {image_gb:g} GB; its times are published ones of other people's clusters"
    if idle is None:
        yield "how long an empty node is kept is not in this stack, and not counted"
    else:
        yield f"an empty node is kept {idle / 60:g} minutes"
    yield "spot prices are of one day, and move by zone and hour"
    yield "taxes, support, data transfer and what is paid for by use are not counted"


def _left_out(fleet: Fleet, graph: Graph, lines: tuple[Line, ...], pools: tuple[PoolCost, ...]) -> dict[str, str]:
    """Resources of priced types without a price in this region."""
    reasons = {
        urn: f"no price: {', '.join(line.price.missing)}"
        for line in lines
        if line.price.value is None
        for urn in line.urns
    }
    unpriced = {
        (pool.pool, group.capacity): ", ".join(group.node_hour.low.missing)
        for pool in pools
        for group in pool.groups
        if not any(offer.instance_hour.complete for offer in pool.offers if offer.capacity == group.capacity)
    }
    for group in graph.of_type(NODE_GROUP):
        for (pool, capacity), names in unpriced.items():
            if group.name == f"{pool}-{capacity}":
                reasons[group.urn] = f"no price: {names}"
    return reasons


def mean_idle(runner: Runner) -> float:
    """Return the mean number of idle runners over four weeks.

    Each entry of the schedule holds until the next one; before the first it is the last that holds. `min` is where a
    scale set without a schedule stays.
    """
    events = sorted(
        (time, entry.min) for entry in runner.warm for time in occurrences(entry.at, entry.time_zone, _START, _END)
    )
    if not events:
        return float(runner.min)
    ends = [time for time, _ in events[1:]] + [events[0][0] + (_END - _START)]
    return sum(
        max(level, 0) * ((end - start) / (_END - _START)) for (start, level), end in zip(events, ends, strict=True)
    )
