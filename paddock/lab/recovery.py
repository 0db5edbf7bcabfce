"""After a run of the engine that was killed: what it was making may be there without the engine knowing.

The engine's state names each such operation as pending. A plain `up` leaves it at that and makes the resource once
more. The engine's own `refresh --import-pending-creates` forgets the operation and imports nothing (Pulumi 3.259), so
the state is edited here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.lab import processes
from paddock.lab.engine import Engine


@dataclass(frozen=True, slots=True)
class Recovered:
    """What became of the operations that a run had under way when it was killed, by URN."""

    adopted: tuple[str, ...]
    """Made, and now in the state."""
    doubled: tuple[str, ...]
    """Made once more by a later run; the next one deletes what is too much."""
    dropped: tuple[str, ...]
    """Not made, or not known whether they were: Kubernetes objects have names of their own and are made again."""


def recover(engine: Engine) -> Recovered:
    """Makes a stack whole again after a run that was killed: ends what is left of it, frees the stack, and tells the
    engine what was made unseen.

    Nothing else is changed where nothing is pending. Raises EngineError.
    """
    processes.stop(processes.marked(engine.state))
    engine.unlock()
    kept = json.loads(engine.exported())
    if not kept["deployment"].get("pending_operations"):
        return Recovered((), (), ())
    after, recovered = settled(kept["deployment"], unknown(kept["deployment"], engine.made()))
    engine.restore(json.dumps({**kept, "deployment": after}))
    if recovered.adopted or recovered.doubled:
        engine.refresh()  # their outputs are in the cloud alone
    return recovered


def unknown(deployment: Mapping[str, Any], made: Mapping[str, str]) -> dict[str, list[str]]:
    """URN -> ids of what was made (`made`: "type id" -> URN) and stands in no state."""
    known = {f"{resource['type']} {resource.get('id')}" for resource in deployment.get("resources") or []}
    found: dict[str, list[str]] = {}
    for key, urn in made.items():
        if key not in known:
            found.setdefault(urn, []).append(key.split(" ", 1)[1])
    return found


def settled(deployment: Mapping[str, Any], found: Mapping[str, Sequence[str]]) -> tuple[dict[str, Any], Recovered]:
    """The state with no operation pending. `found` has the ids of what was made unseen, by URN.

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
            continue  # the state has the resource, and the next run finds out
        if not found.get(urn):
            dropped.append(urn)
        for id_ in found.get(urn, ()):
            too_much = urn in live
            resources.append({**operation["resource"], "id": id_, **({"delete": True} if too_much else {})})
            (doubled if too_much else adopted).append(urn)
            live.add(urn)
    return after, Recovered(tuple(adopted), tuple(doubled), tuple(dropped))
