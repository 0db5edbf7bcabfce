"""The lab's autoscaler, a process of its own: looks, decides (`paddock.lab.scaling`), and waits for boots.

    python -m paddock.lab.autoscaler FOLDER

It reads the node groups from `groups.json` in the lab's folder, and reads it again when it changes.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paddock.lab import nodes, pods, scaling
from paddock.lab.api import Api, ApiError, Object, Unreachable
from paddock.lab.scaling import Group

LOOK_SECONDS = 0.5


@dataclass
class Autoscaler:
    """One cluster's. `clock` is monotonic seconds."""

    api: Api
    groups: tuple[Group, ...] = ()
    boots: Mapping[str, float] = field(default_factory=dict)
    idle_seconds: float = nodes.IDLE_SECONDS
    booting: list[tuple[float, Group]] = field(default_factory=list)
    idle: dict[str, float] = field(default_factory=dict)
    told: dict[str, str] = field(default_factory=dict)

    def follow(self, document: Mapping[str, Any]) -> None:
        """Takes these groups from now on."""
        self.groups = tuple(Group(**each) for each in document["groups"])
        self.boots, self.idle_seconds = document["boot_seconds"], document["idle_seconds"]

    def step(self, now: float) -> None:
        """Registers what has booted, then looks and decides once."""
        for ready, group in [each for each in self.booting if each[0] <= now]:
            (name,) = nodes.grow(self.api, group)
            self.booting.remove((ready, group))
            _say(f"{name} has booted")
        seen, all_pods = self.api.list("v1", "Node"), self.api.list("v1", "Pod")
        self.idle = scaling.idle_since(seen, all_pods, self.idle, now)
        decision = scaling.decide(
            self.groups,
            seen,
            all_pods,
            booting=[group.name for _, group in self.booting],
            daemonsets=self.api.list("apps/v1", "DaemonSet"),
            idle=self.idle,
            now=now,
            idle_seconds=self.idle_seconds,
        )
        for name in decision.grow:
            group = nodes.group_named(self.groups, name)
            self.booting.append((now + self.boots.get(group.pool, nodes.BOOT_SECONDS), group))
            _say(f"{name}: one node more")
        for name in decision.shrink:
            self._give_back(next(node for node in seen if node["metadata"]["name"] == name))
        for pod, why in decision.unserved.items():
            if self.told.get(pod) != why:
                _say(f"{pod} waits: {why}")
        self.told = dict(decision.unserved)

    def _give_back(self, node: Object) -> None:
        # The taint first: a pod that came between the look and this would else lose its node.
        name, before = node["metadata"]["name"], node["spec"].get("taints") or []
        self.api.patch(node, {"spec": {"taints": [*before, scaling.TO_BE_DELETED]}})
        here = self.api.list("v1", "Pod", fieldSelector=f"spec.nodeName={name}")
        if any(pods.holds_room(pod) and not pods.of_daemonset(pod) for pod in here):
            self.api.patch(node, {"spec": {"taints": before}})
            return
        nodes.shrink(self.api, [name])
        _say(f"{name} was idle for {self.idle_seconds:.0f} s and is given back")


def main(folder: Path) -> None:
    """Runs until it is ended. An API server that is away for a while is waited for."""
    scaler = Autoscaler(Api.of(folder / "kubeconfig", timeout=10))
    read, complained = 0, ""
    while True:
        try:
            written = (folder / "groups.json").stat().st_mtime_ns
            if written != read:
                scaler.follow(json.loads((folder / "groups.json").read_text(encoding="utf-8")))
                read = written
            scaler.step(time.monotonic())
            complained = ""
        except (ApiError, Unreachable, OSError, ValueError) as error:
            if str(error) != complained:
                _say(complained := str(error))
        time.sleep(LOOK_SECONDS)


def _say(text: str) -> None:
    sys.stdout.write(f"{time.strftime('%H:%M:%S')} {text}\n")
    sys.stdout.flush()


def _end(_signal: int, _frame: object) -> None:
    raise SystemExit(0)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _end)
    with contextlib.suppress(KeyboardInterrupt):
        main(Path(sys.argv[1]))
