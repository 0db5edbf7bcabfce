"""Row of an instance: what commands, gateway and metrics know of one, no matter who declares it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from paddock.serve.gateway.external import External
from paddock.serve.gateway.upstream import Upstream

State = Literal["pending", "loading", "serving", "failed", "lost", "unreachable", "unloading"]
"""`pending` waits for devices that hold it, `lost` for such devices after its own are gone.

An external engine is `serving` or `unreachable`. `unloading` lasts until its replica has ended.
"""


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """One instance. `since` is seconds since the epoch; `moves` counts how often it was placed again.

    `kind` is the plan's class, or `External` with the `url` of its engine and the `key_file` of its API key. `mode` is
    its resource mode, `paced` says that the gateway keeps its compute part, `throttle` is the factor that others' load
    on its GPU leaves, and `engine_metrics` are what its engine counts.
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
    engine: Literal["llama.cpp", "vllm", "external"] = "llama.cpp"
    engine_version: str | None = None
    mode: str = ""
    paced: bool = False
    throttle: float | None = None
    notes: tuple[str, ...] = ()
    engine_metrics: dict[str, float] | None = None
    recovery: dict[str, float] | None = None
    """Seconds after a loss until it was placed, its process had begun, and it served."""
    lease: str | None = None
    load_seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """Return it as JSON types; `kind` is `class` there."""
        document = {"class" if name == "kind" else name: value for name, value in asdict(self).items()}
        return {**document, "devices": list(self.devices), "notes": list(self.notes)}


@dataclass(slots=True)
class Endpoint:
    """Declared endpoint of another server. It has no device and no lease."""

    id: str
    concurrency: int
    external: External
    since: float = field(default_factory=time.time)
    reason: str = "it has not been checked yet"

    def check(self, seconds: float) -> None:
        """Ask whether it serves its model."""
        self.reason = asyncio.run(self.external.problem(seconds))

    def document(self) -> dict[str, Any]:
        """Return it as JSON types."""
        external = self.external
        return InstanceRow(
            self.id, external.model, "unreachable" if self.reason else "serving", self.reason or None, "External",
            None, None, None, self.concurrency, self.since, url=external.url, key_file=external.key_file or None,
            engine="external",
        ).document()  # fmt: skip

    def upstream(self) -> Upstream:
        """Return the way to it."""
        return self.external.upstream
