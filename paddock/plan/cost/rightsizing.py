"""Better instance types and disks for a fleet: cheaper ones, more of them for spot, smaller disks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.catalog.table import sizes
from paddock.fleet import Fleet, GpuPool, Runner
from paddock.fleet.model.pool import LEAN_DISK, Bottlerocket
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.nodes import capacities
from paddock.fleet.sizing.alike import kind_of
from paddock.plan.cost.money import HOURS_A_MONTH, Money, volume
from paddock.plan.cost.options import Option, candidates, driven, option
from paddock.plan.finding import Edit, Finding, put

SPOT_TYPES = 3
"""Fewer types than this in a spot pool, and one type's shortage stops it. AWS scores one or two types always low."""
NO_DISCOUNT = 0.9
"""Spot above this part of the on-demand price is a sign of scarcity, not an offer."""
OFTEN = 4
"""Spot Advisor's band above 20 % interrupted in a month."""
WORTH_SAME, WORTH_OTHER = 0.10, 0.25
"""Savings worth saying: with the same GPU, and with another that has to be tried first."""
WORTH_DISK = 0.005
"""USD a node-hour."""


@dataclass(frozen=True, slots=True)
class RightSize:
    """A runner on its pool's first type, on the cheapest that fits, and one size up and down.

    None: no such type. `cheapest` has the same GPU; `cheapest_any` at least the same GPU memory.
    """

    runner: str
    pool: str
    current: Option
    cheapest_in_pool: Option | None
    cheapest: Option | None
    cheapest_any: Option | None
    smaller: Option | None
    larger: Option | None


def right_size(fleet: Fleet) -> tuple[RightSize, ...]:
    """Return the sizes of every runner; none where the nodes exist already."""
    if not fleet.owns_nodes:
        return ()
    by_kind: dict[str, RightSize] = {}  # alike runners on alike pools have the same sizes
    sizes = []
    for runner in fleet.runners.values():
        pool = fleet.pools[runner.pool]
        if (kind := kind_of(fleet, pool, runner)) not in by_kind:
            by_kind[kind] = _right_size(fleet, runner)
        sizes.append(replace(by_kind[kind], runner=runner.name, pool=pool.name))
    return tuple(sizes)


def findings(fleet: Fleet, sized: tuple[RightSize, ...]) -> tuple[Finding, ...]:
    """Return what would cost less, or be interrupted less often."""
    if not fleet.owns_nodes:
        return ()
    cheaper = [finding for size in sized for finding in _cheaper(fleet, size)]
    for pool in fleet.pools.values():
        cheaper += _few_types(fleet, pool)
        cheaper += _no_discount(fleet, pool)
        cheaper += _interrupted(fleet, pool)
    cheaper += _idle_disks(fleet)
    return tuple(cheaper)


def _right_size(fleet: Fleet, runner: Runner) -> RightSize:
    pool = fleet.pools[runner.pool]
    first = pool.types[0]
    chosen = _bought_before(pool)
    options = [] if chosen else [option(fleet, runner, instance) for instance in candidates(fleet, runner)]
    smaller, larger = _neighbours(first)
    return RightSize(
        runner=runner.name,
        pool=pool.name,
        current=option(fleet, runner, first),
        cheapest_in_pool=_cheapest([option(fleet, runner, instance) for instance in pool.types]),
        cheapest=_cheapest([candidate for candidate in options if candidate.same_gpu]),
        cheapest_any=_cheapest(options),
        smaller=option(fleet, runner, smaller) if smaller else None,
        larger=option(fleet, runner, larger) if larger else None,
    )


def _bought_before(pool: GpuPool) -> bool:
    """Return whether the pool's type was chosen when its capacity was bought."""
    return capacities(pool)[0] in ("reserved", "capacity-block")


def _cheapest(options: list[Option]) -> Option | None:
    priced = [candidate for candidate in options if candidate.per_node and candidate.per_runner_hour.value is not None]
    return min(priced, key=lambda candidate: (candidate.per_runner_hour.value or 0.0, candidate.instance), default=None)


