"""Instance of a model: its placement, and where it stands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.serve.placement.plan import Group, Plan
from paddock.serve.placement.request import Policy, Request

State = Literal["pending", "loading", "serving", "failed", "lost"]
"""`pending` waits for devices that hold it, `lost` for such devices after its own have gone."""


@dataclass(slots=True)
class Instance:
    """One declared model. `since` is seconds since the epoch. `moves` counts how often it was placed anew.

    `plan` is the last one, None before the first. `source` is the checkpoint's folder. Until `awaited_until` its
    former agents, `awaited`, may still come back.
    """

    id: str
    model: str
    request: Request
    policy: Policy
    source: str
    plan: Plan | None
    state: State
    since: float
    deadline: float
    reason: str = ""
    moves: int = 0
    recovered_seconds: float | None = None
    lost_at: float | None = field(default=None, repr=False)
    awaited: frozenset[str] = frozenset()
    awaited_until: float = 0.0

    @property
    def application(self) -> str:
        return f"model-{self.id}"

    @property
    def agents(self) -> frozenset[str]:
        return frozenset(placed.device.agent for group in self._groups for placed in group.devices)

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(placed.device.label for group in self._groups for placed in group.devices)

    @property
    def _groups(self) -> tuple[Group, ...]:
        return self.plan.groups if self.plan else ()

    def document(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            "id": self.id,
            "model": self.model,
            "state": self.state,
            "reason": self.reason or None,
            "class": self.plan.kind if self.plan else None,
            "backend": self.plan.backend if self.plan else None,
            "dtype": self._groups[0].dtype if self._groups else self.request.dtype,
            "tensor_parallel": self._groups[0].degree if self._groups else None,
            "devices": list(self.devices),
            "context": self.request.context,
            "concurrency": self.request.concurrency,
            "since": self.since,
            "moves": self.moves,
            "recovered_seconds": self.recovered_seconds,
            "url": None,
            "key_file": None,
        }
