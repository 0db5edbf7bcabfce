"""Objects that ARC's controller makes of a scale set, in the form of ARC 0.14. Pure functions.

Left out are the listener's account, role and secret, and a runner's secret: nothing here would read them.
"""

from __future__ import annotations

import copy
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from paddock.kubernetes.client import Object
from paddock.lab.simulators import runner_sets
from paddock.lab.simulators.runner_sets import ID, VERSION

LISTENER, GROUP, RUNNER = "AutoscalingListener", "EphemeralRunnerSet", "EphemeralRunner"
LISTENER_FINALIZER = "autoscalinglistener.actions.github.com/finalizer"
RUNNER_FINALIZER = "ephemeralrunner.actions.github.com/finalizer"
"""Of runners, and of their EphemeralRunnerSet."""
REGISTRATION_FINALIZER = "ephemeralrunner.actions.github.com/runner-registration-finalizer"
SPEC_HASH, VALUES_HASH = "actions.github.com/runner-spec-hash", "actions.github.com/values-hash"
LABEL_VERSION = "app.kubernetes.io/version"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Of Kubernetes' own generated names."""
_SEMANTIC = re.compile(r"(0|[1-9]\d*)(?:\.(0|[1-9]\d*))?(?:\.(0|[1-9]\d*))?")


def version_allowed(resource: str, build: str) -> bool:
    """Return whether a controller serves a scale set of that version: `IsVersionAllowed` of ARC."""
    if build == "dev" or resource == build or build.startswith("canary-"):
        return True
    first, other = _SEMANTIC.match(resource), _SEMANTIC.match(build)
    return bool(first and other) and _minor(first) == _minor(other)


def listener_name(runner_set: Object) -> str:
    """Return the name of a set's listener: with the hash of the set's namespace, as they are all in one."""
    meta, hashed = runner_set["metadata"], 0x811C9DC5
    for byte in str(meta["namespace"]).encode():
        hashed = (hashed ^ byte) * 0x01000193 % 2**32
    encoded = "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(hashed))
    return f"{meta['name']}-{encoded[:8]}-listener"


def listener(runner_set: Object, group: Object, namespace: str) -> Object:
    """Return the AutoscalingListener of a set in the controller's namespace, for one EphemeralRunnerSet."""
    meta, spec = runner_set["metadata"], runner_set["spec"]
    least, most = runner_sets.limits(runner_set)
    renamed = {"template": spec.get("listenerTemplate"), "metrics": spec.get("listenerMetrics")}
    own_spec = {
        **_github(runner_set),
        "autoscalingRunnerSetNamespace": meta["namespace"],
        "autoscalingRunnerSetName": meta["name"],
        "ephemeralRunnerSetName": group["metadata"]["name"],
        "minRunners": least,
        "maxRunners": most,
        **{key: value for key, value in renamed.items() if value},
    }
    named = {"name": listener_name(runner_set), "namespace": namespace}
    made = _made(LISTENER, "runner-scale-set-listener", runner_set, named, own_spec, [LISTENER_FINALIZER])
    made["metadata"]["annotations"] = listener_hashes(runner_set)
    return made


def listener_hashes(runner_set: Object) -> dict[str, str]:
    """Return the annotations by which ARC sees that a listener is out of date: any change of the set's spec."""
    values = (runner_set["metadata"].get("annotations") or {}).get(VALUES_HASH, "")
    return {SPEC_HASH: _hash(runner_set["spec"]), VALUES_HASH: values}


def listener_pod(item: Object) -> Object:
    """Return a listener's pod: its template, with ARC's own container."""
    meta, template = item["metadata"], copy.deepcopy(item["spec"].get("template") or {})
    spec, own = template.get("spec") or {}, template.get("metadata") or {}
    containers = spec.get("containers") or [{"name": "listener"}]
    for container in containers:
        if container["name"] == "listener":
            container.setdefault("image", "lab.invalid/gha-runner-scale-set-controller")
            container["command"] = ["/ghalistener"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": {**(own.get("labels") or {}), **meta["labels"]},
            "annotations": own.get("annotations") or {},
            "ownerReferences": [runner_sets.owner(item)],
        },
        "spec": {
            **spec,
            "nodeSelector": {"kubernetes.io/os": "linux", **(spec.get("nodeSelector") or {})},
            "containers": containers,
            "restartPolicy": "Never",
        },
    }


