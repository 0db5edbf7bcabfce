"""Findings on the fit of runners: those that would wait for ever, strand GPUs or outgrow their pool."""

from __future__ import annotations

from collections.abc import Iterator

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.fleet import Fleet, NewCluster
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.model.runner import Runner
from paddock.fleet.nodes import capacities, min_nodes
from paddock.fleet.sizing.capacity import (
    COORDINATOR,
    Resources,
    Share,
    available,
    max_pods,
    runner_request,
    share_of,
    sidecars,
)
from paddock.fleet.sizing.daemonsets import gpu_node_daemonsets
from paddock.fleet.sizing.serving import system_request
from paddock.fleet.sizing.system_nodes import LISTENER, system_load, system_node
from paddock.plan.finding import Edit, Finding, Severity, drop, put
from paddock.plan.fit import Fit, by_runner, fit_counts, fit_runner


def findings(fleet: Fleet, fits: tuple[Fit, ...]) -> tuple[Finding, ...]:
    """Return the findings runner by runner, then pool by pool."""
    results: list[Finding] = []
    fits_by_runner = by_runner(fits)
    for runner in fleet.runners.values():
        of_runner = tuple(fits_by_runner.get(runner.name, ()))
        results += _does_not_fit(fleet, runner, of_runner)
        results += _refused_by_estimate(fleet, runner, of_runner)
        results += _stranded(fleet, runner, of_runner)
        results += _unreachable_maximum(fleet, runner, of_runner)
    for pool in fleet.pools.values():
        of_pool = [fit_ for runner in fleet.runners_on(pool) for fit_ in fits_by_runner.get(runner.name, ())]
        results += _idle_runners(fleet, pool, tuple(of_pool))
        results += _pod_limit(fleet, pool)
    results += _coordinators(fleet, fits)
    results += _estimated(fits)
    return tuple(results)


