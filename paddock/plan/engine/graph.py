"""Graph of the resources that a Pulumi program declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.errors import PaddockError

STACK = "pulumi:pulumi:Stack"


class PlanError(PaddockError):
    """The program cannot be planned as the stack is written."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Resource:
    """One resource as the program declares it."""

    urn: str
    type: str
    name: str
    parent: str
    """URN of the parent; empty for the stack itself."""
    custom: bool
    """Whether a provider makes it; components only group others."""
    inputs: Mapping[str, Any]
    """As sent to the provider, camelCase; secrets wrapped in Secret, what is known only later is UNKNOWN."""
    dependencies: tuple[str, ...]
    """URNs, explicit and implied, sorted."""
    property_dependencies: Mapping[str, tuple[str, ...]]
    provider: str
    """URN and id of the provider; empty for the default one and for components."""
    protect: bool
    ignore_changes: tuple[str, ...]
    delete_before_replace: bool
    expanded: bool = False
    """Not declared by the program but by a component that runs elsewhere; taken from recordings of it."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Everything a program declares."""

    project: str
    stack: str
    resources: Mapping[str, Resource]
    """By URN; each comes after its parent, its provider and what it depends on, and else in order of the URN."""
    outputs: Mapping[str, Any]
    lookups: tuple[tuple[str, Mapping[str, Any]], ...]
    """Questions the program asks the cloud while it runs, answered here with stand-ins: (token, arguments)."""

    def of_type(self, type_: str) -> tuple[Resource, ...]:
        return tuple(resource for resource in self.resources.values() if resource.type == type_)