def _neighbours(instance: InstanceType) -> tuple[InstanceType | None, InstanceType | None]:
    """Return one size down and up in the family, with as many GPUs of the kind."""
    family = sizes(instance.name)
    at = [other.name for other in family].index(instance.name)
    return (family[at - 1] if at else None, family[at + 1] if at + 1 < len(family) else None)


def _cheaper(fleet: Fleet, size: RightSize) -> Iterator[Finding]:
    now, other = size.cheapest_in_pool, size.cheapest_any
    best = size.cheapest
    if now is None:
        return
    if best and (saved := _saves(now, best)) >= WORTH_SAME:
        yield Finding(
            "RSZ001",
            "info",
            f"pools.{size.pool}.instances",
            f"runner {size.runner} would cost {_usd(best.per_runner_hour)} an hour on {best.instance}, {saved:.0%} "
            f"less than {_usd(now.per_runner_hour)} on {now.instance}; it would have {_share(best)}",
            f"pools.{size.pool}.instances: [{best.instance}, ...]",
        )
    if other and not other.same_gpu and (saved := _saves(best or now, other)) >= WORTH_OTHER:
        yield Finding(
            "RSZ002",
            "info",
            f"pools.{size.pool}.instances",
            f"another GPU with as much memory, {catalog.gpu(other.gpu).name} of {other.instance}, would cost runner "
            f"{size.runner} {_usd(other.per_runner_hour)} an hour, {saved:.0%} less than "
            f"{_usd((best or now).per_runner_hour)}; whether it is fast enough only your jobs can say",
            f"a pool of its own with instances: [{other.instance}], and one runner to try it",
        )


def _few_types(fleet: Fleet, pool: GpuPool) -> Iterator[Finding]:
    if pool.capacity != "spot" or len(pool.instances) >= SPOT_TYPES:
        return
    first = pool.types[0]
    more = [
        other
        for other in catalog.gpu_instances(first.gpu)
        if (other.gpu_count, other.gpu_fraction) == (first.gpu_count, first.gpu_fraction)
        and other.name not in pool.instances
        and not other.bare_metal
        and driven(fleet, pool, other)
        and all(option(fleet, runner, other).per_node for runner in fleet.runners_on(pool))
    ]
    more.sort(
        key=lambda other: (other.price(fleet.region).spot is None, other.price(fleet.region).spot or 0.0, other.name)
    )
    count = len(pool.instances)
    alike = f"{first.gpu_count} {catalog.gpu(first.gpu or '').name}"
    chosen = [other.name for other in more[: SPOT_TYPES - count]]
    is_enough = count + len(chosen) >= SPOT_TYPES
    fits = all(option(fleet, runner, own).per_node for runner in fleet.runners_on(pool) for own in pool.types)
    edits: tuple[Edit, ...] = ()
    if chosen:
        edits = (put("pools", pool.name, "instances", value=[*pool.instances, *chosen]),)
        fix = str(edits[0])
    else:
        fix = "more zones" + ("" if pool.fallback == "on-demand" else f", and pools.{pool.name}.fallback: on-demand")
    yield Finding(
        "RSZ003",
        "warning" if count == 1 and pool.fallback == "none" else "info",
        f"pools.{pool.name}.instances",
        ("a spot pool of one type: when AWS is short of it" if count == 1 else "a spot pool of two types: when AWS is")
        + ("" if count == 1 else " short of both")
        + ", jobs wait. "
        + (f"Also with {alike}: {_listed(fleet, more)}" if more else f"No other type has {alike}"),
        fix,
        edits if is_enough and fits else (),
    )


