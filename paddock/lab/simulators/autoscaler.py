"""The lab's autoscaler, a process of its own: looks, decides (`paddock.lab.simulators.scaling`), and waits for boots.

    python -m paddock.lab.simulators.autoscaler FOLDER

It reads the node groups from `groups.json` in the lab's folder, and reads it again when it changes. Besides the
autoscaler it plays what else stands between a request and a node with GPUs: the Auto Scaling groups, the cloud's
controller and the device plugins (`paddock.lab.simulators.boot`).
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane import daemon
from paddock.lab.simulators import boot, nodes, scaling
from paddock.lab.simulators.scaling import Backoff, Group

POLL_SECONDS = 0.5
SHORTAGE = "run/without-capacity.json"
"""File in the lab's folder with the names of node groups that get no capacity, such as a test writes it."""
REFUSED_SECONDS = 1.0
"""From a request to the failed scaling activity that the autoscaler reads; EC2 says no before anything boots."""
BACKOFF, BACKOFF_MAX = 0.5, 3.0
"""Of the time after which an idle node goes: five minutes and half an hour of ten minutes in cluster-autoscaler."""


@dataclass(frozen=True, slots=True)
class Booting:
    """A booting node, with the times of its request and of its registration."""

    group: Group
    requested: float
    ready: float


