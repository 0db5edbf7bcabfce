"""Values of the engine: image references, images, layers, builds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from paddock.build.errors import BuildInputError

HUB = "docker.io"

_HOST = re.compile(r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::\d+)?")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


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


@dataclass(frozen=True, slots=True)
class Reference:
    registry: str
    """Host and port; `docker.io` where the reference names none."""
    name: str
    """The name with its registry, as the engine lists it: without the hub's own name, tag and digest."""
    tag: str
    """Empty where a digest is given."""
    digest: str

    @property
    def written(self) -> str:
        return f"{self.name}@{self.digest}" if self.digest else f"{self.name}:{self.tag}"

    @classmethod
    def read(cls, text: str) -> Reference:
        """Raises BuildInputError for what is no reference."""
        rest, at, digest = text.partition("@")
        path, slash, last = rest.rpartition("/")
        last, colon, tag = last.partition(":")
        name = f"{path}{slash}{last}"
        first, _, inner = name.partition("/")
        host = bool(inner) and (first == "localhost" or "." in first or ":" in first)
        if (
            not all(_PART.fullmatch(part) for part in (inner if host else name).split("/"))
            or (host and not _HOST.fullmatch(first))
            or (colon and not _TAG.fullmatch(tag))
            or (at and not _DIGEST.fullmatch(digest))
        ):
            raise BuildInputError(
                f"{text!r} is no image reference\n    expected: REGISTRY/NAME:TAG, all but the tag in lower case"
                "\n    fix: for example localhost:5000/runner-gpu:12.8"
            )
        if host and first in (HUB, f"index.{HUB}"):
            host, name = False, inner
        if not host:
            name = name.removeprefix("library/")
        return cls(first if host else HUB, name, "" if digest else tag or "latest", digest)
