"""Status of a fleet from a snapshot. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

from paddock import catalog
from paddock.catalog import UnknownInstanceType
from paddock.fleet import nodes
from paddock.fleet.model.pool import GpuPool
from paddock.kube import pods
from paddock.operate.chain.links.evidence import phase, ready
from paddock.operate.chain.links.machine import INTERRUPTED
from paddock.operate.chain.subject import pool_nodes, runner_pods, runners_of, subject
from paddock.operate.chain.walk import walk
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.status.report import Cost, Datum, PoolState, ScaleSetState, Status, Waiting
from paddock.plan.cost.money import Money, on_demand, spot, total, unknown

STARTS = timedelta(minutes=15)
"""Age up to which a node that is not ready counts as one that starts."""
_CAPACITY = "eks.amazonaws.com/capacityType"
_TYPE = "node.kubernetes.io/instance-type"
_EVERY = ("nodes", "pods", "events", "runner_sets", "runner_groups", "runners", "node_groups", "github_runners")


def status(snapshot: Snapshot, stack: str, context: str | None, seconds: float) -> Status:
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
        waiting_known=snapshot.runners.known and snapshot.pods.known,
        spot_interruptions=_interruptions(snapshot),
        cost=_cost(snapshot),
        data=tuple(_data(snapshot)),
    )


def _pools(snapshot: Snapshot) -> Iterable[PoolState]:
    used: dict[str, int] = defaultdict(int)
    for pod in snapshot.pods:
        if pods.occupies_node(pod):
            used[pod["spec"]["nodeName"]] += pods.requests(pod).get(nodes.GPU, 0) // 1000
    for pool in snapshot.fleet.pools.values():
        yield _pool(snapshot, pool, used)


def _pool(snapshot: Snapshot, pool: GpuPool, used: dict[str, int]) -> PoolState:
    known = snapshot.nodes.known
    present = pool_nodes(snapshot, pool)
    draining = [
        node for node in present if node["spec"].get("unschedulable") or "deletionTimestamp" in node["metadata"]
    ]
    others = [node for node in present if node not in draining]
    at_work = [node for node in others if ready(node) and _gpus(node)]
    starting = [node for node in others if node not in at_work and snapshot.age(node) < STARTS]
    broken = [node for node in others if node not in at_work and node not in starting]

    def count(items: list[Object]) -> int | None:
        return len(items) if known else None

    return PoolState(
        pool=pool.name,
        ready=count(at_work),
        starting=count(starting),
        broken=count(broken),
        draining=count(draining),
        most=pool.nodes.max,
        gpus_allocatable=sum(map(_gpus, present)) if known else None,
        gpus_allocated=sum(used[node["metadata"]["name"]] for node in present)
        if known and snapshot.pods.known
        else None,
    )


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
    waiting = []
    for key in snapshot.fleet.runners:
        about = subject(snapshot, key)
        item = about.runner or about.pod
        if item is None:
            continue
        result = walk(snapshot, about, stack)
        if result.verdict in ("broken", "waits") or phase(about.pod or {}) == "Pending":
            outcome = result.outcomes.get(result.link)
            waiting.append(
                Waiting(
                    scale_set=about.scale_set,
                    name=name(item),
                    seconds=snapshot.age(item).total_seconds(),
                    verdict=result.verdict,
                    link=result.link or None,
                    evidence=outcome.evidence if outcome else None,
                    fix=result.fix or None,
                )
            )
    return max(waiting, key=lambda one: one.seconds, default=None)


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
    money = total([_price(snapshot, node) for node in snapshot.nodes], "USD/hour")
    return Cost(
        usd_per_hour=None if money.value is None else round(money.value, 4),
        as_of=money.as_of.isoformat() if money.as_of else None,
        sources=money.sources,
        missing=money.missing,
    )


def _price(snapshot: Snapshot, node: Object) -> Money:
    labels = node["metadata"].get("labels") or {}
    type_ = str(labels.get(_TYPE) or "a type that no label names")
    try:
        instance = catalog.instance(type_)
    except UnknownInstanceType:
        return unknown(type_, "USD/hour")
    price = spot if labels.get(_CAPACITY) == nodes.EKS_CAPACITY["spot"] else on_demand
    return price(instance, snapshot.fleet.region)


def _data(snapshot: Snapshot) -> Iterable[Datum]:
    readings = snapshot.readings()
    for part in _EVERY:
        reading = readings[part]
        age = (datetime.now(UTC) - reading.at).total_seconds() if reading.at else None
        yield Datum(
            part=part,
            age_seconds=None if age is None else round(max(age, 0.0), 1),
            unknown=reading.reason or ("the cluster has no such kind" if reading.absent else None),
            permission=reading.permission or None,
        )
