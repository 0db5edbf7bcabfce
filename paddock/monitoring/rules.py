"""An alert, in the forms that Prometheus and CloudWatch read, and the series that are recorded for alerts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

Severity = Literal["critical", "warning", "info"]
"""critical: jobs fail or stand still now; warning: they will; info: money or tidiness."""


@dataclass(frozen=True, slots=True)
class Alarm:
    """CloudWatch's form of an alert: a limit on one metric, or on the difference of two."""

    metric: str
    statistic: Literal["Maximum", "Sum", "SampleCount", "Average"] = "Maximum"
    comparison: Literal["GreaterThanThreshold", "GreaterThanOrEqualToThreshold", "LessThanThreshold"] = (
        "GreaterThanThreshold"
    )
    threshold: float = 0
    minutes: int = 1
    """Length of a period."""
    periods: int = 1
    less: str = ""
    """Metric that is taken off."""
    missing: Literal["notBreaching", "breaching"] = "notBreaching"
    by_scale_set: bool = False
    """One alarm for each scale set, instead of one for all GPUs of the fleet."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A condition that lasts. `summary` may name labels of the expression as Prometheus' templates do."""

    name: str
    """That of its runbook, too."""
    expression: str
    minutes: int
    severity: Severity
    summary: str
    action: str
    """First thing to do; the runbook has the rest."""
    alarm: Alarm | None = None
    """None where CloudWatch does not have the metrics."""

    @property
    def runbook(self) -> str:
        """Place of the runbook in a checkout."""
        return f"docs/alerts.md#{self.name.lower()}"

    def prometheus(self) -> dict[str, Any]:
        """Return the rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": f"{self.minutes}m",
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "action": self.action, "runbook": self.runbook},
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

    @property
    def alerts(self) -> tuple[Alert, ...]:
        """The alerts, without what is only recorded."""
        return tuple(rule for rule in self.rules if isinstance(rule, Alert))


def document(groups: Iterable[Group]) -> dict[str, Any]:
    """Return groups as Prometheus reads them: a rule file, and the spec of a PrometheusRule."""
    return {
        "groups": [{"name": group.name, "rules": [rule.prometheus() for rule in group.rules]} for group in groups],
    }
