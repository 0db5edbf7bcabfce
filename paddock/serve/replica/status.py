"""Status of a replica: what the scheduler and the gateway learn of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paddock.serve.placement.plan import ModelPlacement

State = Literal["loading", "serving", "failed"]


@dataclass(frozen=True, slots=True)
class Task:
    """Task of a replica: to serve a plan's model under an id.

    `source` is a file, a folder, a name of the hub or of a preset. Its server must be ready within `seconds` of its
    start. `listen` is the address at which it forwards from other machines, empty on the gateway's own.
    """

    id: str
    source: str
    plan: ModelPlacement
    seconds: float
    listen: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """State of a replica. `port` is the engine's on loopback, `key` what it asks for.

    `through` and `pass_key` are the way from another machine. `throttle` is the factor that others' load on the GPU
    leaves, None where it is not watched; `paced` says that the gateway keeps the mode's compute part by pauses.
    """

    state: State = "loading"
    reason: str = ""
    port: int = 0
    key: str = field(default="", repr=False)
    through: str = ""
    pass_key: str = field(default="", repr=False)
    engine: str = ""
    version: str = ""
    pid: int = 0
    starts: int = 0
    load_seconds: float | None = None
    lease: str | None = None
    paced: bool = False
    throttle: float | None = None
    notes: tuple[str, ...] = ()
    metrics: Mapping[str, float] = field(default_factory=dict)
