"""Health of a node that runs: munge, the controller, and the node's state."""

from __future__ import annotations

import json
from dataclasses import dataclass

from paddock.slurm.start import munge, queries
from paddock.slurm.start.layout import LAYOUT, Layout


@dataclass(frozen=True, slots=True)
class Finding:
    """Part of the node's health."""

    part: str
    healthy: bool
    evidence: str


def health(paths: Layout = LAYOUT) -> tuple[Finding, ...]:
    """Return the health of the parts that this container runs; one finding where it is not ready."""
    try:
        node = json.loads(paths.node.read_text(encoding="utf-8"))
        name, role = str(node["name"]), str(node["role"])
    except (OSError, ValueError, KeyError, TypeError):
        return (Finding("start", False, "the node is not ready: it starts, or it has ended"),)
    signs, controls = munge.answers(paths), queries.controller_answers()
    findings = [
        Finding("munge", signs, "signs and checks" if signs else "does not answer"),
        Finding("slurmctld", controls, "up" if controls else "does not answer"),
    ]
    if role != "controller":
        state = queries.node_state(name)
        findings.append(Finding("node", state.answers and not state.out, f"{name} is {state}"))
    return tuple(findings)
