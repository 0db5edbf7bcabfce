"""Ways out of the private subnets: what each part of a fleet calls, and which of it a network without NAT lacks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from paddock.fleet import software
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.mirror import PRIVATE_ECR, registry


@dataclass(frozen=True, slots=True)
class Way:
    """Services that a part calls, as `network.endpoints` names them, and hosts on the internet."""

    name: str
    key: str
    """Key of the stack file that asks for the part."""
    what: str
    why: str
    without: str
    """What happens without it."""
    source: str
    as_of: date
    endpoints: tuple[str, ...] = ()
    older: tuple[str, ...] = ()
    """Services that only old versions of a part call."""
    hosts: tuple[str, ...] = ()
    optional: bool = False
    """Nothing of the fleet needs it."""


@cache
def ways() -> tuple[Way, ...]:
    """Return what every part that there is calls."""
    rows: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
    return tuple(_way(row) for row in rows)


def _way(row: dict[str, Any]) -> Way:
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}
    return Way(**values)


def of(fleet: Fleet) -> tuple[Way, ...]:
    """Return what the parts of this stack call from the VPC's subnets; nothing where it makes no nodes."""
    return tuple(way for way in ways() if fleet.makes_network and _CONDITIONS[way.name](fleet))


def _builds_images(fleet: Fleet) -> bool:
    return fleet.images.ami.enabled and fleet.holds("images")


def _image_of_ecr(fleet: Fleet) -> bool:
    image = software.runner_image(fleet) if _builds_images(fleet) and fleet.images.ami.pre_pull else None
    return bool(image and PRIVATE_ECR.fullmatch(registry(image)))


def _always(_: Fleet) -> bool:
    return True


_CONDITIONS: Mapping[str, Callable[[Fleet], bool]] = {
    "nodes": _always,
    "pod-identity": _always,
    "autoscaler": _always,
    "ebs": lambda fleet: fleet.uses_ebs_volumes,
    "metrics": lambda fleet: bool(fleet.sends_to_cloudwatch),
    "job-logs": lambda fleet: fleet.logs.jobs.to == "cloudwatch",
    "image-pipeline": _builds_images,
    "image-from-ecr": _image_of_ecr,
    "image-with-dcgm": lambda fleet: _builds_images(fleet) and fleet.monitoring.enabled,
    "runners": lambda fleet: fleet.holds("runners") and bool(fleet.runners),
    "images-of-pods": _always,
    "session-manager": _always,
}
"""Name of a way -> whether a stack that makes nodes has the part."""
