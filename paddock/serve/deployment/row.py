"""Row of an instance: what commands, gateway and metrics know of one, whoever declares it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

State = Literal["pending", "loading", "serving", "failed", "lost", "unreachable", "unloading"]
"""`pending` waits for devices that hold it, `lost` for such devices after its own have gone.

An external engine is `serving` or `unreachable`. `unloading` lasts until its replica has ended.
"""


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One instance. `since` is seconds since the epoch; `moves` counts how often it was placed anew.

    `kind` is the plan's class, or `External` with the `url` of its engine and the `key_file` of its API key.
    """

    id: str
    model: str
    state: State
    reason: str | None
    kind: str | None
    backend: str | None
    dtype: str | None
    context: int | None
    concurrency: int
    since: float
    tensor_parallel: int | None = None
    devices: tuple[str, ...] = ()
    moves: int = 0
    recovered_seconds: float | None = None
    url: str | None = None
    key_file: str | None = None
    engine: Literal["paddock", "vllm", "external"] = "paddock"

    def document(self) -> dict[str, Any]:
        """Return it as JSON types; `kind` is `class` there."""
        document = {"class" if name == "kind" else name: value for name, value in asdict(self).items()}
        return {**document, "devices": list(self.devices)}
