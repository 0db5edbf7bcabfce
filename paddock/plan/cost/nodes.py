"""Cost of nodes, runners and jobs: node prices with their volumes, shared among the runners that fit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.catalog.nodes import cold_start
from paddock.fleet import Fleet, GpuPool, Runner
from paddock.fleet.model.pool import BOTTLEROCKET_SYSTEM_GIB, GP3_IOPS, GP3_THROUGHPUT, Bottlerocket
from paddock.fleet.nodes import CapacityName, capacities, min_nodes
from paddock.plan.cost.money import Money, fixed, least, most, on_demand, spot, total, unknown, volume
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.resource_types import RELEASE
from paddock.plan.fit import Fit


@dataclass(frozen=True, slots=True)
class Range:
    """`expected` is the first instance type, bought the first way; `low` and `high` the cheapest and dearest."""

    low: Money
    expected: Money
    high: Money

    def times(self, factor: float, unit: str | None = None) -> Range:
        return Range(*(amount.times(factor, unit) for amount in (self.low, self.expected, self.high)))


@dataclass(frozen=True, slots=True)
class Offer:
    """A node of the pool: an instance type bought one way, with its root volume. USD/hour."""

    instance: str
    capacity: CapacityName
    instance_hour: Money
    volume_hour: Money
    node_hour: Money


@dataclass(frozen=True, slots=True)
class Group:
    """A node group of a pool, USD/hour with its fewest and most nodes."""

    capacity: CapacityName
    min_nodes: int
    max_nodes: int
    node_hour: Range
    at_min: Range
    at_max: Range


@dataclass(frozen=True, slots=True)
class PoolCost:
    """USD/hour. Minimum and maximum count once: the first node group keeps the one, any groups may reach the other."""

    pool: str
    offers: tuple[Offer, ...]
    groups: tuple[Group, ...]
    at_min: Range
    at_max: Range
    spot_ratio: float | None
    """Price of the first type on spot over on demand; None when either is not known."""
    note: str = ""


class StartSeconds(NamedTuple):
    """Seconds that a cold start takes."""

    low: float
    typical: float
    high: float


@dataclass(frozen=True, slots=True)
class JobCost:
    """A job of so many minutes, USD. `warm` finds its runner; `cold` pays its share of the node's start as well;
    `alone` has a node to itself, from its start until the autoscaler removes it.
    """

    minutes: float
    start_seconds: StartSeconds
    idle_seconds: float
    warm: Range
    cold: Range
    alone: Range


@dataclass(frozen=True, slots=True)
class Hosted:
    """GitHub's own GPU runner next to ours, USD a job. `comparable`: ours holds the same GPU, one T4."""

    price: Money
    job: Money
    comparable: bool
    times_ours: float | None
    """Its price over that of our warm job, where they are comparable."""


@dataclass(frozen=True, slots=True)
class RunnerCost:
    """USD/hour of one runner: its share of a node that is full of its kind."""

    runner: str
    pool: str
    per_node: Mapping[str, int]
    per_hour: Range
    job: JobCost
    github_hosted: Hosted


def offers(fleet: Fleet, pool: GpuPool) -> tuple[Offer, ...]:
    """Return the offers of a node of the pool, in the order they are tried; none where the nodes exist already."""
    if not fleet.owns_nodes:
        return ()
    root = root_volume(fleet, pool)
    offers_found = []
    for capacity in capacities(pool):
        for instance in pool.types:
            price = instance_price(instance, capacity, fleet.region)
            offers_found.append(Offer(instance.name, capacity, price, root, _node(price, root)))
    return tuple(offers_found)


def _node(price: Money, root: Money) -> Money:
    """Return the price of a node, none without that of its instance: its volume's alone would mislead."""
    node = total((price, root), "USD/hour")
    return node if price.value is not None else replace(node, value=None)


def root_volume(fleet: Fleet, pool: GpuPool) -> Money:
    """USD/hour of a node's EBS volumes."""
    disk = volume(pool.root_disk.size / 1024, pool.root_disk.iops, pool.root_disk.throughput, fleet.region)
    if not isinstance(fleet.ami(pool), Bottlerocket):
        return disk
    return total((disk, volume(BOTTLEROCKET_SYSTEM_GIB, GP3_IOPS, GP3_THROUGHPUT, fleet.region)), "USD/hour")


def instance_price(instance: InstanceType, capacity: CapacityName, region: str) -> Money:
    """USD/hour. An On-Demand Capacity Reservation costs as on demand; a Capacity Block has a price of its own."""
    if capacity == "spot":
        return spot(instance, region)
    if capacity == "capacity-block":
        return unknown(f"{instance.name} in a Capacity Block: its price is its own, and paid up front", "USD/hour")
    return on_demand(instance, region)


