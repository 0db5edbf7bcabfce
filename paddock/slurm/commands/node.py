"""`slurm.start` and `slurm.health`: the node inside its container."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.parameters import NoParameters
from paddock.console.report import Report
from paddock.slurm.start import munge, node, queries
from paddock.slurm.start.layout import LAYOUT
from paddock.slurm.start.request import StartRequest, checked


@command(reports=False)
def start(parameters: StartRequest) -> int:
    """Run a node until it is stopped, and return the exit code. Raises SlurmError."""
    return node.run(checked(parameters))


@dataclass(frozen=True, kw_only=True)
class Health(Report):
    """Parts of the node that this container runs: munge, the controller and the node's state."""

    SCHEMA = 1
    parts: list[dict[str, Any]]

    @property
    def healthy(self) -> bool:
        return all(part["healthy"] for part in self.parts)

    @property
    def exit_code(self) -> int:
        return 0 if self.healthy else 1

    def text(self) -> Iterator[str]:
        for part in self.parts:
            yield f"{'ok  ' if part['healthy'] else 'FAIL'} {part['part']}: {part['evidence']}"

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "healthy": self.healthy, "parts": self.parts}


@command()
def health(parameters: NoParameters) -> Health:
    """Check the node of this container."""
    try:
        about = json.loads(LAYOUT.node.read_text(encoding="utf-8"))
        name, role = str(about["name"]), str(about["role"])
    except (OSError, ValueError, KeyError, TypeError):
        return Health(parts=[_part("start", False, "the node is not ready: it starts, or it has ended")])
    signs, controls = munge.answers(LAYOUT), queries.controller_answers()
    parts = [
        _part("munge", signs, "signs and checks" if signs else "does not answer"),
        _part("slurmctld", controls, "up" if controls else "does not answer"),
    ]
    if role != "controller":
        state = queries.node_state(name)
        parts.append(_part("node", state.answers and not state.out, f"{name} is {state}"))
    return Health(parts=parts)


def _part(part: str, healthy: bool, evidence: str) -> dict[str, Any]:
    return {"part": part, "healthy": healthy, "evidence": evidence}