def _does_not_fit(fleet: Fleet, runner: Runner, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    misfits = [fit_ for fit_ in fits if not fit_.per_node]
    if not misfits:
        return
    missing = "; ".join(f"{fit_.instance} lacks {_deficit(fleet, fit_)}" for fit_ in misfits)
    request = f"a pod of {runner.name} asks for {_amounts(fits[0].request)}"
    if len(misfits) == len(fits):
        where, largest = _largest(fleet, runner)
        yield Finding(
            "FIT001",
            "error",
            f"runners.{runner.name}",
            f"its jobs would never start: {request}, which no instance type of pool {fits[0].pool} has free: "
            f"{missing}. "
            f"The largest that fits is cpu {format_cpu(largest.cpu_m)}, memory {format_memory(largest.memory_mib)} "
            f"on {where}",
            *_fix(fleet, runner, misfits, _share_everywhere(fleet, runner)),
        )
        return
    from_zero = _starts_empty(fleet, fleet.pools[fits[0].pool])
    usable = ", ".join(fit_.instance for fit_ in fits if fit_.per_node)
    consequence = (
        "From an empty node group the autoscaler buys no node for it, and later it may buy one that cannot be used"
        if from_zero
        else "The autoscaler may buy a node that it cannot use"
    )
    severity: Severity = "error" if from_zero else "warning"
    smaller, edits = _or_smaller(fleet, runner, misfits)
    yield Finding(
        "FIT002",
        severity,
        f"runners.{runner.name}",
        f"it fits on {usable} only: {request}, and {missing}. {consequence}",
        f"give it a pool with pools.<name>.instances: [{usable}]{smaller}",
        edits,
    )


def _refused_by_estimate(fleet: Fleet, runner: Runner, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    refused = [fit_ for fit_ in fits if fit_.per_node and not fit_.cautious_per_node]
    if not refused:
        return
    details = "; ".join(
        f"{fit_.instance} has {format_memory(fit_.available.memory_mib)} ({fit_.source}), "
        f"an autoscaler that has seen none expects {format_memory(_cautious_memory(fit_))}"
        for fit_ in refused
    )
    # Paddock's own autoscaler gets the first number, so a measured one is enough.
    is_settled = isinstance(fleet.cluster, NewCluster) and all(fit_.source == "measured" for fit_ in refused)
    severity: Severity = "info" if is_settled else "warning"
    safe = min(
        (share_of(fleet, runner, catalog.instance(fit_.instance)) for fit_ in refused),
        key=lambda share: share.memory_mib,
    )
    yield Finding(
        "FIT003",
        severity,
        f"runners.{runner.name}",
        f"it asks for {format_memory(refused[0].request.memory_mib)} of memory, more than Karpenter's estimate "
        f"(7.5 % off the size EC2 advertises) leaves: {details}",
        str(edit := put("runners", runner.name, "memory", value=format_memory(safe.memory_mib))),
        (edit,),
    )


def _stranded(fleet: Fleet, runner: Runner, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    for fit_ in fits:
        if not fit_.per_node or not fit_.stranded_gpus:
            continue
        pool = fleet.pools[fit_.pool]
        neighbors = [other for other in fleet.runners_on(pool) if other.name != runner.name]
        takers = [
            other.name for other in neighbors if min(fit_counts(fit_.slack, runner_request(fleet, other)).values())
        ]
        yield Finding(
            "FIT004",
            "info" if takers else "warning",
            f"runners.{runner.name}",
            f"{fit_.per_node} of its jobs fill a {fit_.instance} by {fit_.limiting}: {fit_.stranded_gpus:g} of its "
            f"{fit_.available.gpus / pool.replicas:g} GPUs "
            + (f"are left to jobs of {', '.join(takers)}" if takers else "cannot be used"),
            *_unstrand(fleet, runner, fit_),
        )


def _unreachable_maximum(fleet: Fleet, runner: Runner, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    most = max(fit_.per_node for fit_ in fits)
    nodes = fleet.pools[runner.pool].nodes.max
    idle = max([runner.min, *(entry.min for entry in runner.warm)])
    if runner.max is not None and most and runner.max > nodes * most:
        yield Finding(
            "FIT005",
            "warning",
            f"runners.{runner.name}.max",
            f"{runner.max} jobs at a time are more than pool {runner.pool} can hold: {nodes} nodes of at most {most}",
            f"runners.{runner.name}.max: {nodes * most}, or pools.{runner.pool}.nodes.max: {-(-runner.max // most)}",
            (put("runners", runner.name, "max", value=nodes * most),) if nodes * most >= idle else (),
        )


def _idle_runners(fleet: Fleet, pool: GpuPool, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    """Idle runners hold GPUs for good. Those whose jobs have pods of their own wait on system nodes and hold none."""
    holding = [runner for runner in fleet.runners_on(pool) if runner.container != "kubernetes-novolume"]
    floor = {runner.name: runner.min for runner in holding}
    need, who = 0, ""
    for runner in holding:
        warm = max((entry.min for entry in runner.warm), default=0)
        idle = {**floor, runner.name: max(runner.min, warm)}
        nodes = _nodes_for(idle, fits)
        if nodes > need:
            need, who = nodes, ", ".join(f"{count} of {runner_name}" for runner_name, count in idle.items() if count)
    limit = pool.nodes.max
    if need > limit:
        yield Finding(
            "FIT006",
            "error",
            f"pools.{pool.name}.nodes.max",
            f"idle runners alone ({who}) hold {need} nodes, and the pool may have {limit}",
            f"pools.{pool.name}.nodes.max: {need}, or a smaller min or warm.min of its runners",
            (put("pools", pool.name, "nodes", "max", value=need),),
        )


def _nodes_for(idle: dict[str, int], fits: tuple[Fit, ...]) -> int:
    """Return the fewest nodes that can hold these runners: by each kind alone, and by the sum of what they ask for."""
    best = {name: max((fit_.per_node for fit_ in fits if fit_.runner == name), default=0) for name in idle}
    alone = [-(-count // best[name]) for name, count in idle.items() if best[name]]
    total = Resources(0, 0)
    for name, count in idle.items():
        total += next(fit_.request for fit_ in fits if fit_.runner == name) * (count if best[name] else 0)
    rooms = [max(amounts) for amounts in zip(*(fit_.available.amounts() for fit_ in fits), strict=True)]
    together = [-(-needed // room) for needed, room in zip(total.amounts(), rooms, strict=True) if needed and room > 0]
    most: int = max([0, *alone, *together])
    return most


def _pod_limit(fleet: Fleet, pool: GpuPool) -> Iterator[Finding]:
    limit = pool.max_pods
    if limit is None:
        return
    types = pool.types
    short = [f"{instance.name} {instance.max_pods}" for instance in types if instance.max_pods < limit]
    own = len(gpu_node_daemonsets(fleet, pool))
    if short and fleet.owns_nodes:
        yield Finding(
            "FIT009",
            "warning",
            f"pools.{pool.name}.maxPods",
            f"{limit} pods are more than the type has addresses for ({', '.join(short)}): the rest would wait for one",
            f"leave pools.{pool.name}.maxPods out",
            (drop("pools", pool.name, "maxPods"),),
        )
    if own >= limit:
        yield Finding(
            "FIT009",
            "error",
            f"pools.{pool.name}.maxPods",
            f"{own} DaemonSets run on each node, so {limit} pods leave none for a job",
            f"leave pools.{pool.name}.maxPods out, or write at least {own + 1}",
            (drop("pools", pool.name, "maxPods"),),
        )


def _coordinators(fleet: Fleet, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    """Runners whose jobs have pods of their own wait on system nodes; those must hold them all."""
    if not isinstance(fleet.cluster, NewCluster):
        return
    runners = [runner for runner in fleet.runners.values() if runner.container == "kubernetes-novolume"]
    runner_pods = sum(fleet.max_runners(runner) for runner in runners)
    system, coordinator = fleet.cluster.system, Resources(COORDINATOR.cpu_m, COORDINATOR.memory_mib, pods=1)
    least = min((system_node(fleet, catalog.instance(name)) for name in system.instances), key=lambda room: room.cpu_m)
    used = system_load(fleet) + LISTENER * len(fleet.runners) + system_request(fleet)

    def held(nodes: int) -> int:
        free = fit_counts(least * nodes - used, coordinator).values()
        return min(*free, nodes * min(fit_counts(least, coordinator).values()))

    names = ", ".join(runner.name for runner in runners)
    if runners and runner_pods > held(system.nodes.max):
        enough = next((nodes for nodes in range(system.nodes.max, 1000) if held(nodes) >= runner_pods), None)
        yield Finding(
            "FIT007",
            "warning",
            "cluster.system.nodes.max",
            f"{runner_pods} jobs at a time of {names} need as many runner pods of "
            f"{format_cpu(COORDINATOR.cpu_m)} CPU and {format_memory(COORDINATOR.memory_mib)} on system nodes, and "
            f"{system.nodes.max} of {system.instances[0]} hold {held(system.nodes.max)} besides the controllers",
            f"cluster.system.nodes.max: {enough}, or larger cluster.system.instances"
            if enough
            else "larger cluster.system.instances",
            (put("cluster", "system", "nodes", "max", value=enough),) if enough else (),
        )


def _estimated(fits: tuple[Fit, ...]) -> Iterator[Finding]:
    names = dict.fromkeys(fit_.instance for fit_ in fits if fit_.source == "estimated")
    if names:
        yield Finding(
            "FIT008",
            "info",
            "pools",
            f"the memory of a booted {', '.join(names)} is an estimate on the low side: no measurement is public",
            "",
        )


def _starts_empty(fleet: Fleet, pool: GpuPool) -> bool:
    """Return whether a node group of the pool may be empty.

    For such a one the autoscaler plans with the least that any of its types has, and buys nothing for more.
    """
    return fleet.owns_nodes and not all(min_nodes(pool, capacity_name) for capacity_name in capacities(pool))


def _types_with_gpus(fleet: Fleet, runner: Runner) -> list[InstanceType]:
    pool = fleet.pools[runner.pool]
    return [instance for instance in pool.types if pool.gpu_resources_per_node(instance) >= runner.gpus]


_Fix = tuple[str, tuple[Edit, ...]]
"""Remedy in words, and as edits where the fleet's owner need not choose."""


def _largest(fleet: Fleet, runner: Runner) -> tuple[str, Share]:
    """Return the most CPU and memory that a runner of this kind may have, and where it fits."""
    pool, sidecar = fleet.pools[runner.pool], sidecars(runner)
    rooms = [(instance.name, available(fleet, pool, instance)) for instance in _types_with_gpus(fleet, runner)]
    if len(rooms) > 1 and _starts_empty(fleet, pool):
        where = "each instance type"
        cpu_m, memory_mib = min(room.cpu_m for _, room in rooms), min(room.memory_mib for _, room in rooms)
    else:
        where, room = max(rooms, key=lambda named: (named[1].memory_mib, named[1].cpu_m))
        cpu_m, memory_mib = room.cpu_m, room.memory_mib
    return where, Share(cpu_m - sidecar.cpu_m, memory_mib - sidecar.memory_mib)


def _share_everywhere(fleet: Fleet, runner: Runner) -> Share:
    """Return the runner's share of the smallest type: it fits on all, by every autoscaler's estimate."""
    shares = [share_of(fleet, runner, instance) for instance in _types_with_gpus(fleet, runner)]
    return Share(min(share.cpu_m for share in shares), min(share.memory_mib for share in shares))


def _fix(fleet: Fleet, runner: Runner, misfits: list[Fit], share: Share) -> _Fix:
    edits = []
    if any(fit_.deficit.cpu_m for fit_ in misfits):
        edits.append(put("runners", runner.name, "cpu", value=format_cpu(share.cpu_m)))
    if any(fit_.deficit.memory_mib for fit_ in misfits):
        edits.append(put("runners", runner.name, "memory", value=format_memory(share.memory_mib)))
    if any(fit_.deficit.pods > 0 for fit_ in misfits):
        edits.append(drop("pools", misfits[0].pool, "maxPods"))
    words = list(map(str, edits))
    if any(fit_.deficit.ephemeral_mib for fit_ in misfits):
        words.append(f"less scratch space, or a larger pools.{misfits[0].pool}.disk.size")
    larger = _smallest_that_fits(fleet, runner)
    grow = f"; or pools.{misfits[0].pool}.instances: [{larger.name}]" if larger else ""
    by_edits = not any(fit_.deficit.ephemeral_mib or fit_.deficit.gpus for fit_ in misfits)
    return " and ".join(words) + grow, tuple(edits) if by_edits else ()


def _smallest_that_fits(fleet: Fleet, runner: Runner) -> InstanceType | None:
    """Return the smallest instance type with the pool's GPU on which the runner, as it is written, would fit."""
    pool = fleet.pools[runner.pool]
    fractions = {instance.gpu_fraction for instance in pool.types}
    same = [t for t in catalog.gpu_instances(pool.gpu.key) if t.gpu_fraction in fractions]
    fitting = [instance for instance in same if fit_runner(fleet, runner, instance).per_node]
    return min(fitting, key=lambda instance: (instance.gpu_count, instance.vcpus, instance.memory_mib), default=None)


def _or_smaller(fleet: Fleet, runner: Runner, misfits: list[Fit]) -> _Fix:
    """Return the alternative where the runner only requests too much: a size that fits everywhere."""
    if any(fit_.deficit.gpus for fit_ in misfits):
        return "", ()
    words, edits = _fix(fleet, runner, misfits, _share_everywhere(fleet, runner))
    return f", or {words.split('; or ')[0]}", edits


def _unstrand(fleet: Fleet, runner: Runner, fit_: Fit) -> _Fix:
    share = share_of(fleet, runner, catalog.instance(fit_.instance))
    match fit_.limiting:
        case "cpu":
            edit = put("runners", runner.name, "cpu", value=format_cpu(share.cpu_m))
            return f"{edit}, its share of the node", (edit,)
        case "memory":
            edit = put("runners", runner.name, "memory", value=format_memory(share.memory_mib))
            return f"{edit}, its share of the node", (edit,)
        case "gpu":
            even = [str(n) for n in range(1, fit_.available.gpus + 1) if fit_.available.gpus % n == 0]
            return f"runners.{runner.name}.gpus: one of {', '.join(even)}", ()
        case "pods":
            types = fleet.pools[fit_.pool].types
            return f"fewer shares of a GPU: {min(instance.max_pods for instance in types)} pods have addresses", ()
        case "disk":
            return f"less scratch space, or a larger pools.{fit_.pool}.disk.size", ()


def _deficit(fleet: Fleet, fit_: Fit) -> str:
    lacking, request = fit_.deficit, fit_.request
    parts = [
        (lacking.gpus, f"{lacking.gpus} GPUs of {request.gpus}"),
        (lacking.cpu_m, f"{format_cpu(lacking.cpu_m)} CPU of {format_cpu(request.cpu_m)}"),
        (lacking.memory_mib, f"{format_memory(lacking.memory_mib)} memory of {format_memory(request.memory_mib)}"),
        (
            lacking.ephemeral_mib,
            f"{format_memory(lacking.ephemeral_mib)} disk of {format_memory(request.ephemeral_mib)}",
        ),
        (lacking.pods, f"a pod (maxPods {max_pods(fleet, fleet.pools[fit_.pool])})"),
    ]
    return ", ".join(text for amount, text in parts if amount)


def _amounts(request: Resources) -> str:
    return f"cpu {format_cpu(request.cpu_m)}, memory {format_memory(request.memory_mib)} and {request.gpus} GPU"


def _cautious_memory(fit_: Fit) -> int:
    return fit_.available.memory_mib - (fit_.allocatable.memory_mib - fit_.allocatable.cautious_memory_mib)
