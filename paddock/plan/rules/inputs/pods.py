"""Every pod that a program leads to, wherever it is written: objects, values of charts, templates in ConfigMaps."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import yaml

from paddock.fleet.model.mirror import chart_name
from paddock.plan import fields
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Resource
from paddock.plan.rules.base import Context

_TEMPLATED = {
    types.DAEMON_SET: ("spec", "template", "spec"),
    types.DEPLOYMENT: ("spec", "template", "spec"),
    types.STATEFUL_SET: ("spec", "template", "spec"),
    types.JOB: ("spec", "template", "spec"),
    types.CRON_JOB: ("spec", "jobTemplate", "spec", "template", "spec"),
    types.POD: ("spec",),
}

Kind = Literal["runner", "job", "listener", "object"]


@dataclass(frozen=True)
class Pod:
    """The specification of a pod, and what declares it."""

    resource: Resource
    kind: Kind
    """`runner` registers with GitHub; `job` is made for a job by the container hook; `listener` is ARC's."""
    spec: Mapping[str, Any]
    namespace: str

    @cached_property
    def containers(self) -> list[Mapping[str, Any]]:
        written = [*fields.items(self.spec, "initContainers"), *fields.items(self.spec, "containers")]
        return [container for container in written if isinstance(container, Mapping)]

    @property
    def where(self) -> str:
        return {"runner": "its runners", "job": "its jobs' pods", "listener": "its listener", "object": "its pods"}[
            self.kind
        ]


def chart(release: Resource) -> str:
    """Return a chart's own name, whether it comes from a repository, as oci:// or from a folder."""
    return chart_name(fields.text(release.inputs, "chart"))


def scale_sets(context: Context) -> Iterable[Resource]:
    return context.once(_scale_sets)


def _scale_sets(context: Context) -> Iterator[Resource]:
    return (release for release in context.all(types.RELEASE) if chart(release) == "gha-runner-scale-set")


def name_of(item: Resource) -> str:
    return fields.text(item.inputs, "metadata", "name")


def namespace_of(item: Resource) -> str:
    """Namespace of an object or a release; empty where it is not known yet."""
    return fields.text(item.inputs, "metadata", "namespace") or fields.text(item.inputs, "namespace")


def is_in(item: Resource, namespace: Resource) -> bool:
    """Return whether an object is in a namespace: by its name, or as it takes the name from the namespace itself."""
    name = namespace_of(item)
    if name and name_of(namespace):
        return name == name_of(namespace)
    return any(namespace.urn in item.property_dependencies.get(key, ()) for key in ("metadata", "namespace"))


def pods(context: Context) -> Iterable[Pod]:
    return context.once(_pods)


def _pods(context: Context) -> Iterator[Pod]:
    for release in scale_sets(context):
        namespace = namespace_of(release)
        for kind, key in (("runner", "template"), ("listener", "listenerTemplate")):
            spec = fields.get(release.inputs, "values", key, "spec")
            if isinstance(spec, Mapping):
                yield Pod(release, "runner" if kind == "runner" else "listener", spec, namespace)
    for item in context.all(types.CONFIG_MAP):
        spec = fields.get(_yaml(fields.get(item.inputs, "data", "pod.yaml")), "spec")
        if isinstance(spec, Mapping):
            yield Pod(item, "job", spec, namespace_of(item))
    for service in context.all(types.RAY_SERVICE):
        cluster = fields.get(service.inputs, "spec", "rayClusterConfig")
        for group in (fields.get(cluster, "headGroupSpec"), *fields.items(cluster, "workerGroupSpecs")):
            spec = fields.get(group, "template", "spec")
            if isinstance(spec, Mapping):
                yield Pod(service, "object", spec, namespace_of(service))
    for type_, path in _TEMPLATED.items():
        for item in context.all(type_):
            spec = fields.get(item.inputs, *path)
            if isinstance(spec, Mapping):
                yield Pod(item, "object", spec, namespace_of(item))


def _yaml(text: Any) -> Any:
    try:
        return yaml.safe_load(text) if isinstance(text, str) else None
    except yaml.YAMLError:
        return None
