"""Drain of scale sets and nodes, and its end. Values from before are kept on the object itself, and given back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from paddock.errors import PaddockError
from paddock.labels import DRAINED
from paddock.operate.runners.report import Change, Left
from paddock.operate.snapshot.model import Object, Reading, Snapshot, name
from paddock.operate.sources.unavailable import Unavailable
from paddock.operate.why.subject import own_sets, pool_nodes, runners_of, set_name

KEPT = DRAINED
"""Annotation with the values from before the drain; on a node: that the drain has cordoned it."""
PARTS = ("runner_sets", "runner_groups", "runners", "nodes")
_ENDED = ("Failed", "Succeeded", "Outdated")
_COUNTS = ("maxRunners", "minRunners")


class NotDrained(PaddockError):
    """Nothing is drained, so nothing can be given back."""

    exit_code = 2


class Writer(Protocol):
    """Interface to what changes the cluster."""

    def patch(self, item: Object, change: Mapping[str, Any]) -> None: ...

    def delete(self, item: Object) -> None: ...


@dataclass(frozen=True, slots=True)
class Scope:
    """Runners by their keys in the stack file, and pools whose nodes are meant too."""

    runners: Sequence[str]
    pools: Sequence[str] = ()


def known(reading: Reading, what: str) -> Reading:
    """Return a part of the snapshot that must be known. Raises Unavailable."""
    if not reading.known:
        raise Unavailable(f"{what}: {reading.reason}", reading.fix, reading.permission)
    return reading


def title(item: Object) -> str:
    return f"{item['kind']} {name(item)}"


def sets(snapshot: Snapshot, scope: Scope) -> list[Object]:
    """Return the scale sets that are in the cluster. Raises Unavailable where there is none."""
    names = {snapshot.fleet.runners[key].scale_set for key in scope.runners}
    known(snapshot.runner_sets, "scale sets")
    items = [item for item in own_sets(snapshot) if set_name(item) in names]
    if not items:
        raise Unavailable(f"the cluster has no scale set {', '.join(sorted(names))}", "./inv status")
    return items


def drain(snapshot: Snapshot, scope: Scope, writer: Writer, *, by: str = "") -> Iterator[Change]:
    """Let the scale sets take no new job, and no pod come to the pools' nodes; yield each step when it is done.

    `by` names the command on whose behalf it is, for `drained_by`.
    """
    items, machines = sets(snapshot, scope), _nodes(snapshot, scope)
    for item in items:
        spec, kept = item["spec"], _annotations(item).get(KEPT)
        if kept is not None and spec.get("maxRunners") == 0:
            yield Change(object=title(item), state="unchanged", message="is drained already")
            continue
        before = {key: spec[key] for key in _COUNTS if key in spec}
        who = {"by": by} if by else {}
        note = json.dumps({**before, **who, "at": f"{snapshot.at:%Y-%m-%dT%H:%M:%SZ}"}, sort_keys=True)
        change = {"metadata": {"annotations": {KEPT: note}}, "spec": {"maxRunners": 0, "minRunners": 0}}
        message = f"maxRunners {spec.get('maxRunners', 'unlimited')} to 0, minRunners {spec.get('minRunners', 0)} to 0"
        yield _tried(writer, item, change, message)
    for node in machines:
        if node["spec"].get("unschedulable"):
            yield Change(object=title(node), state="unchanged", message="is cordoned already")
        else:
            change = {"metadata": {"annotations": {KEPT: "cordoned"}}, "spec": {"unschedulable": True}}
            yield _tried(writer, node, change, "cordoned")


def drained_by(item: Object) -> str | None:
    """Return the command that drained a scale set, empty for `runners.drain` itself; None where it is not drained."""
    note = _annotations(item).get(KEPT)
    if note is None:
        return None
    try:
        return str(json.loads(note).get("by") or "")
    except (ValueError, AttributeError):
        return ""


def drained(snapshot: Snapshot, scope: Scope) -> list[Object]:
    """Return the scale sets and nodes that a drain has changed. Raises NotDrained and Unavailable."""
    items = [*sets(snapshot, scope), *_nodes(snapshot, scope)]
    kept = [item for item in items if KEPT in _annotations(item)]
    if not kept:
        raise NotDrained(
            f"nothing is drained: no annotation {KEPT} on {', '.join(title(item) for item in items)}"
            "\n    expected: what ./inv runners.drain has drained"
            "\n    fix: ./inv status; a max of 0 in the stack file is raised there, then pulumi up"
        )
    return kept


def resume(snapshot: Snapshot, scope: Scope, writer: Writer) -> Iterator[Change]:
    """Give back what a drain has kept; yield each step when it is done."""
    for item in drained(snapshot, scope):
        forget: dict[str, Any] = {"metadata": {"annotations": {KEPT: None}}}
        if item["kind"] == "Node":
            yield _tried(writer, item, {**forget, "spec": {"unschedulable": None}}, "not cordoned any more")
            continue
        now = item["spec"].get("maxRunners")
        if now != 0:
            message = f"was resumed by somebody else, and stays at maxRunners {now}"
            yield _tried(writer, item, forget, message)
            continue
        before = _kept(item)
        if before is None:
            yield Change(
                object=title(item),
                state="failed",
                message=f"the annotation {KEPT} is not what a drain writes, so the old values are not known",
                fix=f"kubectl -n {item['metadata']['namespace']} edit autoscalingrunnerset {item['metadata']['name']}",
            )
            continue
        change = {**forget, "spec": {key: before.get(key) for key in _COUNTS}}
        message = f"maxRunners {before.get('maxRunners', 'unlimited')}, minRunners {before.get('minRunners', 0)}"
        yield _tried(writer, item, change, message)


def left(snapshot: Snapshot, scope: Scope) -> list[Left]:
    """Return the runners that are still there, those with a job first. Raises Unavailable."""
    known(snapshot.runners, "runners")
    result = []
    for key in scope.runners:
        for item in runners_of(snapshot, key):
            status = item.get("status") or {}
            if status.get("phase") not in _ENDED:
                job = status.get("jobDisplayName") or status.get("jobId") or status.get("jobRequestId")
                result.append(
                    Left(
                        runner=name(item),
                        scale_set=snapshot.fleet.runners[key].scale_set,
                        job=str(job) if job else None,
                        workflow=str(status["jobWorkflowRef"]) if status.get("jobWorkflowRef") else None,
                        seconds=snapshot.age(item).total_seconds(),
                    )
                )
    return sorted(result, key=lambda one: (one.job is None, -one.seconds, one.runner))


def _nodes(snapshot: Snapshot, scope: Scope) -> list[Object]:
    if scope.pools:
        known(snapshot.nodes, "nodes")
    return [node for pool in scope.pools for node in pool_nodes(snapshot, snapshot.fleet.pools[pool])]


def _tried(writer: Writer, item: Object, change: Mapping[str, Any], message: str) -> Change:
    try:
        writer.patch(item, change)
    except Unavailable as error:
        return Change(object=title(item), state="failed", message=str(error), fix=error.fix)
    return Change(object=title(item), state="done", message=message)


def _kept(item: Object) -> dict[str, int] | None:
    try:
        kept = json.loads(_annotations(item)[KEPT])
        datetime.fromisoformat(kept["at"])
        values = {key: kept[key] for key in _COUNTS if key in kept}
    except (ValueError, TypeError, KeyError):
        return None
    return values if all(type(value) is int and value >= 0 for value in values.values()) else None


def _annotations(item: Object) -> Mapping[str, str]:
    return item["metadata"].get("annotations") or {}
