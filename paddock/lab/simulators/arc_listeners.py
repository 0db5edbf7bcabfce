"""Listeners of all scale sets: each AutoscalingListener with its pod, and what runs in the pod as a thread."""

from __future__ import annotations

import http
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from paddock.kube.client import Api, Object
from paddock.kube.errors import ApiError
from paddock.lab.control_plane import daemon
from paddock.lab.github.client import Actions, ActionsError
from paddock.lab.simulators import arc_objects
from paddock.lab.simulators.arc_objects import GROUP, LISTENER
from paddock.lab.simulators.listener import Listener
from paddock.lab.simulators.runner_sets import VERSION


@dataclass
class Running:
    """A listener at work."""

    listener: Listener
    actions: Actions


@dataclass
class Listeners:
    """Those of one cluster. `changed` is called when there may be more or less to do."""

    api: Api
    changed: Callable[[], None]
    running: dict[str, Running] = field(default_factory=dict)
    """By the uid of the AutoscalingListener."""

    def step(self, namespace: str, sets: Iterable[Object], actions: Callable[[Object], Actions]) -> None:
        """Check every listener once. `actions` gives a client of GitHub for a set."""
        items = self._items(namespace)
        by_name = {(scale_set["metadata"]["namespace"], scale_set["metadata"]["name"]): scale_set for scale_set in sets}
        for uid in self.running.keys() - {item["metadata"]["uid"] for item in items}:
            self._stop(uid)
        for item in items:
            spec = item["spec"]
            owner = by_name.get((spec["autoscalingRunnerSetNamespace"], spec["autoscalingRunnerSetName"]))
            try:
                self._follow(item, owner, actions)
            except (ApiError, ActionsError) as error:
                daemon.log(f"{item['metadata']['name']}: {error}")

    def of(self, item: Object | None, group: Object) -> Listener | None:
        """Return the listener that runs for an AutoscalingListener and asks for runners of this EphemeralRunnerSet."""
        if item is None or item["spec"]["ephemeralRunnerSetName"] != group["metadata"]["name"]:
            return None
        entry = self.running.get(item["metadata"]["uid"])
        return entry.listener if entry else None

    def end(self) -> None:
        for uid in list(self.running):
            self._stop(uid)

    def _items(self, namespace: str) -> list[Object]:
        try:
            return self.api.list(VERSION, LISTENER, namespace)
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise
            return []  # ARC's CRDs are not there yet

    def _follow(self, item: Object, owner: Object | None, actions: Callable[[Object], Actions]) -> None:
        meta = item["metadata"]
        pod = self.api.find("v1", "Pod", meta["name"], meta["namespace"])
        if meta.get("deletionTimestamp"):
            self._stop(meta["uid"])
            if pod:
                self.api.delete({"apiVersion": "v1", "kind": "Pod", **pod}, grace_seconds=0)
            elif arc_objects.LISTENER_FINALIZER in (meta.get("finalizers") or []):
                self.api.patch(item, arc_objects.without(item, arc_objects.LISTENER_FINALIZER))
            return
        if pod is None:
            self._stop(meta["uid"])
            if owner is not None:
                self.api.create(arc_objects.listener_pod(item))
        elif pod["status"].get("phase") in ("Failed", "Succeeded"):
            self._stop(meta["uid"])
            self.api.delete({"apiVersion": "v1", "kind": "Pod", **pod}, grace_seconds=0)
        elif owner is not None and pod["status"].get("phase") == "Running" and self._serves(item):
            if meta["uid"] not in self.running:
                self._start(item, owner, actions)
        else:
            self._stop(meta["uid"])

    def _serves(self, item: Object) -> bool:
        """Return whether the runners that the listener would ask for can be: of one that is gone it gets an error."""
        spec = item["spec"]
        name, namespace = spec["ephemeralRunnerSetName"], spec["autoscalingRunnerSetNamespace"]
        return self.api.find(VERSION, GROUP, name, namespace) is not None

    def _start(self, item: Object, owner: Object, actions: Callable[[Object], Actions]) -> None:
        meta, spec = item["metadata"], item["spec"]
        listener = Listener(
            actions(owner), int(spec["runnerScaleSetId"]), meta["name"], int(spec["maxRunners"]), self.changed
        )
        listener.start()
        self.running[meta["uid"]] = Running(listener, actions(owner))

    def _stop(self, uid: str) -> None:
        if entry := self.running.pop(uid, None):
            entry.listener.end(entry.actions)
