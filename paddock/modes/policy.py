"""A policy file: the limits, and how they differ by application, by user and by the time of day."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator

from paddock.console.output import caller_path
from paddock.errors import did_you_mean
from paddock.modes.config import PRESETS, Fraction, Mode, ResourceConfig, Strict
from paddock.modes.errors import ModeInputError
from paddock.validation import described, read_yaml

Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
_DAYS: tuple[Day, ...] = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_FILES = (".yaml", ".yml", ".json")
_TIME = re.compile(r"([01]\d|2[0-3]):([0-5]\d)")


class Share(Strict):
    """Limits of one application or user, in addition to those of the machine: the stricter holds."""

    max_compute_usage_percent: Fraction = 1.0
    min_request_interval_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 0
    max_batch_size: Annotated[int, Field(ge=1, le=65536)] | None = None


class Window(Strict):
    """Mode between two times of day; one that ends before it starts goes on past midnight."""

    start: str
    """24-hour local time, `"22:00"`."""
    end: str
    mode: Mode
    days: tuple[Day, ...] = _DAYS
    """Days on which it starts."""

    @field_validator("start", "end")
    @classmethod
    def _is_time(cls, value: str) -> str:
        if not _TIME.fullmatch(value):
            raise ValueError(f'"{value}" is not a time of day; write hours and minutes in quotes: "22:00"')
        return value

    def covers(self, moment: dt.datetime) -> bool:
        """Return whether the window is open at a local time."""
        now = moment.strftime("%H:%M")
        today, yesterday = (_DAYS[(moment.weekday() - back) % 7] in self.days for back in (0, 1))
        if self.start < self.end:
            return today and self.start <= now < self.end
        return (today and now >= self.start) or (yesterday and now < self.end)


class Adaptive(Strict):
    """Throttling while others use the GPU."""

    enabled: bool = True
    foreign_load: Fraction = 0.1
    """Part of the GPU's time that others may take before this process gives way."""
    least_compute: Fraction = 0.1
    """Part of the time that stays to this process however busy the others are."""


class GpuCap(Strict):
    """Cap on the GPU itself, where the driver allows it: watts, or the highest clock in MHz."""

    power_watts: Annotated[int, Field(ge=1, le=5000)] | None = None
    clock_mhz: Annotated[int, Field(ge=1, le=10_000)] | None = None


class Policy(Strict):
    """All limits of one deployment. Keys of `resources` that are not written have the values of `mode`."""

    mode: Mode = "default"
    resources: ResourceConfig = PRESETS["default"]
    applications: dict[str, Share] = Field(default_factory=dict)
    users: dict[str, Share] = Field(default_factory=dict)
    each_user: Share | None = None
    """Limits of every user who is not named."""
    schedule: tuple[Window, ...] = ()
    adaptive: Adaptive = Adaptive(enabled=False)
    gpu: GpuCap = GpuCap()

    def at(self, moment: dt.datetime) -> ResourceConfig:
        """Return the limits at a local time: those of the first open window's mode, else `resources`."""
        return next((PRESETS[window.mode] for window in self.schedule if window.covers(moment)), self.resources)

    def current(self, now: Callable[[], dt.datetime] = dt.datetime.now) -> Callable[[], ResourceConfig]:
        """Return a function that returns the limits of its moment."""
        return (lambda: self.at(now())) if self.schedule else (lambda: self.resources)


def of_mode(mode: Mode) -> Policy:
    """Return the policy that is a preset and nothing else."""
    return Policy(mode=mode, resources=PRESETS[mode])


def named(name: str) -> tuple[str, str, Policy]:
    """Return what `--mode` names: its short name, its text (a preset's name, or JSON) and the policy.

    A path of a policy's file is relative to the caller. Raises ModeInputError.
    """
    path = caller_path(name)
    if path.suffix in _FILES:
        policy = read(path)
        return path.stem, policy.model_dump_json(), policy
    for mode in PRESETS:
        if mode == name:
            return mode, mode, of_mode(mode)
    hint = did_you_mean(name, PRESETS, f"one of {', '.join(PRESETS)}, or a file")
    raise ModeInputError(f"--mode: there is no mode {name!r}\n    expected: {hint}")


def of_text(text: str) -> Policy | None:
    """Return the policy of what `named` returns as text; None for an empty one."""
    for mode in PRESETS:
        if mode == text:
            return of_mode(mode)
    return Policy.model_validate_json(text) if text else None


def read(path: Path) -> Policy:
    """Read a policy, YAML or JSON. Raises ModeInputError with all its problems."""
    document = read_yaml(path, "a policy, YAML or JSON (docs/bench-modes.md)", ModeInputError)
    try:
        return Policy.model_validate_json(json.dumps(_completed(document)))
    except ValidationError as error:
        raise ModeInputError(described(error, Policy, path)) from None


def _completed(document: Any) -> Any:
    """Return the document with the values of its mode where `resources` has none."""
    if not isinstance(document, dict) or not isinstance(own := document.get("resources", {}), dict):
        return document
    base = next((config for name, config in PRESETS.items() if name == document.get("mode", "default")), None)
    return {**document, "resources": {**base.model_dump(), **own}} if base else document
