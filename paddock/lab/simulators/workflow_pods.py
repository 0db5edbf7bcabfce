"""The pod that the container hook makes for a job in kubernetes-novolume mode. Pure functions.

There the runner only coordinates: the GPU belongs to this second pod, and only while a job uses it.
"""

from __future__ import annotations

from typing import Any

import yaml

from paddock.kubernetes.client import Object

OF_RUNNER = "runner-pod"
"""The hook's label on it: the runner's name."""
_TEMPLATE = "ACTIONS_RUNNER_CONTAINER_HOOK_TEMPLATE"
_LONGEST_NAME = 63


def template_map(runner: Object) -> str:
    """Return the ConfigMap with the template of the runner's hook; empty where jobs run in the runner's own pod."""
    (container,) = (candidate for candidate in runner["spec"]["containers"] if candidate["name"] == "runner")
    path = next(
        (variable.get("value", "") for variable in container.get("env") or [] if variable["name"] == _TEMPLATE), ""
    )
    volumes = {volume["name"]: volume for volume in runner["spec"].get("volumes") or []}
    for mount in container.get("volumeMounts") or []:
        if path.startswith(f"{mount['mountPath']}/"):
            return str((volumes[mount["name"]].get("configMap") or {}).get("name", ""))
    return ""


def name_of(runner: Object) -> str:
    suffix = "-workflow"
    return str(runner["metadata"]["name"])[: _LONGEST_NAME - len(suffix)] + suffix


def workflow_pod(runner: Object, template: str, annotations: dict[str, str]) -> Object:
    """Return the job's pod, of the template's text; `$job` is the container that the workflow brings."""
    extension: dict[str, Any] = yaml.safe_load(template) or {}
    meta, spec = extension.get("metadata") or {}, extension.get("spec") or {}
    # ARC deletes the pod with its runner; here the owner reference does.
    owner = {"apiVersion": "v1", "kind": "Pod", **{key: runner["metadata"][key] for key in ("name", "uid")}}
    # The image is the workflow's, which is unknown here and never pulled.
    containers = [
        {"image": "workflow", **container, "name": container["name"].lstrip("$")} for container in spec["containers"]
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name_of(runner),
            "namespace": runner["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), OF_RUNNER: runner["metadata"]["name"]},
            "annotations": {**(meta.get("annotations") or {}), **annotations},
            "ownerReferences": [owner],
        },
        "spec": {"restartPolicy": "Never", **spec, "containers": containers},
    }
