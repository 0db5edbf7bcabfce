"""Instance of a model: its placement, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.serve.placement.plan import Plan

State = Literal["loading", "serving", "failed", "lost"]


@dataclass(slots=True)
class Instance:
    """One loaded model. `since` is seconds since the epoch. `moves` counts how often it was placed anew."""

    id: str
    model: str
    plan: Plan
    state: State
    since: float
    deadline: float
    reason: str = ""
    moves: int = 0
    recovered_seconds: float | None = None
    lost_at: float | None = field(default=None, repr=False)

    @property
    def application(self) -> str:
        return f"model-{self.id}"

    @property
    def agents(self) -> frozenset[str]:
        return frozenset(placed.device.agent for group in self.plan.groups for placed in group.devices)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(placed.device.label for group in self.plan.groups for placed in group.devices)

    def document(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "id": self.id,
            "model": self.model,
            "state": self.state,
            "reason": self.reason or None,
            "class": self.plan.kind,
            "backend": self.plan.backend,
            "dtype": self.plan.groups[0].dtype,
            "devices": list(self.devices),
            "context": self.plan.request.context,
            "since": self.since,
            "moves": self.moves,
            "recovered_seconds": self.recovered_seconds,
        }
