"""A stand-in for ARC, for labs without its programs: runner pods for the jobs that GitHub gives to scale sets.

    python -m paddock.lab.simulators.arc FOLDER URL

It makes GitHub's side see the calls that ARC 0.14 makes, from one process instead of a controller and a listener a
set, and the cluster the objects: listeners, EphemeralRunnerSets and runners with their pods, phases and finalizers
(`arc_objects`). What runs in the runners' pods is `paddock.lab.simulators.runners`.
"""

from __future__ import annotations

import base64
import contextlib
import http
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane import daemon
from paddock.lab.control_plane.servers import Lab
from paddock.lab.github.client import Actions, ActionsError, credential
from paddock.lab.simulators import arc_objects, boot, runner_sets, runners, timeline
from paddock.lab.simulators.arc_listeners import Listeners
from paddock.lab.simulators.arc_runners import Runners, Served
from paddock.lab.simulators.runner_sets import ID, KIND, VERSION
from paddock.labels import LAB_KEEPS_STALE

NAME = "arc"
NAMESPACE = "arc-systems"
"""Of listeners, where the cluster has no controller's Deployment."""
_PROTECTION = "actions.github.com/cleanup-protection"
_RBAC = "rbac.authorization.k8s.io/v1"
_PROTECTED_KINDS = ((_RBAC, "RoleBinding"), (_RBAC, "Role"), ("v1", "ServiceAccount"), ("v1", "Secret"))
POLL_SECONDS = 0.5


def start(lab: Lab, url: str) -> None:
    """Start the stand-in, and the programs of its runners, unless they run. `url`: GitHub's stand-in."""
    runners.start(lab, url)
    if not daemon.is_running(lab, NAME):
        daemon.start(lab, NAME, "paddock.lab.simulators.arc", str(lab.folder), url)


