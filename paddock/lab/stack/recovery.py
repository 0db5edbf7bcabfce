"""Recovery after a killed run of the engine: a resource may exist that the engine's state does not hold.

The state lists each such operation as pending. A plain `up` ignores it and creates the resource again. The engine's own
`refresh --import-pending-creates` drops the operation and imports nothing (Pulumi 3.259), so the state is edited here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import processes
from paddock.lab.stack.engine import YES, Engine
from paddock.plan.engine.resource_types import RELEASE


@dataclass(frozen=True, slots=True)
class Recovered:
    """Operations that were pending when a run was killed, by URN."""

    adopted: tuple[str, ...] = ()
    """Created, and now in the state."""
    doubled: tuple[str, ...] = ()
    """Created again by a later run; the next one deletes the surplus."""
    dropped: tuple[str, ...] = ()
    """Not created, or objects of a cluster, which the next run adopts by their names."""


def recover(engine: Engine) -> Recovered:
    """Repair a stack after a run that was killed, or that lost its cluster in the middle.

    Processes of the run are ended, the stack is unlocked, and the engine learns which resources exist without a
    record. Without pending operations the state stays as it is. Raises EngineError and Unreachable.
    """
    processes.stop(processes.marked(engine.state))
    engine.command("cancel", "--yes")
    engine.takes_over = True  # an object that was made when its answer was lost is nowhere in the state
    released = _releases(engine)
    exported = json.loads(engine.exported())
    pending = exported["deployment"].get("pending_operations")
    if not pending:
        return Recovered()
    unrecorded = unrecorded_ids(exported["deployment"], engine.created_resources())
    for resource in (operation["resource"] for operation in pending):
        inputs = resource.get("inputs") or {}
        if resource["type"] == RELEASE and (id_ := f"{inputs.get('namespace')}/{inputs.get('name')}") in released:
            unrecorded[resource["urn"]] = [id_]
    after, recovered = settled(exported["deployment"], unrecorded)
    engine.command("stack", "import", stdin=json.dumps({**exported, "deployment": after}))
    engine.run("refresh", *YES)  # outputs of what was made, and whether what was to be deleted is gone: the clouds know
    return recovered


def unrecorded_ids(deployment: Mapping[str, Any], created: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the ids of resources in `created` ("type id" -> URN) that are in no state, by URN."""
    recorded = {f"{resource['type']} {resource.get('id')}" for resource in deployment.get("resources") or []}
    ids: dict[str, list[str]] = {}
    for key, urn in created.items():
        if key not in recorded:
            ids.setdefault(urn, []).append(key.split(" ", 1)[1])
    return ids


def settled(deployment: Mapping[str, Any], unrecorded: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], Recovered]:
    """Return the state without pending operations. `unrecorded`: ids of resources without a record, by URN.

    One of them takes the place that its URN has in the stack; where that is taken, and for every further one, it is
    marked for deletion, as the engine marks what it has replaced.
    """
    after = copy.deepcopy(dict(deployment))
    resources = after.setdefault("resources", [])
    live = {resource["urn"] for resource in resources if not resource.get("delete")}
    adopted, doubled, dropped = list[str](), list[str](), list[str]()
    pending = {operation["resource"]["urn"]: operation for operation in after.pop("pending_operations", [])}
    for urn, operation in pending.items():
        if operation["type"] != "creating":
            continue  # the state has the resource, and a refresh tells what became of it
        if not unrecorded.get(urn):
            dropped.append(urn)
        for id_ in unrecorded.get(urn, ()):
            too_much = urn in live
            resources.append({**operation["resource"], "id": id_, **({"delete": True} if too_much else {})})
            (doubled if too_much else adopted).append(urn)
            live.add(urn)
    return after, Recovered(tuple(adopted), tuple(doubled), tuple(dropped))


def _releases(engine: Engine) -> set[str]:
    """Return the ids of the releases in the cluster that Helm has finished.

    An unfinished one blocks itself for ever ("cannot re-use a name", "another operation is in progress"). Its record is
    deleted, and the next run adopts its objects.
    """
    if engine.kubeconfig is None:
        return set()
    finished = set()
    with lab_api(engine.kubeconfig) as api:
        for record in api.list("v1", "Secret", labelSelector="owner=helm"):
            labels, namespace = record["metadata"]["labels"], record["metadata"]["namespace"]
            if labels["status"].startswith("pending-"):
                api.delete(record)
            elif labels["status"] == "deployed":
                finished.add(f"{namespace}/{labels['name']}")
    return finished
