"""Results of one run of the engine: its events, and states of resources."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pulumi.runtime import rpc

from paddock.lab.errors import LabError
from paddock.plan.engine.events import UNCHANGED, Diagnostic, Step, Violation, diagnostic
from paddock.plan.engine.values import UNKNOWN, Secret

Operation = Literal["preview", "up", "refresh", "destroy"]


@dataclass(frozen=True, slots=True)
class State:
    """A resource as the engine knows it. Secrets are wrapped and hold ciphertext or nothing; unknown is UNKNOWN."""

    urn: str
    type: str
    id: str
    parent: str
    custom: bool
    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]
    provider: str
    protect: bool
    ignore_changes: tuple[str, ...]
    dependencies: tuple[str, ...]
    property_dependencies: Mapping[str, tuple[str, ...]]

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> State:
        return cls(
            urn=data["urn"],
            type=data["type"],
            id=data.get("id", ""),
            parent=data.get("parent", ""),
            custom=data.get("custom", False),
            inputs=_plain(data.get("inputs") or {}),
            outputs=_plain(data.get("outputs") or {}),
            provider=str(_plain(data.get("provider", ""))).replace(rpc.UNKNOWN, UNKNOWN),
            protect=data.get("protect", False),
            ignore_changes=tuple(data.get("ignoreChanges") or ()),
            dependencies=tuple(sorted(data.get("dependencies") or ())),
            property_dependencies={
                key: tuple(sorted(urns))
                for key, urns in sorted((data.get("propertyDependencies") or {}).items())
                if urns
            },
        )


@dataclass(frozen=True, slots=True)
class PreviewedStep(Step):
    """A step of a preview."""

    state: State | None = None
    """State after the operation."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of the engine."""

    operation: Operation
    steps: tuple[Step, ...]
    diagnostics: tuple[Diagnostic, ...]
    seconds: float
    log: str = field(repr=False)
    """The whole output."""
    violations: tuple[Violation, ...] = ()
    """Violations of the policies of the run."""

    @property
    def changes(self) -> dict[str, tuple[str, ...]]:
        """Return the operations on each changed resource, in order, by URN."""
        operations: dict[str, tuple[str, ...]] = {}
        for step in self.steps:
            if step.operation not in UNCHANGED:
                operations[step.urn] = (*operations.get(step.urn, ()), step.operation)
        return operations

    @property
    def states(self) -> dict[str, State]:
        steps = (step for step in self.steps if isinstance(step, PreviewedStep))
        return {step.urn: step.state for step in steps if step.state is not None}


class EngineError(LabError):
    """A run of the engine failed; the message is the engine's."""

    def __init__(self, message: str, result: Result | None = None) -> None:
        super().__init__(message)
        self.result = result


def result(operation: Operation, items: Iterable[Step | Diagnostic | Violation], seconds: float, log: str) -> Result:
    """Return the result of a run, with its items sorted by kind."""
    items = list(items)
    return Result(
        operation,
        tuple(item for item in items if isinstance(item, Step)),
        tuple(item for item in items if isinstance(item, Diagnostic)),
        seconds,
        log,
        tuple(item for item in items if isinstance(item, Violation)),
    )


def preview(text: str) -> list[Step | Diagnostic | Violation]:
    """Parse the output of `pulumi preview --json`."""
    try:
        document = json.loads(text[text.index("{") :])
    except ValueError:
        return []
    steps = [
        PreviewedStep(step["op"], step["urn"], state=State.of(step["newState"]) if step.get("newState") else None)
        for step in document.get("steps") or []
    ]
    return [*steps, *map(diagnostic, document.get("diagnostics") or [])]


def _plain(value: Any) -> Any:
    match value:
        case {rpc._special_sig_key: rpc._special_secret_sig}:
            return Secret(value.get("ciphertext", ""))
        case {rpc._special_sig_key: rpc._special_resource_sig}:
            return value["urn"]
        case Mapping():
            return {key: _plain(item) for key, item in value.items()}
        case list():
            return [_plain(item) for item in value]
        case "[secret]":  # how a preview shows one
            return Secret("")
        case str():
            return UNKNOWN if value == rpc.UNKNOWN else value
        case _:
            return value
