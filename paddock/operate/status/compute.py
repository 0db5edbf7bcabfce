"""Status of a fleet from a snapshot. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta

from paddock import catalog
from paddock.catalog import UnknownInstanceType
from paddock.fleet import nodes
from paddock.fleet.model.cluster import NewCluster
from paddock.fleet.model.pool import GpuPool
from paddock.kubernetes import pods
from paddock.labels import POOL
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.status.report import ControlPlane, Cost, Datum, PoolState, ScaleSetState, Status, Waiting
from paddock.operate.why.links.capacity import running_for, without_node
from paddock.operate.why.links.evidence import phase, ready
from paddock.operate.why.links.launches import scaling_names
from paddock.operate.why.links.node import INTERRUPTED
from paddock.operate.why.objects import used_by_node
from paddock.operate.why.subject import of_queued, pool_nodes, runner_pods, runners_of, subject
from paddock.operate.why.walk import Walk, verdict, walk
from paddock.plan.cost.money import Money, total, unknown
from paddock.plan.cost.nodes import instance_price

STARTS = timedelta(minutes=15)
"""Age up to which a node that is not ready counts as one that starts."""
_CAPACITY = "eks.amazonaws.com/capacityType"
_TYPE = "node.kubernetes.io/instance-type"
_EVERY: Mapping[str, str] = {
    **dict.fromkeys(("nodes", "pods", "events", "runner_sets", "listeners", "runner_groups", "runners"), "cluster"),
    **dict.fromkeys(("node_groups", "scaling_groups", "activities"), "AWS"),
    **dict.fromkeys(("jobs", "github_runners"), "GitHub"),
}
"""Parts of a snapshot, with who says them."""


def status(
    snapshot: Snapshot, stack: str, context: str | None, seconds: float, control_plane: ControlPlane | None = None
) -> Status:
    """Return the state of a fleet. What the snapshot does not know is None."""
    return Status(
        stack=stack,
        fleet=snapshot.fleet.name,
        region=snapshot.fleet.region,
        context=context,
        at=snapshot.at,
        seconds=round(seconds, 2),
        pools=tuple(_pools(snapshot)),
        scale_sets=tuple(_scale_set(snapshot, key) for key in snapshot.fleet.runners),
        oldest_waiting=_oldest(snapshot, stack),
        waiting_known=snapshot.runners.known and snapshot.pods.known and snapshot.jobs.known,
        spot_interruptions=_interruptions(snapshot),
        cost=_cost(snapshot),
        data=tuple(_data(snapshot)),
        control_plane=control_plane,
    )


def _pools(snapshot: Snapshot) -> Iterable[PoolState]:
    used = used_by_node(snapshot)
    for pool in snapshot.fleet.pools.values():
        yield _pool(snapshot, pool, used)


def _pool(snapshot: Snapshot, pool: GpuPool, used: Mapping[str, Mapping[str, int]]) -> PoolState:
    known = snapshot.nodes.known
    present = pool_nodes(snapshot, pool)
    draining = [
        node for node in present if node["spec"].get("unschedulable") or "deletionTimestamp" in node["metadata"]
    ]
    others = [node for node in present if node not in draining]
    at_work = [node for node in others if ready(node) and _gpus(node)]
    starting = [node for node in others if node not in at_work and snapshot.age(node) < STARTS]
    broken = [node for node in others if node not in at_work and node not in starting]
    # EC2 instances take minutes before they are nodes. Where they are not known, neither is what starts.
    booting = _booting(snapshot, pool)
    on = [node for node in present if ready(node)]  # of the others nobody knows whether their GPUs can be had

    def count(items: list[Object]) -> int | None:
        return len(items) if known else None

    return PoolState(
        pool=pool.name,
        ready=count(at_work),
        starting=len(starting) + booting.count(True) if known and booting is not None else None,
        broken=len(broken) + (booting or []).count(False) if known else None,
        draining=count(draining),
        most=pool.nodes.max,
        gpus_allocatable=sum(map(_gpus, on)) if known else None,
        gpus_allocated=sum(used.get(node["metadata"]["name"], {}).get(nodes.GPU, 0) // 1000 for node in on)
        if known and snapshot.pods.known
        else None,
    )


def _booting(snapshot: Snapshot, pool: GpuPool) -> list[bool] | None:
    """Return for each instance of a pool that is not a node yet whether it is young; None where nobody knows."""
    if not snapshot.fleet.owns_nodes:
        return []
    if not (snapshot.nodes.known and snapshot.scaling_groups.known and snapshot.node_groups.known):
        return None
    groups = [group for group in snapshot.node_groups if (group.get("labels") or {}).get(POOL) == pool.name]
    own = {name for group in groups for name in scaling_names(group)}
    ids = [
        id_
        for scaling in snapshot.scaling_groups
        if scaling.get("AutoScalingGroupName") in own
        for id_ in without_node(snapshot, scaling)
    ]
    return [running_for(snapshot, id_) < STARTS for id_ in ids]


def _gpus(node: Object) -> int:
    return pods.amounts((node.get("status") or {}).get("allocatable")).get(nodes.GPU, 0) // 1000


def _scale_set(snapshot: Snapshot, key: str) -> ScaleSetState:
    spec = snapshot.fleet.runners[key]
    about = subject(snapshot, key)
    most = snapshot.fleet.max_runners(spec)
    if about.runner_set is not None:
        most = int(about.runner_set["spec"].get("maxRunners", most))
    states = list(_runner_states(snapshot, key))
    known = snapshot.pods.known and snapshot.runners.known
    desired = (about.runner_group or {}).get("spec", {}).get("replicas")
    least = int((about.runner_set or {"spec": {}})["spec"].get("minRunners") or 0)
    return ScaleSetState(
        scale_set=spec.scale_set,
        phase=(phase(about.runner_set) or None) if about.runner_set else None,
        assigned=None if desired is None else max(int(desired) - least, 0),
        running=states.count("running") if known else None,
        idle=states.count("idle") if known else None,
        starting=states.count("starting") if known else None,
        failed=states.count("failed") if known else None,
        most=most,
    )


def _runner_states(snapshot: Snapshot, key: str) -> Iterable[str]:
    own = runners_of(snapshot, key)
    of_runners = {item["metadata"]["name"] for item in own}
    by_name = {pod["metadata"]["name"]: pod for pod in runner_pods(snapshot, key)}
    for item in own:
        state = item.get("status") or {}
        if state.get("phase") in ("Failed", "Outdated"):
            yield "failed"
        elif state.get("jobId") or state.get("jobDisplayName") or state.get("jobRequestId"):
            yield "running"
        else:
            yield "idle" if phase(by_name.get(item["metadata"]["name"], {})) == "Running" else "starting"
    for pod_name, pod in by_name.items():
        if pod_name not in of_runners:  # another controller than ARC's makes pods alone
            yield {"Running": "running", "Failed": "failed"}.get(phase(pod), "starting")


def _oldest(snapshot: Snapshot, stack: str) -> Waiting | None:
    waiting = [*_waiting_jobs(snapshot, stack), *_waiting_runners(snapshot, stack)]
    # Of a scale set that takes no job nobody knows since when.
    return max(waiting, key=lambda item: -1.0 if item.seconds is None else item.seconds, default=None)


def _waiting_jobs(snapshot: Snapshot, stack: str) -> Iterable[Waiting]:
    """Yield what keeps each queued job, by the scale set that is nearest to taking it."""
    for job, subjects in of_queued(snapshot):
        results = [walk(snapshot, subject, stack) for subject in subjects]
        nearest = next(result for result in results if result.verdict == verdict(results))
        title = f"job {job.get('id')} ({job.get('name') or 'without a name'})"
        seconds = snapshot.since(job.get("created_at"), "github").total_seconds()
        yield _as_waiting(nearest, title, seconds)


def _waiting_runners(snapshot: Snapshot, stack: str) -> Iterable[Waiting]:
    """Yield runners that wait or are in trouble, and scale sets that take no job at all."""
    for key in snapshot.fleet.runners:
        about = subject(snapshot, key)
        item = about.runner or about.pod
        result = walk(snapshot, about, stack)
        if result.verdict == "broken" and result.link in _BEFORE_RUNNERS:
            yield _as_waiting(result, f"scale set {about.scale_set}", None)
        elif item is not None and (result.verdict in ("broken", "waits") or phase(about.pod or {}) == "Pending"):
            yield _as_waiting(result, name(item), snapshot.age(item).total_seconds())


_BEFORE_RUNNERS = ("github", "scale-set", "listener")
"""Links at which no runner is made."""


def _as_waiting(result: Walk, title: str, seconds: float | None) -> Waiting:
    outcome = result.outcomes.get(result.link)
    return Waiting(
        scale_set=result.subject.scale_set,
        name=title,
        seconds=seconds,
        verdict=result.verdict,
        link=result.link or None,
        evidence=outcome.evidence if outcome else None,
        fix=result.fix or None,
    )


def _interruptions(snapshot: Snapshot) -> int | None:
    if not snapshot.events.known:
        return None
    noticed = {
        event["involvedObject"].get("name")
        for event in snapshot.events
        if event.get("reason") in INTERRUPTED and event["involvedObject"].get("kind") == "Node"
    }
    return len(noticed)


def _cost(snapshot: Snapshot) -> Cost:
    if not snapshot.nodes.known:
        return Cost(usd_per_hour=None, as_of=None, sources=(), missing=(f"nodes: {snapshot.nodes.reason}",))
    money = total([_price(snapshot, node) for node in _own_nodes(snapshot)], "USD/hour")
    return Cost(
        usd_per_hour=None if money.value is None else round(money.value, 4),
        as_of=money.as_of.isoformat() if money.as_of else None,
        sources=money.sources,
        missing=money.missing,
    )


def _own_nodes(snapshot: Snapshot) -> list[Object]:
    """Return the nodes that are there for the fleet: in a cluster of somebody else's, those of its pools."""
    if isinstance(snapshot.fleet.cluster, NewCluster):
        return list(snapshot.nodes)
    return [node for pool in snapshot.fleet.pools.values() for node in pool_nodes(snapshot, pool)]


def _price(snapshot: Snapshot, node: Object) -> Money:
    labels = node["metadata"].get("labels") or {}
    type_ = str(labels.get(_TYPE) or "a type that no label names")
    try:
        instance = catalog.instance(type_)
    except UnknownInstanceType:
        return unknown(type_, "USD/hour")
    capacities = (capacity for capacity, eks in nodes.EKS_CAPACITY.items() if eks == labels.get(_CAPACITY))
    bought: nodes.CapacityName = next(capacities, "on-demand")
    return instance_price(instance, bought, snapshot.fleet.region)


def _data(snapshot: Snapshot) -> Iterable[Datum]:
    readings = snapshot.readings()
    for part, source in _EVERY.items():
        reading = readings[part]
        age = (datetime.now(UTC) - reading.at).total_seconds() if reading.at else None
        yield Datum(
            part=part,
            source=source,
            age_seconds=None if age is None else round(max(age, 0.0), 1),
            unknown=reading.reason or ("the cluster does not have this kind" if reading.absent else None),
            permission=reading.permission or None,
        )
