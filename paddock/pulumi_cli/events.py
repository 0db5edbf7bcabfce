"""Events of the real engine, as `pulumi up --json` and its like print them: a line of JSON each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

UNCHANGED = ("same", "refresh", "read")
"""Operations after which a resource is as it was."""


@dataclass(frozen=True, slots=True)
class ResourceStep:
    """An operation of the engine on a resource, done or previewed."""

    operation: str
    """create, update, delete, replace, create-replacement, delete-replaced, same, read, refresh."""
    urn: str
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


def event(line: str) -> ResourceStep | Diagnostic | Violation | None:
    """Parse one line; None for an event that is not used."""
    document = _read(line)
    if body := document.get("resOutputsEvent"):
        return ResourceStep(body["metadata"]["op"], body["metadata"]["urn"])
    if body := document.get("resOpFailedEvent"):
        return ResourceStep(body["metadata"]["op"], body["metadata"]["urn"], failed=True)
    if body := document.get("policyEvent"):
        mandatory = body["enforcementLevel"] == "mandatory"
        return Violation(body["policyName"], mandatory, body.get("resourceUrn", ""), body["message"].strip())
    if (body := document.get("diagnosticEvent")) and body.get("severity") != "debug":
        return diagnostic(body)
    return None


def diagnostic(body: Mapping[str, Any]) -> Diagnostic:
    return Diagnostic(body.get("severity", ""), body.get("message", "").strip(), body.get("urn", ""))


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
