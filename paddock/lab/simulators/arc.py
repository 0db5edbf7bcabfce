"""A stand-in for ARC, for labs without its programs: runner pods for the jobs that GitHub gives to scale sets.

    python -m paddock.lab.simulators.arc FOLDER URL

It makes GitHub's side see the calls that ARC 0.14 makes, from one process instead of a controller and a listener a
set, and it makes pods of the sets' templates. What runs in the pods is `paddock.lab.simulators.runners`.
"""

from __future__ import annotations

import base64
import http
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from paddock.kube.client import Api, Object
from paddock.kube.errors import ApiError
from paddock.lab.control_plane import daemon
from paddock.lab.control_plane.servers import Lab
from paddock.lab.github.client import Actions, ActionsError, credential
from paddock.lab.simulators import runner_sets, runners, timeline
from paddock.lab.simulators.listener import Listener
from paddock.lab.simulators.runner_sets import ID, KIND, VERSION

NAME = "arc"
_PROTECTION = "actions.github.com/cleanup-protection"
_RBAC = "rbac.authorization.k8s.io/v1"
_PROTECTED_KINDS = ((_RBAC, "RoleBinding"), (_RBAC, "Role"), ("v1", "ServiceAccount"), ("v1", "Secret"))
POLL_SECONDS = 0.5
REFUSED_SECONDS = 2.0
"""Until a pod that the API server refused, such as for a quota, is tried again. ARC takes 30."""


def start(lab: Lab, url: str) -> None:
    """Start the stand-in, and the programs of its runners, unless they run. `url`: GitHub's stand-in."""
    runners.start(lab, url)
    if not daemon.is_running(lab, NAME):
        daemon.start(lab, NAME, "paddock.lab.simulators.arc", str(lab.folder), url)


@dataclass
class Served:
    """A scale set that GitHub knows."""

    number: int
    actions: Actions
    listener: Listener
    registered: dict[str, int] = field(default_factory=dict)
    """Runners that this process registered."""
    not_before: float = 0.0
    """When pods may be made again, in monotonic seconds."""


