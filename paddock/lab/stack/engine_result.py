"""Steps, diagnostics and resources of one run, read from the engine's output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from pulumi.runtime import rpc

from paddock.lab.errors import LabError
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
class Step:
    """An operation of the engine on a resource, done or previewed."""

    operation: str
    """create, update, delete, replace, create-replacement, delete-replaced, same, read, refresh."""
    urn: str
    state: State | None = None
    """State after the operation; only previews have it."""
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Diagnostic:
    severity: str
    message: str
    urn: str = ""


@dataclass(frozen=True, slots=True)
class Violation:
    """A resource that violates a policy."""

    policy: str
    mandatory: bool
    urn: str
    message: str


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
            if step.operation not in ("same", "refresh", "read"):
                operations[step.urn] = (*operations.get(step.urn, ()), step.operation)
        return operations

    @property
    def states(self) -> dict[str, State]:
        return {step.urn: step.state for step in self.steps if step.state is not None}


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
        Step(step["op"], step["urn"], State.of(step["newState"]) if step.get("newState") else None)
        for step in document.get("steps") or []
    ]
    return [*steps, *map(_diagnostic, document.get("diagnostics") or [])]


def events(text: str) -> list[Step | Diagnostic | Violation]:
    """Parse the output of any other run with `--json`: a line for each event."""
    return [item for line in text.splitlines() if (item := event(line))]


def event(line: str) -> Step | Diagnostic | Violation | None:
    """Parse one line; None for an event that is not used."""
    document = _read(line)
    if body := document.get("resOutputsEvent"):
        return Step(body["metadata"]["op"], body["metadata"]["urn"])
    if body := document.get("resOpFailedEvent"):
        return Step(body["metadata"]["op"], body["metadata"]["urn"], failed=True)
    if body := document.get("policyEvent"):
        mandatory = body["enforcementLevel"] == "mandatory"
        return Violation(body["policyName"], mandatory, body.get("resourceUrn", ""), body["message"].strip())
    if (body := document.get("diagnosticEvent")) and body.get("severity") != "debug":
        return _diagnostic(body)
    return None


def unfinished(text: str) -> list[str]:
    """Return the URNs of resources whose operation has begun and not ended, in the output of a run."""
    begun: dict[str, None] = {}
    for document in map(_read, text.splitlines()):
        if body := document.get("resourcePreEvent"):
            if (body["metadata"].get("new") or body["metadata"].get("old") or {}).get("custom"):
                begun[body["metadata"]["urn"]] = None
        elif body := document.get("resOutputsEvent"):
            begun.pop(body["metadata"]["urn"], None)
    return list(begun)


def _read(line: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
    except ValueError:  # broken off: the engine was killed
        return {}
    return document


def _diagnostic(body: Mapping[str, Any]) -> Diagnostic:
    return Diagnostic(body.get("severity", ""), body.get("message", "").strip(), body.get("urn", ""))


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
