"""Listeners of all scale sets: each AutoscalingListener with its pod, and what runs in the pod as a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.lab.control_plane import daemon
from paddock.lab.github.client import Actions, ActionsError
from paddock.lab.simulators import arc_objects, timeline
from paddock.lab.simulators.arc_objects import GROUP, LISTENER
from paddock.lab.simulators.listener import Listener
from paddock.lab.simulators.runner_sets import VERSION


@dataclass
class Listeners:
    """Those of one cluster. `changed` is called when there may be more or less to do."""

    api: Api
    changed: Callable[[], None]
    actions: Callable[[Object], Actions]
    """Gives a client of GitHub for a set."""
    running: dict[str, Listener] = field(default_factory=dict)
    """By the uid of the AutoscalingListener."""

    def step(self, namespace: str, sets: Iterable[Object]) -> None:
        """Check every listener once."""
        items = timeline.known(self.api, LISTENER, namespace)
        by_name = {(scale_set["metadata"]["namespace"], scale_set["metadata"]["name"]): scale_set for scale_set in sets}
        for uid in self.running.keys() - {item["metadata"]["uid"] for item in items}:
            self._stop(uid)
        for item in items:
            spec = item["spec"]
            owner = by_name.get((spec["autoscalingRunnerSetNamespace"], spec["autoscalingRunnerSetName"]))
            try:
                self._follow(item, owner)
            except (ApiError, ActionsError) as error:
                daemon.log(f"{item['metadata']['name']}: {error}")

    def of(self, item: Object | None, group: Object) -> Listener | None:
        """Return the listener that runs for an AutoscalingListener and asks for runners of this EphemeralRunnerSet."""
        if item is None or item["spec"]["ephemeralRunnerSetName"] != group["metadata"]["name"]:
            return None
        return self.running.get(item["metadata"]["uid"])

    def end(self) -> None:
        for uid in list(self.running):
            self._stop(uid)

    def _follow(self, item: Object, owner: Object | None) -> None:
        meta = item["metadata"]
        pod = self.api.find("v1", "Pod", meta["name"], meta["namespace"])
        if meta.get("deletionTimestamp"):
            self._stop(meta["uid"])
            if pod:
                self._delete(pod)
            elif arc_objects.LISTENER_FINALIZER in (meta.get("finalizers") or []):
                self.api.patch(item, arc_objects.without(item, arc_objects.LISTENER_FINALIZER))
            return
        if pod is None:
            self._stop(meta["uid"])
            if owner is not None:
                self.api.create(arc_objects.listener_pod(item))
        elif pod["status"].get("phase") in ("Failed", "Succeeded"):
            self._stop(meta["uid"])
            self._delete(pod)
        elif owner is not None and pod["status"].get("phase") == "Running" and self._serves(item):
            if meta["uid"] not in self.running:
                self._start(item, owner)
        else:
            self._stop(meta["uid"])

    def _serves(self, item: Object) -> bool:
        """Return whether the runners that the listener would ask for can be: of one that is gone it gets an error."""
        spec = item["spec"]
        name, namespace = spec["ephemeralRunnerSetName"], spec["autoscalingRunnerSetNamespace"]
        return self.api.find(VERSION, GROUP, name, namespace) is not None

    def _start(self, item: Object, owner: Object) -> None:
        meta, spec = item["metadata"], item["spec"]
        number, most = int(spec["runnerScaleSetId"]), int(spec["maxRunners"])
        listener = Listener(lambda: self.actions(owner), number, meta["name"], most, self.changed)
        listener.start()
        self.running[meta["uid"]] = listener

    def _stop(self, uid: str) -> None:
        if listener := self.running.pop(uid, None):
            listener.end()

    def _delete(self, pod: Object) -> None:
        self.api.delete({"apiVersion": "v1", "kind": "Pod", **pod}, gracePeriodSeconds="0")
