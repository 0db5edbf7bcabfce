"""Findings on the fit of runners: those that would wait for ever, strand GPUs or outgrow their pool."""

from __future__ import annotations

from collections.abc import Iterator

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.fleet import Fleet, NewCluster
from paddock.fleet.model.pool import GpuPool
from paddock.fleet.model.quantity import format_cpu, format_memory
from paddock.fleet.model.runner import Runner
from paddock.fleet.sizing.capacity import (
    COORDINATOR,
    EVICTION_MEMORY_MIB,
    Resources,
    Share,
    capacity,
    max_pods,
    reserved,
    runner_request,
    share_of,
)
from paddock.fleet.sizing.daemonsets import gpu_node_daemonsets, node_daemonsets
from paddock.plan.finding import Finding, Severity
from paddock.plan.fit import Fit, fit_counts, fit_runner

SYSTEM_LOAD = Resources(cpu_m=1000, memory_mib=1536, pods=12)
"""What system nodes carry besides runners: ARC, autoscaler, CoreDNS, NFD master and the EBS CSI controllers."""
LISTENER = Resources(cpu_m=50, memory_mib=64, pods=1)
"""One a scale set, on system nodes."""


def findings(fleet: Fleet, fits: tuple[Fit, ...]) -> tuple[Finding, ...]:
    """Return the findings runner by runner, then pool by pool."""
    results: list[Finding] = []
    for runner in fleet.runners.values():
        of_runner = tuple(fit_ for fit_ in fits if fit_.runner == runner.name)
        results += _does_not_fit(fleet, runner, of_runner)
        results += _refused_by_estimate(fleet, runner, of_runner)
        results += _stranded(fleet, runner, of_runner)
        results += _unreachable_maximum(fleet, runner, of_runner)
    for pool in fleet.pools.values():
        results += _idle_runners(fleet, pool, tuple(fit_ for fit_ in fits if fit_.pool == pool.name))
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
        roomiest, largest = _largest(fleet, runner)
        yield Finding(
            "FIT001",
            "error",
            f"runners.{runner.name}",
            f"its jobs would never start: {request}, which no instance type of pool {fits[0].pool} has free: "
            f"{missing}. "
            f"The largest that fits is cpu {format_cpu(largest.cpu_m)}, memory {format_memory(largest.memory_mib)} "
            f"on {roomiest.name}",
            _fix(fleet, runner, misfits, largest),
        )
        return
    # While a pool is empty the autoscaler plans with the least that any of its types has, and buys nothing for more.
    from_zero = fleet.owns_nodes and fleet.pools[fits[0].pool].nodes.min == 0
    usable = ", ".join(fit_.instance for fit_ in fits if fit_.per_node)
    consequence = (
        "From an empty pool the autoscaler buys no node for it, and later it may buy one that cannot be used"
        if from_zero
        else "The autoscaler may buy a node that it cannot use"
    )
    severity: Severity = "error" if from_zero else "warning"
    yield Finding(
        "FIT002",
        severity,
        f"runners.{runner.name}",
        f"it fits on {usable} only: {request}, and {missing}. {consequence}",
        f"give it a pool with pools.<name>.instances: [{usable}]{_or_smaller(fleet, runner, misfits)}",
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
        f"runners.{runner.name}.memory: {format_memory(safe.memory_mib)}",
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
            _unstrand(fleet, runner, fit_),
        )


def _unreachable_maximum(fleet: Fleet, runner: Runner, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    most = max(fit_.per_node for fit_ in fits)
    nodes = fleet.pools[runner.pool].nodes.max
    if runner.max is not None and most and runner.max > nodes * most:
        yield Finding(
            "FIT005",
            "warning",
            f"runners.{runner.name}.max",
            f"{runner.max} jobs at a time are more than pool {runner.pool} can hold: {nodes} nodes of at most {most}",
            f"runners.{runner.name}.max: {nodes * most}, or pools.{runner.pool}.nodes.max: {-(-runner.max // most)}",
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
        )
    if own >= limit:
        yield Finding(
            "FIT009",
            "error",
            f"pools.{pool.name}.maxPods",
            f"{own} DaemonSets run on each node, so {limit} pods leave none for a job",
            f"leave pools.{pool.name}.maxPods out, or write at least {own + 1}",
        )


def _coordinators(fleet: Fleet, fits: tuple[Fit, ...]) -> Iterator[Finding]:
    """Runners whose jobs have pods of their own wait on system nodes; those must hold them all."""
    if not isinstance(fleet.cluster, NewCluster):
        return
    runners = [runner for runner in fleet.runners.values() if runner.container == "kubernetes-novolume"]
    runner_pods = sum(fleet.max_runners(runner) for runner in runners)
    system, coordinator = fleet.cluster.system, Resources(COORDINATOR.cpu_m, COORDINATOR.memory_mib, pods=1)
    least = min((_system_node(fleet, catalog.instance(name)) for name in system.instances), key=lambda room: room.cpu_m)
    used = SYSTEM_LOAD + LISTENER * len(fleet.runners)

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
            f"{system.nodes.max} of {system.instances[0]} hold {held(system.nodes.max)} beside the controllers",
            f"cluster.system.nodes.max: {enough}, or larger cluster.system.instances"
            if enough
            else "larger cluster.system.instances",
        )


