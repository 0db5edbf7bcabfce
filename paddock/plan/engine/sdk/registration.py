"""Registration of resources: what the SDK works out for an engine, and a plan does not need."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pulumi
from pulumi import log
from pulumi import resource as declarations
from pulumi.runtime import resource as resources
from pulumi.runtime import rpc
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.proto.source_pb2 import StackTrace
from pulumi.runtime.resource_cycle_breaker import _DEPENDENCIES_PROPERTY, declare_dependency

from paddock.plan.engine.sdk import outputs

_create_urn = resources.create_urn
_register_resource_outputs = resources.register_resource_outputs


class _Request(SimpleNamespace):
    """Stands in for the messages of the SDK: the monitor is in the same process, and reads attributes."""

    protect = False
    provider = ""
    ignoreChanges = ()
    PropertyDependencies = SimpleNamespace
    CustomTimeouts = resource_pb2.RegisterResourceRequest.CustomTimeouts
    ResourceHooksBinding = resource_pb2.RegisterResourceRequest.ResourceHooksBinding

    def __init__(self, **fields: Any) -> None:
        super().__init__(**{name: value for name, value in fields.items() if value is not None})


_MESSAGES = SimpleNamespace(
    **{**vars(resource_pb2), "RegisterResourceRequest": _Request, "ReadResourceRequest": _Request}
)


def replacements() -> tuple[tuple[Any, str, Any], ...]:
    """Return the replacements for one program."""
    return (
        (log, "debug", lambda *_: None),
        (resources, "_get_stack_trace", StackTrace),  # where in the program a resource is made: nothing here says it
        (resources, "create_urn", _urn),
        (resources, "resource_pb2", _MESSAGES),
        (rpc, "declare_dependency", _Dependencies().declare),
        (declarations, "register_resource_outputs", _register_outputs),
    )


def _urn(name: Any, type_: Any, parent: Any = None, project: Any = None, stack: Any = None) -> pulumi.Output[str]:
    """Return the URN of a resource: where all that it is made of is known, without the SDK's five tasks."""
    if not all(isinstance(part, str) for part in (name, type_, parent)) or project or stack:
        return _create_urn(name, type_, parent, project, stack)
    return outputs.done(f"{parent.rpartition('::')[0]}${type_}::{name}")


def _register_outputs(resource: pulumi.Resource, values: Any) -> None:
    """Send the outputs of a component, unless it has none."""
    if values:
        _register_resource_outputs(resource, values)


class _Dependencies:
    """Dependencies of a program; the SDK looks for a cycle in each, which needs one on the resource that has it."""

    def __init__(self) -> None:
        self.needed: set[pulumi.Resource] = set()

    def declare(self, resource: pulumi.Resource, needed: pulumi.Resource) -> bool:
        """Remember a dependency, and return whether it makes no cycle."""
        self.needed.add(needed)
        if resource in self.needed:
            return declare_dependency(resource, needed)
        resource.__dict__.setdefault(_DEPENDENCIES_PROPERTY, set()).add(needed)
        return True
