"""Values of the engine: images, layers, builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Built:
    seconds: float
    steps: int
    """Steps of the Dockerfile that make a layer, all its stages together."""
    cached: int
    """The number of steps that were not run, because nothing that they depend on has changed."""


@dataclass(frozen=True, slots=True)
class Finished:
    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True, slots=True)
class Layer:
    size_bytes: int
    """Unpacked; 0 for an instruction that only writes metadata."""
    created_by: str


@dataclass(frozen=True, slots=True)
class Local:
    """An image in the engine's store."""

    id: str
    size_bytes: int
    labels: Mapping[str, str]
    created: str
    """ISO 8601."""
    digests: tuple[str, ...]
    """`name@sha256:…` of every registry that it was pushed to or pulled from."""
    user: str
    """Empty where the image names none, which is root."""
    environment: Mapping[str, str]
    architecture: str = ""
    """Docker's name of it: amd64, arm64; empty where the engine does not say."""
