"""All rules of a fleet, and the document that Prometheus loads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from paddock.fleet import Fleet
from paddock.monitoring.rules import capacity, runners
from paddock.monitoring.rules.alert import Alert, Group
from paddock.monitoring.rules.gpus import HEALTH, NODES
from paddock.monitoring.rules.xids import XIDS


def groups(fleet: Fleet, runner_version: str) -> tuple[Group, ...]:
    """Return the rules by group. `runner_version` is that of runners whose image names none."""
    return HEALTH, XIDS, NODES, runners.group(fleet, runner_version), capacity.group(fleet)


def every_kind() -> tuple[Alert, ...]:
    """Return each alert that a fleet can have once."""
    shared = alerts((HEALTH, XIDS, NODES))
    return (*shared, *runners.examples(), *capacity.examples())


def document(of: tuple[Group, ...]) -> dict[str, Any]:
    """Return groups as Prometheus reads them: a rule file, and the spec of a PrometheusRule."""
    return {
        "groups": [{"name": group.name, "rules": [rule.prometheus() for rule in group.rules]} for group in of],
    }


def alerts(of: tuple[Group, ...]) -> Iterator[Alert]:
    """Yield the alerts of groups, without what is only recorded."""
    for group in of:
        yield from (rule for rule in group.rules if isinstance(rule, Alert))
