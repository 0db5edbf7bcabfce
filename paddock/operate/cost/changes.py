"""Edits of the stack file that would have cost less in the period. Each is reckoned alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from paddock import catalog
from paddock.catalog import UnknownInstanceType
from paddock.fleet import Fleet, GpuPool
from paddock.fleet.nodes import capacities
from paddock.operate.cost.bill import Charge
from paddock.operate.cost.report import Change
from paddock.plan.cost.estimate import Cost, mean_idle
from paddock.plan.cost.money import HOURS_A_MONTH, spot
from paddock.plan.cost.options import Option
from paddock.plan.cost.rightsizing import WORTH_OTHER, WORTH_SAME, RightSize

MOST = 3
_LEAST_USD = 0.01
_BILLED, _PLANNED = (
    "what the pool's instances cost in the period",
    "the plan's estimate, as the actual cost is not known",
)


def changes(
    fleet: Fleet,
    cost: Cost,
    sized: Sequence[RightSize],
    charges: Mapping[str, Sequence[Charge] | None],
    hours: float,
) -> tuple[Change, ...]:
    """Return those of most effect, at most three. `charges` of a pool are None where its actual is not known."""
    every = [
        change
        for name, pool in fleet.pools.items()
        for change in (
            *_types(pool, [size for size in sized if size.pool == name], _base(cost, name, charges.get(name), hours)),
            *_fallback(fleet, pool, charges.get(name) or ()),
            *_always_on(fleet, cost, pool, hours),
        )
        if change.usd >= _LEAST_USD
    ]
    return tuple(sorted(every, key=lambda change: (-change.usd, change.pool, change.edit))[:MOST])


def _base(cost: Cost, pool: str, charges: Sequence[Charge] | None, hours: float) -> tuple[float, str]:
    if charges is not None:
        return sum(charge.usd for charge in charges if charge.instance), _BILLED
    month = cost.pool_months[pool].expected.times(hours / HOURS_A_MONTH).value
    return month or 0.0, _PLANNED


def _types(pool: GpuPool, sized: Sequence[RightSize], base: tuple[float, str]) -> Iterator[Change]:
    """Yield the type that is cheaper for every runner of the pool, with the same GPU and with another."""
    for best, least, words in (
        ([size.cheapest for size in sized], WORTH_SAME, "the same GPU"),
        ([size.cheapest_any for size in sized], WORTH_OTHER, "another GPU, which your jobs have to try first"),
    ):
        known = [option for option in best if option]
        saved = [_saves(size.cheapest_in_pool, option) for size, option in zip(sized, best, strict=True)]
        if not known or len(known) < len(sized) or len({option.instance for option in known}) > 1:
            continue
        if known[0].same_gpu != (words == "the same GPU") or min(saved) < least:
            continue
        yield Change(
            pool=pool.name,
            message=f"{known[0].instance} costs a runner {min(saved):.0%} less, with {words}",
            edit=f"pools.{pool.name}.instances: [{known[0].instance}]",
            usd=round(base[0] * min(saved), 2),
            basis=f"prices of the catalogue on {base[1]}",
        )


def _saves(now: Option | None, best: Option | None) -> float:
    if now is None or best is None or not now.per_runner_hour.value or best.per_runner_hour.value is None:
        return 0.0
    return 1 - best.per_runner_hour.value / now.per_runner_hour.value


def _fallback(fleet: Fleet, pool: GpuPool, charges: Sequence[Charge]) -> Iterator[Change]:
    """Yield what hours on demand cost more than spot would have, in a pool that tries spot first."""
    if capacities(pool)[0] != "spot":
        return
    dear = [charge for charge in charges if charge.instance and not charge.spot and charge.quantity > 0]
    more = 0.0
    for charge in dear:
        try:
            price = spot(catalog.instance(charge.instance), fleet.region).value
        except UnknownInstanceType:
            continue
        more += 0.0 if price is None else max(charge.usd - price * charge.quantity, 0.0)
    hours = sum(charge.quantity for charge in dear)
    yield Change(
        pool=pool.name,
        message=f"{hours:.1f} node-hours ran on demand, as spot had none: more types and zones find spot more often",
        edit=f"pools.{pool.name}.instances: more types, and more zones",
        usd=round(more, 2),
        basis="hours on demand in the period at the catalogue's spot price, if spot had been there each time",
    )


def _always_on(fleet: Fleet, cost: Cost, pool: GpuPool, hours: float) -> Iterator[Change]:
    """Yield what is kept for nobody: the fewest nodes, and runners that wait."""
    floor = next(pool_cost for pool_cost in cost.pools if pool_cost.pool == pool.name).at_min.expected.value or 0.0
    yield Change(
        pool=pool.name,
        message="nodes that stay without a job; the first job then waits for a node",
        edit=f"pools.{pool.name}.nodes.min: 0",
        usd=round(floor * hours, 2),
        basis="the plan's price of the fewest nodes, at most: their jobs cost something elsewhere",
    )
    if floor:
        return
    for runner in cost.runners:
        if runner.pool == pool.name:
            spec = fleet.runners[runner.runner]
            yield Change(
                pool=pool.name,
                message=f"runners of {runner.runner} that wait for a job; the first job then waits for one",
                edit=f"runners.{runner.runner}.{'warm: []' if spec.warm else 'min: 0'}",
                usd=round((runner.per_hour.expected.value or 0.0) * mean_idle(spec) * hours, 2),
                basis="the plan's price of the idle runners, as scheduled, at most",
            )