def pool_cost(fleet: Fleet, pool: GpuPool) -> PoolCost:
    """Return what a pool costs an hour."""
    pool_offers = offers(fleet, pool)
    bought = fleet.owns_nodes and fleet.holds("cluster")
    groups = []
    for capacity in capacities(pool) if pool_offers else ():
        node = spread([(offer.node_hour, 1) for offer in pool_offers if offer.capacity == capacity])
        low, high = (min_nodes(pool, capacity), pool.nodes.max) if bought else (0, 0)
        groups.append(Group(capacity, low, high, node, node.times(low), node.times(high)))
    nothing = Money(0.0, "USD/hour")
    at_min = Range(*(total(amounts, "USD/hour") for amounts in _columns(group.at_min for group in groups)))
    highest = spread([(group.at_max.high, 1) for group in groups]).high if groups else nothing
    at_max = (
        Range(spread([(group.at_max.low, 1) for group in groups]).low, groups[0].at_max.expected, highest)
        if groups
        else Range(nothing, nothing, nothing)
    )
    notes = []
    if not fleet.owns_nodes:
        notes.append("its nodes already exist and are not counted")
    elif not bought:
        notes.append("bought by the stack that holds the cluster, and counted there")
    if len(groups) > 1:
        notes.append(
            f"{len(groups)} node groups of up to {pool.nodes.max} each; runners' quota keeps both together below one"
        )
    if capacities(pool) == ("reserved",):
        notes.append("a reservation is billed whether nodes run in it or not; how many it holds is not in the stack")
    first = pool.types[0].price(fleet.region)
    ratio = first.spot / first.on_demand if first.spot and first.on_demand else None
    return PoolCost(pool.name, pool_offers, tuple(groups), at_min, at_max, ratio, "; ".join(notes))


def runner_cost(
    fleet: Fleet,
    runner: Runner,
    pool_offers: Sequence[Offer],
    fits: Iterable[Fit],
    minutes: float,
    image_gb: float,
    idle: float,
) -> RunnerCost:
    """Return the cost of a runner, and of a job of `minutes` on it.

    `pool_offers` are those of its pool, `fits` its own; `idle`: seconds until an empty node is removed.
    """
    pool = fleet.pools[runner.pool]
    per_node = {fit.instance: fit.per_node for fit in fits}
    usable = [offer for offer in pool_offers if per_node.get(offer.instance)]
    reason = "it fits on none of its pool's types" if fleet.owns_nodes else "its nodes already exist"
    nothing = unknown(f"runner {runner.name}: {reason}", "USD/hour")
    shares = [(offer.node_hour, 1 / per_node[offer.instance]) for offer in usable]
    per_hour = spread(shares) if shares else Range(nothing, nothing, nothing)
    nodes = spread([(offer.node_hour, 1) for offer in usable]) if usable else per_hour
    start = start_seconds(fleet, pool, image_gb)
    run = minutes * 60
    job = JobCost(
        minutes=minutes,
        start_seconds=start,
        idle_seconds=idle,
        warm=per_hour.times(run / 3600, "USD/job"),
        cold=_lasting(per_hour, [run + seconds for seconds in start]),
        alone=_lasting(nodes, [run + seconds + idle for seconds in start]),
    )
    return RunnerCost(
        runner.name, pool.name, per_node, per_hour, job, _hosted(fleet, runner, minutes, job.warm.expected)
    )


def start_seconds(fleet: Fleet, pool: GpuPool, image_gb: float) -> StartSeconds:
    """Seconds from nothing to a running job: low, typical, high of the published parts."""
    parts = cold_start("bottlerocket" if isinstance(fleet.ami(pool), Bottlerocket) else "al2023")
    low, typical, high = zip(*(part.for_image(image_gb) for part in parts), strict=True)
    return StartSeconds(sum(low), sum(typical), sum(high))


def idle_seconds(graph: Graph) -> float | None:
    """Seconds that the autoscaler leaves an empty node running; None when the graph has no autoscaler that says."""
    for release in graph.of_type(RELEASE):
        values = release.inputs.get("values") or {}
        arguments = values.get("extraArgs") if isinstance(values, Mapping) else None
        text = arguments.get("scale-down-unneeded-time") if isinstance(arguments, Mapping) else None
        if isinstance(text, str) and text[:-1].isdigit():
            return int(text[:-1]) * {"s": 1, "m": 60, "h": 3600}.get(text[-1], 60)
    return None


def spread(amounts: list[tuple[Money, float]]) -> Range:
    """Cheapest, first and dearest of amounts times factors. What is not known is named in all three."""
    scaled = [amount.times(factor) for amount, factor in amounts]
    missing = tuple(dict.fromkeys(name for amount in scaled for name in amount.missing))
    low, high = least(scaled), most(scaled)
    if low is None or high is None:
        raise ValueError("nothing to choose from")
    first = scaled[0] if scaled[0].value is not None else low
    return Range(*(replace(amount, missing=missing) for amount in (low, first, high)))


def _lasting(rate: Range, seconds: list[float]) -> Range:
    low, typical, high = (second_count / 3600 for second_count in seconds)
    return Range(
        rate.low.times(low, "USD/job"), rate.expected.times(typical, "USD/job"), rate.high.times(high, "USD/job")
    )


def _hosted(fleet: Fleet, runner: Runner, minutes: float, own_cost: Money) -> Hosted:
    price = fixed("github.runner.linux-4-core-gpu", fleet.region)
    job = price.times(-(-minutes // 1), "USD/job")
    pool = fleet.pools[runner.pool]
    same = pool.gpu is catalog.gpu("t4") and runner.gpus == 1 and pool.replicas == 1
    times = job.value / own_cost.value if same and job.value is not None and own_cost.value else None
    return Hosted(price, job, same, times)


def _columns(ranges: Iterable[Range]) -> tuple[list[Money], list[Money], list[Money]]:
    rows = list(ranges)
    return [r.low for r in rows], [r.expected for r in rows], [r.high for r in rows]
