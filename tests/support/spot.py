"""Interruptions and shortages of spot capacity in a lab, as AWS causes them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from http import HTTPStatus

from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import write_private
from paddock.lab.simulators import nodes
from paddock.lab.simulators.autoscaler import SHORTAGE

NOTICE_SECONDS = 4.0
"""Two minutes on AWS; a lab is watched."""


def reclaim(lab: Lab, name: str, *, notice_seconds: float = NOTICE_SECONDS) -> tuple[str, ...]:
    """Reclaim a node as AWS does. Return the evicted pods, `namespace/name`, once the node is gone.

    What a managed node group does with the notice: no new pod may come, and every pod that is not a DaemonSet's is
    evicted with its own grace period; when the notice ends the instance does, whatever still runs there. Its Auto
    Scaling group asks for another one. Fails for a node that is not a spot node of the lab.
    """
    with lab_api(lab.kubeconfig) as api:
        node = _spot_node(api, name)
        gone_at = time.monotonic() + notice_seconds
        api.patch(node, {"spec": {"unschedulable": True}})
        here = api.list("v1", "Pod", fieldSelector=f"spec.nodeName={name}")
        evicted = [p for p in here if pods.occupies_node(p) and not pods.is_from_daemonset(p) and _evict(api, p)]
        time.sleep(max(0.0, gone_at - time.monotonic()))
        nodes.shrink(api, name)
    return tuple(map(pods.name, evicted))


def set_shortage(lab: Lab, groups: Iterable[str]) -> None:
    """Deny capacity to these node groups alone from now on."""
    write_private(lab.folder / SHORTAGE, json.dumps(sorted(groups)))


def _spot_node(api: Api, name: str) -> Object:
    spot_nodes = api.list("v1", "Node", labelSelector="eks.amazonaws.com/capacityType=SPOT")
    return next(node for node in spot_nodes if node["metadata"]["name"] == name)


def _evict(api: Api, pod: Object) -> bool:
    """Evict a pod, as a drain does, with its own grace period; False where a budget forbids it or it is gone."""
    meta = {"name": pod["metadata"]["name"], "namespace": pod["metadata"]["namespace"]}
    path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/eviction"
    try:
        api.request("POST", path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta})
    except ApiError as error:
        if error.status in (HTTPStatus.NOT_FOUND, HTTPStatus.TOO_MANY_REQUESTS):
            return False
        raise
    return True
