"""Kubernetes objects of a fleet, as its program declares them and its charts' programs make them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

from infra.arc import runner_pod
from paddock.fleet import Fleet, arc, nodes
from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.plan.engine.graph import Graph
from paddock.plan.engine.resource_types import CUSTOM_RESOURCE_DEFINITION
from paddock.plan.engine.values import Secret

ENDS_AFTER, STARTS_AFTER = "lab.paddock.dev/ends-after", "lab.paddock.dev/starts-after"


def objects(graph: Graph) -> list[Object]:
    """Return the objects that the program itself creates in the cluster, in order: no Helm release, nor its CRDs."""
    resources = (resource for resource in graph.resources.values() if resource.type.startswith("kubernetes:"))
    return [
        _plain(resource.inputs)
        for resource in resources
        if "kind" in resource.inputs and resource.type != CUSTOM_RESOURCE_DEFINITION
    ]


def of_kind(graph: Graph, kind: str) -> list[Object]:
    return [object_ for object_ in objects(graph) if object_["kind"] == kind]


def runner(fleet: Fleet, name: str, pod_name: str = "runner", **annotations: str) -> Object:
    """Return the pod that a scale set makes for a job, with another image."""
    return _pod(fleet, name, pod_name, runner_pod.runner_template(fleet, fleet.runners[name]), annotations)


def runners(fleet: Fleet) -> Iterator[Object]:
    """Every pod that a job of the fleet is given."""
    for name, spec in fleet.runners.items():
        yield runner(fleet, name, f"{name}-runner")
        if spec.container == "kubernetes-novolume":
            template = runner_pod.job_template(fleet, spec)
            template["spec"]["containers"][0]["name"] = "job"  # the hook gives it its own name
            yield _pod(fleet, name, f"{name}-job", template, {})


def runner_set(fleet: Fleet, name: str) -> Object:
    """Return the AutoscalingRunnerSet that ARC's chart renders from the values of a scale set."""
    spec = fleet.runners[name]
    values = runner_pod.scale_set_values(fleet, spec, "credential")
    fields = ("githubConfigUrl", "githubConfigSecret", "runnerGroup", "runnerScaleSetName", "minRunners", "maxRunners")
    return {
        "apiVersion": "actions.github.com/v1alpha1",
        "kind": "AutoscalingRunnerSet",
        "metadata": {"name": spec.scale_set, "namespace": arc.namespace(fleet, spec)},
        "spec": {
            **{key: values[key] for key in fields},
            "runnerScaleSetLabels": values["scaleSetLabels"],
            "listenerTemplate": values["listenerTemplate"],
            "template": values["template"],
        },
    }


def daemonset(name: str, namespace: str, spec: Mapping[str, Any], **annotations: str) -> Object:
    """Return a DaemonSet of one container. `spec`: what its pods have beside it."""
    labels = {"app": name}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels, "annotations": annotations},
                "spec": {"containers": [{"name": name, "image": "any"}], **spec},
            },
        },
    }


def plain_pod(name: str, namespace: str, **spec: Any) -> Object:
    """Return a pod of one container that asks for nothing."""
    meta = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [{"name": "x", "image": "any"}], **spec},
    }


def gpu_nodes(api: Api) -> list[Object]:
    return api.list("v1", "Node", labelSelector=f"{nodes.GPU}.present=true")


def waits(api: Api, pod: Object) -> bool:
    """Return whether the scheduler found no node for it."""
    return pods.is_unschedulable(reread(api, pod))


def reread(api: Api, object_: Object) -> Object:
    """Return the object as it is now."""
    meta = object_["metadata"]
    return api.get(object_["apiVersion"], object_["kind"], meta["name"], meta.get("namespace", ""))


def lost(requested: Any, created: Any, at: str = "") -> Iterator[str]:
    """Fields that were asked for and that the server dropped; it may add some, and write amounts in its own way."""
    if isinstance(requested, dict):
        for key, value in requested.items():
            if key in created:
                yield from lost(value, created[key], f"{at}.{key}")
            elif value and key != "stringData":
                yield f"{at}.{key}"
    elif isinstance(requested, list):
        if len(created) < len(requested):
            yield at
        for number, (value, stored) in enumerate(zip(requested, created, strict=False)):
            yield from lost(value, stored, f"{at}[{number}]")


def _pod(fleet: Fleet, name: str, pod_name: str, template: Object, annotations: Mapping[str, str]) -> Object:
    pod = copy.deepcopy(template)
    meta = pod.get("metadata", {})
    for container in pod["spec"]["containers"]:
        container.setdefault("image", "any")
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": pod_name,
            "namespace": arc.namespace(fleet, fleet.runners[name]),
            "labels": meta.get("labels", {}),
            "annotations": {**meta.get("annotations", {}), **annotations},
        },
        "spec": pod["spec"],
    }


def _plain(value: Any) -> Any:
    match value:
        case Secret(value=inner):
            return _plain(inner)
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list() | tuple():
            return [_plain(item) for item in value]
        case _:
            return value


def applied(api: Api, object_: Object) -> Object | None:
    """Apply an object; None while its kind is established and not yet served."""
    with contextlib.suppress(ApiError):
        return api.apply(object_)
    return None


def as_account(api: Api, name: str, namespace: str) -> Api:
    """Return a client of the same server with the rights of a service account."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    token = api.request("POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"})
    return Api(api.server, token["status"]["token"], api._trust)
