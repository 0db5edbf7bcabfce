"""Limits on what inference takes of a machine: presets, own ones from a file, and the one that the environment chooses.

The I/O priority of `aggressive` is what Linux gives a process of normal priority: best effort at level 4 (ionice(1)).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from paddock.errors import did_you_mean
from paddock.modes.errors import ModeInputError

Mode = Literal["conservative", "default", "aggressive"]
Deployment = Literal["desktop", "server", "hybrid"]

VARIABLE = "PADDOCK_DEPLOYMENT_MODE"

Fraction = Annotated[float, Field(ge=0.05, le=1, allow_inf_nan=False)]


class Strict(BaseModel):
    """Base of all that is read from a file: no unknown keys, no conversion, no change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ResourceConfig(Strict):
    """Limits of one process that serves a model."""

    max_vram_usage_percent: Fraction = 0.7
    """Part of the GPU's memory, 0.05 to 1, that weights, cache and activations may take."""
    max_compute_usage_percent: Fraction = 0.8
    """Part of the time, 0.05 to 1, in which a request may run: after each a pause keeps to it."""
    process_priority: Annotated[int, Field(ge=-20, le=19)] = 10
    """nice(2): 19 is the lowest priority, 0 the normal one. On Windows it chooses a priority class."""
    io_priority_class: Annotated[int, Field(ge=0, le=3)] = 3
    """Linux: 0 none, 1 real time, 2 best effort, 3 idle."""
    io_priority_level: Annotated[int, Field(ge=0, le=7)] = 7
    """Linux: 0, the highest, to 7; only of the classes 1 and 2."""
    enable_auto_throttle: bool = True
    """Pauses between requests. Without them neither the compute limit nor the interval has an effect."""
    min_request_interval_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 50
    """Milliseconds from the start of one request to that of the next, at least."""
    max_batch_size: Annotated[int, Field(ge=1, le=65536)] = 4
    """Sequences in one request."""


PRESETS: Mapping[Mode, ResourceConfig] = {
    "conservative": ResourceConfig(
        max_vram_usage_percent=0.5,
        max_compute_usage_percent=0.6,
        process_priority=15,
        min_request_interval_ms=100,
        max_batch_size=2,
    ),
    "default": ResourceConfig(),
    "aggressive": ResourceConfig(
        max_vram_usage_percent=0.95,
        max_compute_usage_percent=0.95,
        process_priority=0,
        io_priority_class=2,
        io_priority_level=4,
        enable_auto_throttle=False,
        min_request_interval_ms=0,
        max_batch_size=16,
    ),
}
DEPLOYMENTS: Mapping[Deployment, Mode] = {"desktop": "conservative", "server": "aggressive", "hybrid": "default"}


def deployment_mode(environ: Mapping[str, str] = os.environ) -> Mode:
    """Return the mode that PADDOCK_DEPLOYMENT_MODE chooses; unset it is a desktop's, the cautious choice.

    Raises ModeInputError.
    """
    value = environ.get(VARIABLE) or "desktop"
    for name, mode in DEPLOYMENTS.items():
        if name == value:
            return mode
    hint = did_you_mean(value, DEPLOYMENTS, f"unset {VARIABLE} for desktop")
    raise ModeInputError(
        f"{VARIABLE}: {value!r} is not one of the choices"
        f"\n    expected: one of {', '.join(DEPLOYMENTS)}\n    fix: {hint}"
    )
