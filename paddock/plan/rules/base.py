"""Base of all rules: one small class with its reason and its remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cached_property
from typing import Any, ClassVar, TypeVar, cast

from paddock.fleet import Fleet
from paddock.plan import fields
from paddock.plan.engine.graph import Graph, Resource
from paddock.plan.finding import Edit, Severity

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that breaks a rule."""

    subject: str
    """Name of the resource, or path of the file: what a suppression names."""
    message: str
    urn: str = ""
    severity: Severity | None = None
    """Milder than the rule's own."""
    fix: str = ""
    """Remedy of this case, where the rule's own is about several."""
    edits: tuple[Edit, ...] = ()


@dataclass(frozen=True)
class Context:
    """Input of rules."""

    graph: Graph
    files: Mapping[str, str] = field(default_factory=dict)
    """Path -> text of the repository's files that rules know of; see `repository_files`."""
    fleet: Fleet | None = None
    today: date = date.min
    marks_secrets: bool = True
    """Whether the graph says which values are secret. An engine tells its policies only the values."""
    unseen: list[tuple[str, str]] = field(default_factory=list)
    """(resource, property) that a rule could not judge, as it is known only when the cloud has answered."""

    results: dict[Callable[[Context], Any], Any] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What functions of this context have returned; see `once`."""

    def once(self, compute: Callable[[Context], Iterable[T]]) -> tuple[T, ...]:
        """Return what `compute` yields for this context, which many rules ask for."""
        if compute not in self.results:
            self.results[compute] = tuple(compute(self))
        return cast("tuple[T, ...]", self.results[compute])

    def all(self, *types: str) -> Iterator[Resource]:
        """Resources of these types, in the program's order."""
        for type_ in types:
            yield from self._by_type.get(type_, ())

    def read(self, resource: Resource, *path: str | int) -> Any:
        """Return the value at `path`, noted as unseen when it is not known yet."""
        value = fields.get(resource.inputs, *path)
        if fields.is_unknown(value):
            self.unseen.append((resource.name, ".".join(map(str, path))))
        return value

    def refer(self, type_: str, property_: str, target: Resource) -> Iterator[Resource]:
        """Resources of a type that name `target` in a property."""
        for resource in self.all(type_):
            if target.urn in resource.property_dependencies.get(property_, ()):
                yield resource

    @cached_property
    def _by_type(self) -> dict[str, list[Resource]]:
        by_type: dict[str, list[Resource]] = {}
        for resource in self.graph.resources.values():
            by_type.setdefault(resource.type, []).append(resource)
        return by_type


class Rule:
    """Subclass it, fill in the words, and write `check`."""

    id: ClassVar[str]
    severity: ClassVar[Severity]
    title: ClassVar[str]
    """What holds where the rule does."""
    why: ClassVar[str]
    fix: ClassVar[str]
    equivalents: ClassVar[tuple[str, ...]] = ()
    """Ids of the same check elsewhere: checkov (CKV), trivy (AWS-, KSV-, DS-), CIS EKS benchmark, hadolint (DL)."""
    milder: ClassVar[bool] = False
    """Whether some of its hits are milder than `severity`."""

    def check(self, context: Context) -> Iterator[Violation]:
        raise NotImplementedError


def violation(
    resource: Resource, message: str, severity: Severity | None = None, *, fix: str = "", edits: tuple[Edit, ...] = ()
) -> Violation:
    """Return a violation by a resource. `fix` is by default what `edits` do, and without these the rule's own."""
    message = f"{resource.type.rpartition(':')[2]}: {message}"
    return Violation(resource.name, message, resource.urn, severity, fix or " and ".join(map(str, edits)), edits)
