"""Resources and graphs of a few lines, and copies of a recorded graph with one thing changed."""

from __future__ import annotations

import base64
import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.rules.base import Context

REMOVED = object()
"""As a value: take the key away."""


def find(graph: Graph, kind: str, name: str) -> Resource:
    """Return the resource whose type ends in `kind`, by name."""
    (match,) = (item for item in graph.resources.values() if item.type.endswith(f":{kind}") and item.name == name)
    return match


def put(kind: str, name: str, path: str, value: Any) -> Callable[[Graph], Graph]:
    """Sets, or with a function changes, what stands at a dotted path of a resource's inputs."""

    def change(graph: Graph) -> Graph:
        target = find(graph, kind, name)
        inputs = copy.deepcopy(dict(target.inputs))
        *parents, last = [int(s) if s.isdigit() else s.replace("~", "/") for s in path.split("/")]
        place: Any = inputs
        for step in parents:
            place = place[step]
        if value is REMOVED:
            del place[last]
        else:
            place[last] = value(place[last]) if callable(value) else value
        depends = {key: urns for key, urns in target.property_dependencies.items() if key in inputs}
        return _with(graph, [replace(target, inputs=inputs, property_dependencies=depends)])

    return change


def drop(kind: str, name: str) -> Callable[[Graph], Graph]:
    """Remove a resource."""

    def change(graph: Graph) -> Graph:
        removed = find(graph, kind, name).urn
        return replace(graph, resources={urn: item for urn, item in graph.resources.items() if urn != removed})

    return change


def option(kind: str, name: str, **options: Any) -> Callable[[Graph], Graph]:
    """Changes a resource's options: protect, provider."""
    return lambda graph: _with(graph, [replace(find(graph, kind, name), **options)])


def add(*resources: Resource) -> Callable[[Graph], Graph]:
    return lambda graph: _with(graph, resources)


def look_up(token: str, arguments: Mapping[str, Any]) -> Callable[[Graph], Graph]:
    return lambda graph: replace(graph, lookups=(*graph.lookups, (token, arguments)))


def _with(graph: Graph, resources: Iterable[Resource]) -> Graph:
    return replace(graph, resources={**graph.resources, **{item.urn: item for item in resources}})


def statement(**parts: Any) -> Callable[[str], str]:
    """Changes the first statement of a policy document."""

    def change(text: str) -> str:
        document = json.loads(text)
        document["Statement"][0] |= parts
        return json.dumps(document)

    return change


def boot(old: str, new: str) -> Callable[[str], str]:
    """Replaces text in user data."""

    def change(encoded: str) -> str:
        text = base64.b64decode(encoded).decode()
        assert old in text
        return base64.b64encode(text.replace(old, new).encode()).decode()

    return change


def resource(type_: str, name: str, inputs: Mapping[str, Any] | None = None, **more: Any) -> Resource:
    """Return a resource for an example; `more` are its other fields, `uses` the resources its properties name."""
    uses: Mapping[str, Resource] = more.pop("uses", {})
    defaults: dict[str, Any] = {
        "urn": f"urn:pulumi:example::paddock::{type_}::{name}",
        "parent": "urn:pulumi:example::paddock::pulumi:pulumi:Stack::paddock-example",
        "custom": True,
        "dependencies": (),
        "property_dependencies": {key: (target.urn,) for key, target in uses.items()},
        "provider": f"urn:pulumi:example::paddock::pulumi:providers:{type_.split(':')[0]}::explicit::id",
        "protect": False,
        "ignore_changes": (),
        "delete_before_replace": False,
    }
    return Resource(type=type_, name=name, inputs=dict(inputs or {}), **{**defaults, **more})


def example(*resources: Resource, **more: Any) -> Context:
    """Return a context for an example; `lookups` are questions that the program asks the cloud."""
    lookups = more.pop("lookups", ())
    return Context(Graph("paddock", "example", {r.urn: r for r in resources}, {}, lookups), **more)