@dataclass
class Controller:
    """One cluster's. `url` is the GitHub that it serves: sets of any other are left alone."""

    api: Api
    url: str
    changed: threading.Event = field(default_factory=threading.Event)
    served: dict[str, Served] = field(default_factory=dict)
    """By the uid of the set."""
    logged: dict[str, str] = field(default_factory=dict)
    namespace: str = NAMESPACE
    version: str = "dev"
    """Version of the controller's Deployment; ARC's own name for one that serves every version, where there is none."""

    def __post_init__(self) -> None:
        self.listeners = Listeners(self.api, self.changed.set, self._actions)

    def step(self) -> None:
        """Reconcile every object once. An error of one is logged and tried again in the next step."""
        if not self._works():
            return
        sets = timeline.scale_sets(self.api)
        for uid in self.served.keys() - {runner_set["metadata"]["uid"] for runner_set in sets}:
            del self.served[uid]  # someone took its finalizer away
        for runner_set in sets:
            with self._logged(runner_set):
                self._reconcile(runner_set)
        self.listeners.step(self.namespace, sets)

    def end(self) -> None:
        """Close the sessions, so that the next process need not wait for them."""
        self.listeners.end()

    def say_once(self, runner_set: Object, text: str) -> None:
        meta = runner_set["metadata"]
        if self.logged.get(meta["uid"]) != text:
            self.logged[meta["uid"]] = text
            daemon.log(f"{meta['namespace']}/{meta['name']}: {text}")

    @contextlib.contextmanager
    def _logged(self, item: Object) -> Iterator[None]:
        try:
            yield
            self.logged.pop(item["metadata"]["uid"], None)
        except (ApiError, ActionsError) as error:
            self.say_once(item, str(error))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            self.say_once(item, f"it does not have the form that ARC's chart gives it: {error!r}")

    def _works(self) -> bool:
        """Read which controller the cluster has; return False while none of its pods runs."""
        deployments = self.api.list(
            "apps/v1", "Deployment", labelSelector="app.kubernetes.io/part-of=gha-rs-controller"
        )
        if not deployments:
            return True
        meta, status = deployments[0]["metadata"], deployments[0].get("status") or {}
        self.namespace = meta["namespace"]
        replicas = deployments[0]["spec"].get("replicas", 1)
        updated = status.get("observedGeneration") == meta["generation"]
        # Before all are updated, the leader may be an old one.
        if updated and status.get("updatedReplicas") == status.get("replicas") == replicas:
            self.version = (meta.get("labels") or {}).get(arc_objects.LABEL_VERSION, "dev")
        return bool(status.get("availableReplicas"))

    def _reconcile(self, runner_set: Object) -> None:
        meta, url = runner_set["metadata"], runner_set["spec"]["githubConfigUrl"]
        if urlsplit(url).netloc != urlsplit(self.url).netloc:
            self.say_once(runner_set, f"its GitHub is {url}; this lab serves {self.url} only")
            return
        if meta.get("deletionTimestamp"):
            self._retire(runner_set)
            return
        labelled = (meta.get("labels") or {}).get(arc_objects.LABEL_VERSION, "")
        if not arc_objects.version_allowed(labelled, self.version):
            daemon.log(f"{meta['namespace']}/{meta['name']} is {labelled}, the controller {self.version}: deleted")
            self.api.delete(runner_set)
            return
        served = self.served.get(meta["uid"]) or self._serve(runner_set)
        runners = Runners(self.api, runner_set, served, lambda why: self._log(runner_set, why))
        group = runners.group()
        item = self._listener(runner_set, group)
        there = runners.step(group, self.listeners.of(item, group))
        status = runner_sets.status(runner_set, there)
        runner_sets.set_status(self.api, group, arc_objects.group_status(status))
        runner_sets.set_status(self.api, runner_set, status if item else {**status, "phase": "Pending"})

    def _serve(self, runner_set: Object) -> Served:
        meta = runner_set["metadata"]
        self._mark(runner_set, {"finalizers": sorted({*(meta.get("finalizers") or []), runner_sets.FINALIZER})})
        actions = self._actions(runner_set)
        number = self._number(runner_set, actions)
        served = self.served[meta["uid"]] = Served(number, actions)
        daemon.log(f"{meta['namespace']}/{meta['name']} is scale set {number} at GitHub")
        return served

    def _number(self, runner_set: Object, actions: Actions) -> int:
        """Return the number of the set at GitHub: the annotated one, the one of its name, or a new one."""
        spec, annotations = runner_set["spec"], runner_set["metadata"].setdefault("annotations", {})
        if annotations.get(ID, "").isdecimal():
            try:
                return int(actions.scale_set(int(annotations[ID]))["id"])
            except ActionsError as error:
                if error.status != http.HTTPStatus.NOT_FOUND:
                    raise
        name, group = runner_sets.set_name(runner_set), actions.group(spec.get("runnerGroup") or "default")
        scale_set = actions.find_set(name, group)
        if scale_set is None:
            scale_set = actions.create_set(name, group, spec.get("runnerScaleSetLabels") or [])
        identity = {
            ID: str(scale_set["id"]),
            "actions.github.com/runner-scale-set-name": scale_set["name"],
            "actions.github.com/runner-group-name": scale_set["runnerGroupName"],
        }
        self._mark(runner_set, {"annotations": identity})
        annotations.update(identity)
        return int(scale_set["id"])

    def _listener(self, runner_set: Object, group: Object) -> Object | None:
        """Return the set's listener; None while one that is out of date goes, or a new one comes."""
        name = arc_objects.listener_name(runner_set)
        item = self.api.find(VERSION, arc_objects.LISTENER, name, self.namespace)
        if item is None:
            self.api.create(arc_objects.listener(runner_set, group, self.namespace))
            return None
        item = {"apiVersion": VERSION, "kind": arc_objects.LISTENER, **item}
        if item["metadata"].get("deletionTimestamp"):
            return None
        annotations = item["metadata"].get("annotations") or {}
        stale = item["spec"]["ephemeralRunnerSetName"] != group["metadata"]["name"]
        outdated = any(annotations.get(key) != value for key, value in arc_objects.listener_hashes(runner_set).items())
        if (stale or outdated) and LAB_KEEPS_STALE not in (runner_set["metadata"].get("annotations") or {}):
            self.api.delete(item)
            return None
        return item

    def _retire(self, runner_set: Object) -> None:
        """Delete what a set has in ARC's order: listener, runners, its entry at GitHub, then its finalizer."""
        meta = runner_set["metadata"]
        served = self.served.get(meta["uid"])
        number = (meta.get("annotations") or {}).get(ID, "")
        if number.isdecimal() and runner_sets.FINALIZER in (meta.get("finalizers") or []):
            name = arc_objects.listener_name(runner_set)
            if item := self.api.find(VERSION, arc_objects.LISTENER, name, self.namespace):
                if not item["metadata"].get("deletionTimestamp"):
                    self.api.delete({"apiVersion": VERSION, "kind": arc_objects.LISTENER, **item})
                return
            served = served or Served(int(number), self._actions(runner_set))
            if not Runners(self.api, runner_set, served, lambda why: None).retire():
                return
            served.actions.delete_set(int(number))
            self._release(meta)
            daemon.log(f"{meta['namespace']}/{meta['name']} is not a scale set any more")
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

    def _log(self, runner_set: Object, why: str) -> None:
        """Write the event of a controller whose pod was refused."""
        event = {
            **boot.event({"apiVersion": VERSION, "kind": KIND, **runner_set}, "Warning", "FailedCreate", why[:1000]),
            "lastTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "source": {"component": "paddock-lab-arc"},
        }
        event["metadata"]["name"] = f"{runner_set['metadata']['name']}.failed-create"
        self.api.apply(event)


def main(folder: Path, url: str) -> None:
    """Run until the process is ended."""
    controller = Controller(lab_api(folder / "kubeconfig", timeout=10), url)

    def wait() -> None:
        controller.changed.wait(POLL_SECONDS)
        controller.changed.clear()

    try:
        daemon.repeat(controller.step, wait)
    finally:
        controller.end()


if __name__ == "__main__":
    daemon.run_until_terminated(lambda: main(Path(sys.argv[1]), sys.argv[2]))