def group(runner_set: Object) -> Object:
    """Return a new EphemeralRunnerSet of a set; the API server completes its name."""
    named = {"generateName": f"{runner_set['metadata']['name']}-"}
    spec = {"replicas": 0, "patchID": 0, "ephemeralRunnerSpec": _github(runner_set)}
    made = _made(GROUP, "runner-set", runner_set, named, spec, [RUNNER_FINALIZER])
    made["metadata"] |= {
        "annotations": {SPEC_HASH: template_hash(runner_set)},
        "ownerReferences": [runner_sets.owner(runner_set)],
    }
    return made


def template_hash(runner_set: Object) -> str:
    """Return the hash of what makes a new EphemeralRunnerSet when it changes: all but the number of runners."""
    names = ("githubConfigUrl", "githubConfigSecret", "runnerGroup", "runnerScaleSetName", "template")
    return _hash({name: runner_set["spec"].get(name) for name in names})


def runner(runner_set: Object, group_: Object, name: str) -> Object:
    """Return an EphemeralRunner, without its status."""
    spec = {**group_["spec"]["ephemeralRunnerSpec"], **copy.deepcopy(runner_set["spec"]["template"])}
    finalizers = [RUNNER_FINALIZER, REGISTRATION_FINALIZER]
    made = _made(RUNNER, "runner", runner_set, {"name": name}, spec, finalizers)
    made["metadata"] |= {
        "annotations": {"actions.github.com/patch-id": str(group_["spec"].get("patchID") or 0)},
        "ownerReferences": [runner_sets.owner(group_)],
    }
    return made


def runner_status(pod: Object, number: int, job: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the status of a runner by its pod, and by GitHub's message that its job started."""
    phase = pod.get("status", {}).get("phase", "Pending")
    work: dict[str, Any] = {}
    if job:
        work = {
            "jobId": str(job["jobId"]),
            "jobRequestId": int(job["runnerRequestId"]),
            "jobRepositoryName": f"{job['ownerName']}/{job['repositoryName']}",
            "jobWorkflowRef": job["jobWorkflowRef"],
            "jobDisplayName": job["jobDisplayName"],
            "workflowRunId": int(job["workflowRunId"]),
        }
    name = pod["metadata"]["name"]
    return {"phase": phase, "ready": phase == "Running", "runnerId": number, "runnerName": name, **work}


def group_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return an EphemeralRunnerSet's status, which has the figures of its set's."""
    figures = {key: value for key, value in status.items() if key.endswith("EphemeralRunners")}
    return {"currentReplicas": status["currentRunners"], "phase": "Running", **figures}


def without(item: Object, *finalizers: str) -> Object:
    """Return the change that takes finalizers off an object; those of others stay."""
    kept = [name for name in item["metadata"].get("finalizers") or [] if name not in finalizers]
    return {"metadata": {"finalizers": kept}}


def _made(kind: str, component: str, runner_set: Object, named: Object, spec: Object, finalizers: list[str]) -> Object:
    """Return an object of a set, by default in its namespace and with its labels."""
    meta = runner_set["metadata"]
    labels = {
        **(meta.get("labels") or {}),
        "actions.github.com/scale-set-name": meta["name"],
        "actions.github.com/scale-set-namespace": meta["namespace"],
        "app.kubernetes.io/part-of": "gha-runner-scale-set",
        "app.kubernetes.io/component": component,
    }
    own = {"namespace": meta["namespace"], **named, "labels": labels, "finalizers": finalizers}
    return {"apiVersion": VERSION, "kind": kind, "metadata": own, "spec": spec}


def _github(runner_set: Object) -> Object:
    spec, number = runner_set["spec"], int(runner_set["metadata"]["annotations"][ID])
    return {"runnerScaleSetId": number, **{key: spec[key] for key in ("githubConfigUrl", "githubConfigSecret")}}


def _hash(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:12]


def _minor(match: re.Match[str] | None) -> tuple[str, str]:
    return (match[1], match[2] or "0") if match else ("", "")
