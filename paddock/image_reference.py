"""Names of container images, as Docker's engine and the registries read them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from paddock.errors import PaddockError

HUB = "docker.io"

_HOST = re.compile(r"(?:[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*|\[[0-9a-fA-F:]+\])(?::\d+)?")
_PART = re.compile(r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*")
_TAG = re.compile(r"\w[\w.-]{0,127}", re.ASCII)
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


class BadReference(PaddockError):
    """A text that names no image."""

    exit_code = 2


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
    def parse(cls, text: str) -> Reference:
        """Parse a reference. Raises BadReference."""
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
            raise BadReference(
                f"{text!r} is not an image reference\n    expected: REGISTRY/NAME:TAG, all but the tag in lower case"
                "\n    fix: for example localhost:5000/runner-gpu:12.8"
            )
        if host and first in (HUB, f"index.{HUB}"):
            host, name = False, inner
        if not host:
            name = name.removeprefix("library/")
        return cls(first if host else HUB, name, "" if digest else tag or "latest", digest)
