"""Interruptions and shortages of spot capacity, as AWS causes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path

from paddock.kube import pods
from paddock.kube.client import Api, Object
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import write_private
from paddock.lab.errors import LabInputError
from paddock.lab.simulators import nodes
from paddock.lab.simulators.scaling import Group

NOTICE_SECONDS = 4.0
"""Two minutes on AWS; a lab is watched."""
_SHORTAGE = "run/without-capacity.json"


def reclaim(lab: Lab, name: str, *, notice_seconds: float = NOTICE_SECONDS) -> tuple[str, ...]:
    """Reclaim a node as AWS does. Return the evicted pods, `namespace/name`, once the node is gone.

    What a managed node group does with the notice: no new pod may come, and every pod that is no DaemonSet's is
    evicted with its own grace period; when the notice ends the instance does, whatever still runs there. Its Auto
    Scaling group asks for another one. Raises LabInputError for a node that is not there or no spot node.
    """
    with Api.of(lab.kubeconfig) as api:
        node = _spot_node(api, name)
        gone_at = time.monotonic() + notice_seconds
        api.patch(node, {"spec": {"unschedulable": True}})
        here = api.list("v1", "Pod", fieldSelector=f"spec.nodeName={name}")
        evicted = [p for p in here if pods.occupies_node(p) and not pods.is_from_daemonset(p) and api.evict(p)]
        time.sleep(max(0.0, gone_at - time.monotonic()))
        nodes.shrink(api, [name])
    return tuple(map(pods.name, evicted))


def set_shortage(lab: Lab, groups: Iterable[str]) -> None:
    """Deny capacity to these node groups alone from now on. Raises LabInputError for an unknown group."""
    node_groups = json.loads((lab.folder / "groups.json").read_text(encoding="utf-8"))["groups"]
    names = sorted(groups)
    for name in names:
        nodes.group_named([Group(**group) for group in node_groups], name)
    write_private(lab.folder / _SHORTAGE, json.dumps(names))


def shortage(folder: Path) -> frozenset[str]:
    """Return the node groups without capacity."""
    try:
        return frozenset(json.loads((folder / _SHORTAGE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return frozenset()


def _spot_node(api: Api, name: str) -> Object:
    spot_nodes = {
        node["metadata"]["name"]: node
        for node in api.list("v1", "Node", labelSelector="eks.amazonaws.com/capacityType=SPOT")
    }
    try:
        return spot_nodes[name]
    except KeyError:
        expected = f"one of {', '.join(sorted(spot_nodes))}" if spot_nodes else "a spot node, and there is none now"
        raise LabInputError(f"{name} is no spot node of the lab\n    expected: {expected}") from None
