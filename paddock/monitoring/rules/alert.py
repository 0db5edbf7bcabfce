"""An alert and a recorded series, in the form that Prometheus reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["critical", "warning", "info"]
"""critical: jobs fail or stand still now; warning: they will; info: money or tidiness."""

RUNBOOKS = "docs/alerts.md"


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that lasts. `summary` may name labels of the expression as Prometheus' templates do."""

    name: str
    expression: str
    minutes: int
    severity: Severity
    summary: str
    action: str
    """First thing to do; the runbook of the same name has the rest."""

    def prometheus(self) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": f"{self.minutes}m",
            "labels": {"severity": self.severity},
            "annotations": {
                "summary": self.summary,
                "action": self.action,
                "runbook": f"{RUNBOOKS}#{self.name.lower()}",
            },
        }


@dataclass(frozen=True, slots=True)
class Recording:
    """A series that alerts read, computed once."""

    name: str
    expression: str

    def prometheus(self) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        return {"record": self.name, "expr": self.expression}


@dataclass(frozen=True, slots=True)
class Group:
    """Rules that Prometheus evaluates one after another."""

    name: str
    rules: tuple[Alert | Recording, ...]