def _system_node(fleet: Fleet, instance: InstanceType) -> Resources:
    """Return what a system node has for pods. It keeps EKS's own maxPods."""
    has, keeps, own = capacity(instance), reserved(instance, instance.max_pods), node_daemonsets(fleet)
    return Resources(
        cpu_m=has.cpu_m - keeps.cpu_m - sum(daemonset.cpu_m for daemonset in own),
        memory_mib=has.cautious_memory_mib
        - keeps.memory_mib
        - EVICTION_MEMORY_MIB
        - sum(daemonset.memory_mib for daemonset in own),
        pods=instance.max_pods - len(own),
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


def _largest(fleet: Fleet, runner: Runner) -> tuple[InstanceType, Share]:
    """Return the largest share of a runner of this kind on a type of its pool, and the type."""
    pool = fleet.pools[runner.pool]
    usable = [instance for instance in pool.types if pool.gpu_resources_per_node(instance) >= runner.gpus]
    shares = [(instance, share_of(fleet, runner, instance)) for instance in usable]
    return max(shares, key=lambda pair: (pair[1].memory_mib, pair[1].cpu_m))


def _fix(fleet: Fleet, runner: Runner, misfits: list[Fit], largest: Share) -> str:
    edits = []
    if any(fit_.deficit.cpu_m for fit_ in misfits):
        edits.append(f"runners.{runner.name}.cpu: {format_cpu(largest.cpu_m)}")
    if any(fit_.deficit.memory_mib for fit_ in misfits):
        edits.append(f"runners.{runner.name}.memory: {format_memory(largest.memory_mib)}")
    if any(fit_.deficit.ephemeral_mib for fit_ in misfits):
        edits.append(f"less scratch space, or a larger pools.{misfits[0].pool}.disk.size")
    if any(fit_.deficit.pods > 0 for fit_ in misfits):
        edits.append(f"leave pools.{misfits[0].pool}.maxPods out")
    larger = _smallest_that_fits(fleet, runner)
    grow = f"; or pools.{misfits[0].pool}.instances: [{larger.name}]" if larger else ""
    return " and ".join(edits) + grow


def _smallest_that_fits(fleet: Fleet, runner: Runner) -> InstanceType | None:
    """Return the smallest instance type with the pool's GPU on which the runner, as it is written, would fit."""
    pool = fleet.pools[runner.pool]
    fractions = {instance.gpu_fraction for instance in pool.types}
    same = [t for t in catalog.gpu_instances(pool.gpu.key) if t.gpu_fraction in fractions]
    fitting = [instance for instance in same if fit_runner(fleet, runner, instance).per_node]
    return min(fitting, key=lambda instance: (instance.gpu_count, instance.vcpus, instance.memory_mib), default=None)


def _or_smaller(fleet: Fleet, runner: Runner, misfits: list[Fit]) -> str:
    """Return the alternative where the runner only requests too much: a size that fits everywhere."""
    if any(fit_.deficit.gpus for fit_ in misfits):
        return ""
    shares = [share_of(fleet, runner, instance) for instance in fleet.pools[misfits[0].pool].types]
    least = Share(min(share.cpu_m for share in shares), min(share.memory_mib for share in shares))
    return f", or {_fix(fleet, runner, misfits, least).split('; or ')[0]}"


def _unstrand(fleet: Fleet, runner: Runner, fit_: Fit) -> str:
    share = share_of(fleet, runner, catalog.instance(fit_.instance))
    match fit_.limiting:
        case "cpu":
            return f"runners.{runner.name}.cpu: {format_cpu(share.cpu_m)}, its share of the node"
        case "memory":
            return f"runners.{runner.name}.memory: {format_memory(share.memory_mib)}, its share of the node"
        case "gpu":
            even = [str(n) for n in range(1, fit_.available.gpus + 1) if fit_.available.gpus % n == 0]
            return f"runners.{runner.name}.gpus: one of {', '.join(even)}"
        case "pods":
            types = fleet.pools[fit_.pool].types
            return f"fewer shares of a GPU: {min(instance.max_pods for instance in types)} pods have addresses"
        case "disk":
            return f"less scratch space, or a larger pools.{fit_.pool}.disk.size"


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