@dataclass
class Autoscaler:
    """One cluster's."""

    api: Api
    groups: tuple[Group, ...] = ()
    idle_seconds: float = nodes.IDLE_SECONDS
    shortage: frozenset[str] = frozenset()
    """Groups without capacity."""
    booting: list[Booting] = field(default_factory=list)
    backoffs: dict[str, Backoff] = field(default_factory=dict)
    here: dict[str, str] = field(default_factory=dict)
    """Node -> its group, at the last look."""
    plugins: dict[str, float] = field(default_factory=dict)
    idle: dict[str, float] = field(default_factory=dict)
    logged: dict[str, str] = field(default_factory=dict)

    def configure(self, document: Mapping[str, Any]) -> None:
        """Use these groups from now on."""
        self.groups = tuple(Group(**group) for group in document["groups"])
        self.idle_seconds = document["idle_seconds"]

    def step(self, now: float) -> None:
        """Advance booting nodes, then observe the cluster and decide once."""
        self._boot(now)
        all_nodes, all_pods = self.api.list("v1", "Node"), self.api.list("v1", "Pod")
        daemonsets = self.api.list("apps/v1", "DaemonSet")
        self._start(all_nodes, all_pods, daemonsets, now)
        self._replace(all_nodes, now)
        self.idle = scaling.idle_since(all_nodes, all_pods, self.idle, now)
        decision = scaling.decide(
            self.groups,
            all_nodes,
            all_pods,
            booting=[starting.group.name for starting in self.booting],
            daemonsets=daemonsets,
            without=[name for name, backoff in self.backoffs.items() if now < backoff.until],
            idle=self.idle,
            now=now,
            idle_seconds=self.idle_seconds,
        )
        for name in decision.grow:
            self._request(next(group for group in self.groups if group.name == name), now)
            daemon.log(f"{name}: one node more")
        for pod in all_pods:
            if (name := pods.name(pod)) in decision.served:
                self._record_event(pod, f"pod triggered scale-up of {decision.served[name]}")
        for name in decision.shrink:
            self._give_back(next(node for node in all_nodes if node["metadata"]["name"] == name))
        for name, why in decision.unserved.items():
            if self.logged.get(name) != why:
                daemon.log(f"{name} waits: {why}")
        self.logged = dict(decision.unserved)

    def _record_event(self, pod: Object, message: str) -> None:
        """Write the event of cluster-autoscaler for a pod that a node is added for."""
        event = {
            **boot.event({"apiVersion": "v1", "kind": "Pod", **pod}, "Normal", "TriggeredScaleUp", message),
            "eventTime": datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z"),
            "action": "ScaleUp",
            "reportingComponent": "cluster-autoscaler",
            "reportingInstance": "paddock-lab",
        }
        event["metadata"]["generateName"] = f"{pod['metadata']['name']}."
        self.api.create(event)

    def _request(self, group: Group, now: float) -> None:
        self.booting.append(Booting(group, now, now + group.boot_seconds))

    def _boot(self, now: float) -> None:
        """Register nodes that have booted, and back off from groups without capacity."""
        for name in {b.group.name for b in self.booting if b.requested + REFUSED_SECONDS <= now} & self.shortage:
            self.booting = [node for node in self.booting if node.group.name != name]
            first, longest = BACKOFF * self.idle_seconds, BACKOFF_MAX * self.idle_seconds
            self.backoffs[name] = Backoff.after(self.backoffs.get(name), now, first, longest)
            daemon.log(f"{name} gets no capacity and is passed over for {self.backoffs[name].seconds:.0f} s")
        for node in [b for b in self.booting if b.ready <= now and b.group.name not in self.shortage]:
            name = nodes.grow(self.api, node.group)
            self.booting.remove(node)
            self.backoffs.pop(node.group.name, None)
            daemon.log(f"{name} has booted")

    def _start(
        self, all_nodes: Sequence[Object], all_pods: Sequence[Object], daemonsets: Sequence[Object], now: float
    ) -> None:
        """Remove the cloud's taint from new nodes, and add GPUs to those whose device plugin runs."""
        for node in all_nodes:
            if change := boot.initialized(node):
                self._change(node, change)
        self.plugins = boot.plugin_since(all_nodes, all_pods, daemonsets, self.plugins, now)
        plugin_seconds = {group.name: group.plugin_seconds for group in self.groups}
        for node in all_nodes:
            since = self.plugins.get(node["metadata"]["name"])
            if since is not None and since + plugin_seconds.get(scaling.group_of(node), 0.0) <= now:
                self._change(node, boot.advertised(node), "status")
                daemon.log(f"{node['metadata']['name']} has its GPUs")

    def _replace(self, all_nodes: Sequence[Object], now: float) -> None:
        """Replace nodes that disappeared without having been removed, as an Auto Scaling group does."""
        removed = {
            name: group for name, group in self.here.items() if name not in {n["metadata"]["name"] for n in all_nodes}
        }
        self.here = {node["metadata"]["name"]: scaling.group_of(node) for node in all_nodes}
        for name, group_name in removed.items():
            for group in self.groups:
                if group.name == group_name:
                    self._request(group, now)
                    daemon.log(f"{name} is gone: {group_name} asks for another")

    def _change(self, node: Object, change: Mapping[str, Any], subresource: str = "") -> None:
        """Patch a node; a conflict, or a node that is gone, is left to the next step."""
        try:
            self.api.patch(node, change, subresource)
        except ApiError as error:
            if error.status not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                raise

    def _give_back(self, node: Object) -> None:
        # The taint first: else a pod that is scheduled in the meantime would lose its node.
        name, key = node["metadata"]["name"], scaling.TO_BE_DELETED["key"]
        # It may be there of an attempt that failed half-way, and no taint may be there twice.
        before = [taint for taint in node["spec"].get("taints") or [] if taint["key"] != key]
        self.api.patch(node, {"spec": {"taints": [*before, scaling.TO_BE_DELETED]}})
        here = self.api.list("v1", "Pod", fieldSelector=f"spec.nodeName={name}")
        if any(pods.occupies_node(pod) and not pods.is_from_daemonset(pod) for pod in here):
            self.api.patch(node, {"spec": {"taints": before}})
            return
        # Before it goes: where the answer is lost, the node is gone all the same, and nothing may replace it.
        self.here.pop(name, None)
        nodes.shrink(self.api, name)
        daemon.log(f"{name} was idle for {self.idle_seconds:.0f} s and is given back")


def _shortage(folder: Path) -> frozenset[str]:
    try:
        return frozenset(json.loads((folder / SHORTAGE).read_text(encoding="utf-8")))
    except FileNotFoundError:
        return frozenset()


def main(folder: Path) -> None:
    """Run until the process is ended, also while the API server does not answer."""
    scaler = Autoscaler(lab_api(folder / "kubeconfig", timeout=10))
    configured = 0

    def step() -> None:
        nonlocal configured
        written = (folder / "groups.json").stat().st_mtime_ns
        if written != configured:
            scaler.configure(json.loads((folder / "groups.json").read_text(encoding="utf-8")))
            configured = written
        scaler.shortage = _shortage(folder)
        scaler.step(time.monotonic())

    daemon.repeat(step, lambda: time.sleep(POLL_SECONDS))


if __name__ == "__main__":
    daemon.run_until_terminated(lambda: main(Path(sys.argv[1])))
