"""Registration of resources: what the SDK works out for an engine, and a plan does not need."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pulumi
from pulumi import log
from pulumi import resource as declarations
from pulumi.runtime import _depends_on, rpc
from pulumi.runtime import resource as resources
from pulumi.runtime.proto import resource_pb2
from pulumi.runtime.proto.source_pb2 import StackTrace
from pulumi.runtime.resource_cycle_breaker import _DEPENDENCIES_PROPERTY, declare_dependency

from paddock.plan.engine.sdk import outputs

_dependency_urns = _depends_on._resolve_depends_on_urns
_create_provider_ref = resources._create_provider_ref
_prepare_resource_hooks = resources._prepare_resource_hooks
_create_urn = resources.create_urn
_merge_hook_bindings = pulumi.ResourceHookBinding.merge
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
    dependencies = _Dependencies()
    return (
        (log, "debug", lambda *_: None),
        (resources, "_get_stack_trace", StackTrace),  # where in the program a resource is made: nothing here says it
        (resources, "create_urn", _urn),
        (resources, "resource_pb2", _MESSAGES),
        (rpc, "declare_dependency", dependencies.declare),
        (resources, "serialize_property", _no_trigger),
        (resources, "_create_provider_ref", _ProviderReferences().of),
        (resources, "_prepare_resource_hooks", _hooks),
        (resources, "_resolve_depends_on_urns", _needed_urns(dependencies)),
        (declarations, "register_resource_outputs", _register_outputs),
        (pulumi.ResourceOptions, "_copy", _copy),
        (pulumi.ResourceHookBinding, "_copy", _copy),
        (pulumi.ResourceHookBinding, "merge", staticmethod(_merge_hooks)),
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


async def _no_trigger(*_: Any, **__: Any) -> None:
    """Leave out what would replace a resource: it is the one thing for which registration calls this, and no input."""


def _needed_urns(dependencies: _Dependencies) -> Callable[..., Awaitable[set[str]]]:
    async def needed_urns(needed: Any, from_resource: Any = None) -> set[str]:
        """Return the URNs of resources that another waits for: without the SDK's tasks where all are registered."""
        urns = set()
        for resource in needed if type(needed) is list and from_resource else (None,):
            urn = outputs.data(resource.urn) if isinstance(resource, pulumi.CustomResource) else None
            if resource is None or urn is None or not urn.value or not dependencies.declare(from_resource, resource):
                return await _dependency_urns(needed, from_resource)
            urns.add(urn.value)
        return urns

    return needed_urns


def _copy(options: Any) -> Any:
    """Return what `copy.copy` does, without asking the object how it is to be copied."""
    copied = object.__new__(type(options))
    copied.__dict__.update(options.__dict__)
    return copied


def _merge_hooks(first: Any, second: Any) -> pulumi.ResourceHookBinding:
    if first is None and second is None:
        return pulumi.ResourceHookBinding()
    return _merge_hook_bindings(first, second)


async def _hooks(hooks: Any, prefix: str) -> Any:
    return await _prepare_resource_hooks(hooks, prefix) if hooks and any(vars(hooks).values()) else None


class _ProviderReferences:
    """References of a program's providers: one for thousands of resources, and it never changes once it is there."""

    def __init__(self) -> None:
        self.kept: dict[pulumi.ProviderResource, str] = {}

    async def of(self, provider: pulumi.ProviderResource) -> str:
        if provider not in self.kept:
            self.kept[provider] = await _create_provider_ref(provider)
        return self.kept[provider]


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
