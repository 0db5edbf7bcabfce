"""Runners of one scale set: its EphemeralRunnerSets, and each EphemeralRunner with its pod and its entry at GitHub."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.lab.github.client import Actions
from paddock.lab.simulators import arc_objects, runner_sets
from paddock.lab.simulators.arc_objects import GROUP, RUNNER
from paddock.lab.simulators.listener import Listener
from paddock.lab.simulators.runner_sets import VERSION

REFUSED_SECONDS = 2.0
"""Until a pod that the API server refused, such as for a quota, is tried again. ARC takes 30."""


@dataclass
class Served:
    """A scale set that GitHub knows."""

    number: int
    actions: Actions
    not_before: float = 0.0
    """When pods may be made again, in monotonic seconds."""


@dataclass
class Runners:
    """Those of one set. `tell` writes an event on the set."""

    api: Api
    runner_set: Object
    served: Served
    log: Callable[[str], None]

    def group(self) -> Object:
        """Return the EphemeralRunnerSet of the set as it is now, made if need be; older ones go when they are idle."""
        expected = arc_objects.template_hash(self.runner_set)
        current: Object | None = None
        for item in self._of(GROUP):
            hashed = (item["metadata"].get("annotations") or {}).get(arc_objects.SPEC_HASH)
            if item["metadata"].get("deletionTimestamp"):
                self._end_group(item)
            elif hashed == expected and current is None:
                current = item
            else:
                self.api.delete(item)
        return current or self.api.create(arc_objects.group(self.runner_set))

    def step(self, group: Object, listener: Listener | None) -> list[Object]:
        """Bring the runners to what the listener asks for; return the pods that are there."""
        there = self._runners(group, listener)
        if listener is None or listener.assigned is None:  # GitHub has not said yet what it wants
            return there
        if runner_sets.desired_runners(self.runner_set, listener.assigned) != len(there):
            figures = self.served.actions.scale_set(self.served.number)["statistics"]
            desired = runner_sets.desired_runners(self.runner_set, int(figures["totalAssignedJobs"]))
            self._want(group, desired)
            if desired > len(there) and time.monotonic() >= self.served.not_before:
                for _ in range(desired - len(there)):
                    self._add(group)
            elif desired < len(there):
                self._remove(there, len(there) - desired)
        return there

    def retire(self) -> bool:
        """Delete all runners that have no job, and their sets; return whether none is left."""
        groups = self._of(GROUP)
        for item in groups:
            if not item["metadata"].get("deletionTimestamp"):
                self.api.delete(item)
            self._end_group(item)
        for pod in self._pods().values() if not groups else ():
            self.api.delete(pod, gracePeriodSeconds="0")
        return not groups

    def _runners(self, group: Object, listener: Listener | None) -> list[Object]:
        """Follow every runner; return the pods of those that count."""
        # The pods before the figures: else a job that ends in between would get a surplus pod.
        pods, there = self._pods(), []
        for item in self._of(RUNNER):
            meta = item["metadata"]
            pod = pods.get(meta["name"])
            if meta.get("deletionTimestamp"):
                self._end(item, pod)
            elif not _owned(item, group):  # it ends with its set
                continue
            elif pod is None:
                self.api.delete(item)
                self._end(item, None)
            elif not self._cleared(item, pod):
                self._follow(item, pod, listener)
                there.append(pod)
        return there

    def _follow(self, item: Object, pod: Object, listener: Listener | None) -> None:
        before: dict[str, Any] = item.get("status") or {}
        job = listener.started.get(item["metadata"]["name"]) if listener else None
        status = {**before, **arc_objects.runner_status(pod, int(before.get("runnerId") or 0), job)}
        if before.get("phase") != "Failed" and status != before:
            self.api.patch(item, {"status": status}, "status")

    def _cleared(self, item: Object, pod: Object) -> bool:
        """Delete an ended runner as soon as GitHub has removed it; return whether it was deleted."""
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            return False
        if self.served.actions.find_runner(pod["metadata"]["name"]) is not None:
            return False
        self.api.delete(item)
        self._finish(item, pod)
        return True

    def _end_group(self, group: Object) -> None:
        """End the runners of a set that is deleted, and take its finalizer when none is left."""
        pods = self._pods()
        left = [item for item in self._of(RUNNER) if _owned(item, group)]
        for item in left:
            if not item["metadata"].get("deletionTimestamp"):
                if not self._signed_off(item):
                    continue
                self.api.delete(item)
            self._end(item, pods.get(item["metadata"]["name"]))
        if not left:
            self.api.patch(group, arc_objects.without(group, arc_objects.RUNNER_FINALIZER))

    def _end(self, item: Object, pod: Object | None) -> None:
        """Finish a runner that is deleted, unless GitHub says that it has a job."""
        if pod is None or self._signed_off(item):
            self._signed_off(item)
            self._finish(item, pod)

    def _finish(self, item: Object, pod: Object | None) -> None:
        if pod is not None:
            self.api.delete(pod, gracePeriodSeconds="0")
        if self.api.find(VERSION, RUNNER, item["metadata"]["name"], item["metadata"]["namespace"]):
            own = (arc_objects.RUNNER_FINALIZER, arc_objects.REGISTRATION_FINALIZER)
            self.api.patch(item, arc_objects.without(item, *own))

    def _signed_off(self, item: Object) -> bool:
        """Remove a runner at GitHub; return False where it has a job."""
        number = self.served.actions.find_runner(item["metadata"]["name"])
        return number is None or self.served.actions.remove_runner(number)

    def _want(self, group: Object, replicas: int) -> None:
        if group["spec"].get("replicas") != replicas:
            patch = int(group["spec"].get("patchID") or 0) + 1 if replicas else 0
            self.api.patch(group, {"spec": {"replicas": replicas, "patchID": patch}})

    def _add(self, group: Object) -> None:
        name = runner_sets.runner_name(group)
        number = self.served.actions.register(self.served.number, name)
        item = self.api.create(arc_objects.runner(self.runner_set, group, name))
        pod = runner_sets.runner_pod(self.runner_set, name, item)
        self.api.patch(item, {"status": arc_objects.runner_status(pod, number, None)}, "status")
        try:
            self.api.create(pod)
        except ApiError as error:
            self.served.not_before = time.monotonic() + REFUSED_SECONDS
            self.log(str(error))
            raise
        self.served.not_before = 0.0

    def _remove(self, there: list[Object], count: int) -> None:
        find, remove = self.served.actions.find_runner, self.served.actions.remove_runner
        numbers = {name: find(name) for name in (pod["metadata"]["name"] for pod in there)}
        items = {item["metadata"]["name"]: item for item in self._of(RUNNER)}
        # First the pods of runners whose job has just ended.
        for pod in sorted(runner_sets.surplus(there), key=lambda pod: numbers[pod["metadata"]["name"]] is not None):
            name = pod["metadata"]["name"]
            if count and name in items and not pod["metadata"].get("deletionTimestamp"):
                number = numbers[name]
                if number is None or remove(number):
                    self.api.delete(items[name])
                    self._finish(items[name], pod)
                    count -= 1

    def _pods(self) -> dict[str, Object]:
        namespace, selector = self.runner_set["metadata"]["namespace"], runner_sets.selector(self.runner_set)
        return {pod["metadata"]["name"]: pod for pod in self.api.list("v1", "Pod", namespace, labelSelector=selector)}

    def _of(self, kind: str) -> list[Object]:
        meta = self.runner_set["metadata"]
        label = f"{runner_sets.SET_LABEL}={meta['name']}"
        return self.api.list(VERSION, kind, meta["namespace"], labelSelector=label)


def _owned(item: Object, group: Object) -> bool:
    owners = item["metadata"].get("ownerReferences") or []
    return any(owner["uid"] == group["metadata"]["uid"] for owner in owners)