def _no_discount(fleet: Fleet, pool: GpuPool) -> Iterator[Finding]:
    if pool.capacity != "spot":
        return
    for instance in pool.types:
        price = instance.price(fleet.region)
        if price.spot and price.on_demand and price.spot / price.on_demand > NO_DISCOUNT:
            yield Finding(
                "RSZ004",
                "warning",
                f"pools.{pool.name}.instances",
                f"do not place {instance.name} on spot: {price.spot:.3f} USD an hour is "
                f"{price.spot / price.on_demand:.0%} of its on-demand price ({price.on_demand:.3f}), so it is scarce "
                "and will be taken back",
                f"pools.{pool.name}.instances: without {instance.name}, or pools.{pool.name}.capacity: on-demand",
            )


def _interrupted(fleet: Fleet, pool: GpuPool) -> Iterator[Finding]:
    often = [instance.name for instance in pool.types if instance.price(fleet.region).interruption_band == OFTEN]
    if pool.capacity != "spot" or not often:
        return
    calm = [
        other.name
        for other in catalog.gpu_instances(pool.types[0].gpu)
        if other.gpu_count == pool.types[0].gpu_count
        and other.gpu_fraction == 1
        and (other.price(fleet.region).interruption_band or 0) < OFTEN
        and other.price(fleet.region).interruption_band is not None
    ]
    yield Finding(
        "RSZ005",
        "info",
        f"pools.{pool.name}.instances",
        f"more than 20 % of spot nodes of {', '.join(often)} were interrupted in the month that AWS last published",
        f"also list {', '.join(calm)}, interrupted less often" if calm else "keep jobs short, or save their progress",
    )


def _idle_disks(fleet: Fleet) -> Iterator[Finding]:
    """Fast root volumes next to local NVMe, which holds images and workspaces; pools with the same volume together."""
    size, iops, throughput = LEAN_DISK.size // 1024, LEAN_DISK.iops, LEAN_DISK.throughput
    pools: dict[str, list[str]] = {}
    for name, pool in fleet.pools.items():
        if pool.on_nvme and not isinstance(fleet.ami(pool), Bottlerocket):
            pools.setdefault(pool.root_disk.model_dump_json(), []).append(name)
    for names in pools.values():
        disk = fleet.pools[names[0]].root_disk
        now = volume(disk.size / 1024, disk.iops, disk.throughput, fleet.region)
        lean = volume(min(size, disk.size / 1024), iops, throughput, fleet.region)
        if now.value is None or lean.value is None or now.value - lean.value < WORTH_DISK:
            continue
        saved, nodes = now.value - lean.value, sum(fleet.pools[name].nodes.max for name in names)
        yield Finding(
            "RSZ006",
            "info",
            f"pools.{names[0]}.disk" if len(names) == 1 else "pools",
            f"images and jobs of {', '.join(names)} live on local NVMe, and the root volume next to it costs "
            f"{now.value:.3f} USD a node-hour; a plain one of {size} GiB costs {saved:.3f} less: "
            f"{saved * HOURS_A_MONTH * nodes:.0f} USD a month with {nodes} nodes, the most there can be",
            f"pools.{names[0]}.disk: {{size: {size}Gi, iops: {iops}, throughput: {throughput}}}",
        )


def _listed(fleet: Fleet, types: list[InstanceType]) -> str:
    named = []
    for instance in types[:4]:
        spot = instance.price(fleet.region).spot
        named.append(f"{instance.name} ({'?' if spot is None else f'{spot:.3f}'} USD/h)")
    return ", ".join(named) + (f" and {len(types) - 4} more" if len(types) > 4 else "")


def _saves(now: Option, best: Option) -> float:
    if not now.per_runner_hour.value or best.per_runner_hour.value is None:
        return 0.0
    return 1 - best.per_runner_hour.value / now.per_runner_hour.value


def _share(candidate: Option) -> str:
    return f"{format_cpu(candidate.cpu_m)} CPU and {format_memory(candidate.memory_mib)}"


def _usd(amount: Money) -> str:
    return "?" if amount.value is None else f"{amount.value:.3f} USD"