@dataclass
class Controller:
    """One cluster's. `url` is the GitHub that it serves: sets of any other are left alone."""

    api: Api
    url: str
    changed: threading.Event = field(default_factory=threading.Event)
    served: dict[str, Served] = field(default_factory=dict)
    """By the uid of the set."""
    logged: dict[str, str] = field(default_factory=dict)

    def step(self) -> None:
        """Reconcile every set once. An error of one is logged and tried again in the next step."""
        sets = timeline.scale_sets(self.api)
        for uid in self.served.keys() - {runner_set["metadata"]["uid"] for runner_set in sets}:
            served = self.served.pop(uid)  # someone took its finalizer away
            served.listener.end(served.actions)
        for runner_set in sets:
            try:
                self._reconcile(runner_set)
                self.logged.pop(runner_set["metadata"]["uid"], None)
            except (ApiError, ActionsError) as error:
                self.say_once(runner_set, str(error))
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self.say_once(runner_set, f"it has not the form that ARC's chart gives it: {error!r}")

    def end(self) -> None:
        """Close the sessions, so that the next process need not wait for them."""
        for served in self.served.values():
            served.listener.end(served.actions)

    def say_once(self, runner_set: Object, text: str) -> None:
        meta = runner_set["metadata"]
        if self.logged.get(meta["uid"]) != text:
            self.logged[meta["uid"]] = text
            daemon.log(f"{meta['namespace']}/{meta['name']}: {text}")

    def _reconcile(self, runner_set: Object) -> None:
        url = runner_set["spec"]["githubConfigUrl"]
        if urlsplit(url).netloc != urlsplit(self.url).netloc:
            self.say_once(runner_set, f"its GitHub is {url}; this lab serves {self.url} only")
            return
        if runner_set["metadata"].get("deletionTimestamp"):
            self._retire(runner_set)
            return
        served = self.served.get(runner_set["metadata"]["uid"]) or self._serve(runner_set)
        served.listener.room = runner_sets.limits(runner_set)[1]
        self._scale(runner_set, served)

    def _serve(self, runner_set: Object) -> Served:
        meta = runner_set["metadata"]
        self._mark(runner_set, {"finalizers": sorted({*(meta.get("finalizers") or []), runner_sets.FINALIZER})})
        actions = self._actions(runner_set)
        number = self._number(runner_set, actions)
        room = runner_sets.limits(runner_set)[1]
        owner = f"{meta['name']}-listener"
        listener = Listener(self._actions(runner_set), number, owner, room, self.changed.set)
        listener.start()
        served = self.served[meta["uid"]] = Served(number, actions, listener)
        daemon.log(f"{meta['namespace']}/{meta['name']} is scale set {number} at GitHub")
        return served

    def _number(self, runner_set: Object, actions: Actions) -> int:
        """Return the number of the set at GitHub: the annotated one, the one of its name, or a new one."""
        spec, had = runner_set["spec"], (runner_set["metadata"].get("annotations") or {}).get(ID, "")
        if had.isdecimal():
            try:
                return int(actions.scale_set(int(had))["id"])
            except ActionsError as error:
                if error.status != http.HTTPStatus.NOT_FOUND:
                    raise
        name, group = runner_sets.set_name(runner_set), actions.group(spec.get("runnerGroup") or "default")
        scale_set = actions.find_set(name, group)
        if scale_set is None:
            scale_set = actions.create_set(name, group, spec.get("runnerScaleSetLabels") or [])
        annotations = {
            ID: str(scale_set["id"]),
            "actions.github.com/runner-scale-set-name": scale_set["name"],
            "actions.github.com/runner-group-name": scale_set["runnerGroupName"],
        }
        self._mark(runner_set, {"annotations": annotations})
        return int(scale_set["id"])

    def _scale(self, runner_set: Object, served: Served) -> None:
        if served.listener.assigned is None:  # GitHub has not said yet what it wants
            return
        meta = runner_set["metadata"]
        # The pods before the figures: else a job that ends in between would get a surplus pod.
        there = self.api.list("v1", "Pod", meta["namespace"], labelSelector=runner_sets.selector(runner_set))
        there = [pod for pod in there if not self._cleared(pod, served)]
        self._forget(served, {pod["metadata"]["name"] for pod in there})
        if runner_sets.desired_runners(runner_set, served.listener.assigned) != len(there):
            figures = served.actions.scale_set(served.number)["statistics"]
            more = runner_sets.desired_runners(runner_set, int(figures["totalAssignedJobs"])) - len(there)
            if more > 0 and time.monotonic() >= served.not_before:
                for _ in range(more):
                    self._add(runner_set, served)
            elif more < 0:
                self._remove(there, -more, served)
        status = runner_sets.status(runner_set, there)
        before = runner_set.get("status") or {}
        if {**before, **status} != before:
            self.api.patch(runner_set, {"status": status}, "status")

    def _cleared(self, pod: Object, served: Served) -> bool:
        """Delete an ended pod as soon as GitHub has removed its runner; return whether it was deleted."""
        if pod["status"].get("phase") not in ("Succeeded", "Failed"):
            return False
        if served.actions.find_runner(pod["metadata"]["name"]) is not None:
            return False
        self.api.delete(pod, grace_seconds=0)
        return True

    def _forget(self, served: Served, there: set[str]) -> None:
        for name, number in list(served.registered.items()):
            if name not in there and served.actions.remove_runner(number):
                del served.registered[name]

    def _add(self, runner_set: Object, served: Served) -> None:
        name = runner_sets.runner_name(runner_set)
        number = served.actions.register(served.number, name)
        served.registered[name] = number
        try:
            self.api.create(runner_sets.runner_pod(runner_set, name))
        except ApiError as error:
            served.not_before = time.monotonic() + REFUSED_SECONDS
            self._tell(runner_set, str(error))
            raise
        served.not_before = 0.0

    def _remove(self, there: list[Object], count: int, served: Served) -> None:
        numbers = {name: served.actions.find_runner(name) for name in (pod["metadata"]["name"] for pod in there)}
        # First the pods of runners whose job has just ended.
        for pod in sorted(runner_sets.surplus(there), key=lambda pod: numbers[pod["metadata"]["name"]] is not None):
            if count and not pod["metadata"].get("deletionTimestamp"):
                number = numbers[pod["metadata"]["name"]]
                if number is None or served.actions.remove_runner(number):
                    self.api.delete(pod, grace_seconds=0)
                    count -= 1

    def _retire(self, runner_set: Object) -> None:
        meta = runner_set["metadata"]
        served = self.served.get(meta["uid"])
        number = (meta.get("annotations") or {}).get(ID, "")
        if number.isdecimal() and runner_sets.FINALIZER in (meta.get("finalizers") or []):
            actions = served.actions if served else self._actions(runner_set)
            if served:
                served.listener.end(actions)
            for pod in self.api.list("v1", "Pod", meta["namespace"], labelSelector=runner_sets.selector(runner_set)):
                self.api.delete(pod, grace_seconds=0)
            actions.delete_set(int(number))
            self._release(meta)
            daemon.log(f"{meta['namespace']}/{meta['name']} is no scale set any more")
        self.served.pop(meta["uid"], None)
        finalizers = [finalizer for finalizer in meta.get("finalizers") or [] if finalizer != runner_sets.FINALIZER]
        if finalizers != (meta.get("finalizers") or []):
            self._mark(runner_set, {"finalizers": finalizers})

    def _release(self, meta: Object) -> None:
        """Remove the real chart's finalizers from its roles, accounts and secret."""
        annotations = meta.get("annotations") or {}
        names = {name for key, name in annotations.items() if key.startswith("actions.github.com/cleanup-")}
        if not names:
            return
        for version, kind in _PROTECTED_KINDS:
            for object_ in self.api.list(version, kind, meta["namespace"]):
                finalizers = object_["metadata"].get("finalizers") or []
                if object_["metadata"]["name"] in names and _PROTECTION in finalizers:
                    self._mark(
                        {"apiVersion": version, "kind": kind, **object_},
                        {"finalizers": [f for f in finalizers if f != _PROTECTION]},
                    )

    def _actions(self, runner_set: Object) -> Actions:
        spec, namespace = runner_set["spec"], runner_set["metadata"]["namespace"]
        secret = self.api.get("v1", "Secret", spec["githubConfigSecret"], namespace)
        clear = {key: base64.b64decode(value).decode() for key, value in (secret.get("data") or {}).items()}
        return Actions(spec["githubConfigUrl"], credential(clear), "paddock-lab-arc")

    def _mark(self, runner_set: Object, metadata: Object) -> None:
        self.api.patch(runner_set, {"metadata": metadata})

    def _tell(self, runner_set: Object, why: str) -> None:
        """Write the event of a controller whose pod was refused."""
        meta, now = runner_set["metadata"], time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        reference = {"apiVersion": VERSION, "kind": KIND, **{key: meta[key] for key in ("name", "namespace", "uid")}}
        self.api.apply(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": f"{meta['name']}.failed-create", "namespace": meta["namespace"]},
                "involvedObject": reference,
                "type": "Warning",
                "reason": "FailedCreate",
                "message": why[:1000],
                "lastTimestamp": now,
                "source": {"component": "paddock-lab-arc"},
            }
        )


def main(folder: Path, url: str) -> None:
    """Run until the process is ended."""
    controller = Controller(Api.of(folder / "kubeconfig", timeout=10), url)

    def wait() -> None:
        controller.changed.wait(POLL_SECONDS)
        controller.changed.clear()

    try:
        daemon.repeat(controller.step, wait)
    finally:
        controller.end()


if __name__ == "__main__":
    daemon.run_until_terminated(lambda: main(Path(sys.argv[1]), sys.argv[2]))
