"""Limits and names in an AutoscalingRunnerSet, and the runner pods that ARC creates from it. Pure functions."""

from __future__ import annotations

import copy
import secrets
import string
from collections.abc import Iterable, Mapping
from typing import Any

from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object

VERSION, KIND = "actions.github.com/v1alpha1", "AutoscalingRunnerSet"
RUNNER_LABEL = "actions-ephemeral-runner"
"""ARC's mark on the pods whose program is a runner."""
FINALIZER = "autoscalingrunnerset.actions.github.com/finalizer"
ID = "runner-scale-set-id"
"""Annotation with the set's number at GitHub."""
SET_LABEL, _NAMESPACE = "actions.github.com/scale-set-name", "actions.github.com/scale-set-namespace"
_UNLIMITED = 2**31 - 1
_LETTERS = string.ascii_lowercase + string.digits


def set_name(runner_set: Object) -> str:
    """Return the name at GitHub."""
    return str(runner_set["spec"].get("runnerScaleSetName") or runner_set["metadata"]["name"])


def limits(runner_set: Object) -> tuple[int, int]:
    """Runners that are kept ready, and runners there may be at once."""
    spec = runner_set["spec"]
    most = spec.get("maxRunners")
    return int(spec.get("minRunners") or 0), _UNLIMITED if most is None else int(most)


def desired_runners(runner_set: Object, assigned: int) -> int:
    """Return the number of runners for a set with this many assigned jobs: the warm ones are added."""
    least, most = limits(runner_set)
    return min(least + assigned, most)


def selector(runner_set: Object) -> str:
    """Return the label selector of a set's runner pods."""
    return ",".join(f"{name}={value}" for name, value in _marks(runner_set).items())


def runner_name(group: Object) -> str:
    """Return a new name of an EphemeralRunnerSet's runner, for its pod and for GitHub."""
    return f"{group['metadata']['name']}-runner-{''.join(secrets.choice(_LETTERS) for _ in range(5))}"


def owner(item: Object) -> Object:
    """Return the reference of an object to the one that controls it."""
    meta = item["metadata"]
    reference = {"apiVersion": item.get("apiVersion", VERSION), "kind": item.get("kind", KIND)}
    return {**reference, "name": meta["name"], "uid": meta["uid"], "controller": True, "blockOwnerDeletion": True}


def set_status(api: Api, item: Object, status: Object) -> None:
    """Write what is new of an object's status."""
    before = item.get("status") or {}
    if {**before, **status} != before:
        api.patch(item, {"status": status}, "status")


def runner_pod(runner_set: Object, name: str, runner: Object) -> Object:
    """Return the pod of a runner: spec and annotations of the set's template, with ARC's labels.

    ARC adds three environment variables with which the runner's program logs in; nothing here would read them.
    """
    meta, template = runner_set["metadata"], copy.deepcopy(runner_set["spec"]["template"])
    own, given = template.get("metadata") or {}, meta.get("annotations") or {}
    inherited = ("actions.github.com/runner-group-name", "actions.github.com/runner-scale-set-name")
    labels = {
        **(meta.get("labels") or {}),
        "app.kubernetes.io/part-of": "gha-runner-scale-set",
        "app.kubernetes.io/component": "runner",
        **{f"actions.github.com/{key}": value for key, value in _github(runner_set).items()},
        **(own.get("labels") or {}),
        **_marks(runner_set),
    }
    annotations = {**{key: given[key] for key in inherited if key in given}, **(own.get("annotations") or {})}
    own_meta = {"name": name, "namespace": meta["namespace"], "labels": labels, "annotations": annotations}
    own_meta["ownerReferences"] = [owner(runner)]
    return {"apiVersion": "v1", "kind": "Pod", "metadata": own_meta, "spec": template["spec"]}


def status(runner_set: Object, runners: Iterable[Object]) -> dict[str, Any]:
    """Return the set's status, as `kubectl get autoscalingrunnersets` shows it."""
    phases = [pod.get("status", {}).get("phase", "Pending") for pod in runners]
    return {
        "currentRunners": len(phases),
        "pendingEphemeralRunners": phases.count("Pending"),
        "runningEphemeralRunners": phases.count("Running"),
        "failedEphemeralRunners": phases.count("Failed"),
        "phase": "Running",
    }


def surplus(runners: Iterable[Object]) -> list[Object]:
    """Pods in the order in which they may go: those that wait for a node first, and of these the youngest."""

    def order(pod: Object) -> tuple[bool, bool]:
        return (pod["status"].get("phase") == "Running", pods.occupies_node(pod))

    young_first = sorted(runners, key=lambda pod: str(pod["metadata"].get("creationTimestamp")), reverse=True)
    return sorted(young_first, key=order)


def _marks(runner_set: Object) -> dict[str, str]:
    meta = runner_set["metadata"]
    return {RUNNER_LABEL: "True", SET_LABEL: meta["name"], _NAMESPACE: meta["namespace"]}


def _github(runner_set: Object) -> Mapping[str, str]:
    parts = runner_set["spec"]["githubConfigUrl"].rstrip("/").split("/")[3:]
    if parts and parts[0] == "enterprises":
        return {"enterprise": parts[-1]}
    return dict(zip(("organization", "repository"), parts, strict=False))
