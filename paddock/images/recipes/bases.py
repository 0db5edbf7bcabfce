"""Bases of images: NVIDIA's images of one CUDA and Ubuntu, or any image that a user names."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from infra.versions import CUDA_BASES
from paddock import catalog
from paddock.image_reference import Reference
from paddock.images.docker import Local, Progress
from paddock.images.errors import BuildInputError

DEFAULT_CUDA = "12.8"
"""Every driver of the fleet's machine images runs it, and it compiles for every GPU from Maxwell to Blackwell."""
DEFAULT_UBUNTU = "22.04"


@dataclass(frozen=True, slots=True)
class Base:
    image: str
    identity: str
    """Digest, or the engine's id of an image that came from no registry: what is really built on."""
    cuda: str | None
    """Minor (`12.8`) of the toolkit inside; None where there is none."""


class Store(Protocol):
    """The part of the engine that knows images."""

    def image(self, reference: str) -> Local | None: ...
    def pull(self, reference: str, *, platform: str, progress: Progress) -> None: ...


def named(cuda: str | None, ubuntu: str | None, base: str | None) -> Base | None:
    """NVIDIA's image as flags name it; None where `base` is the image.

    Raises BuildInputError, also where flags contradict each other.
    """
    if not base:
        return published(cuda or DEFAULT_CUDA, ubuntu or DEFAULT_UBUNTU)
    if not cuda and not ubuntu:
        return None
    flag = "--cuda" if cuda else "--ubuntu"
    raise BuildInputError(
        f"{flag} and --base exclude each other\n    expected: one of them; a base brings its own CUDA and system"
        f"\n    fix: leave {flag} or --base out"
    )


def published(cuda: str, ubuntu: str) -> Base:
    """NVIDIA's image with compiler and cuDNN, by digest. Raises BuildInputError, naming what there is."""
    try:
        minor = catalog.cuda_toolkit(cuda).version
    except catalog.UnknownCuda as unknown:
        toolkits = list(catalog.cuda_toolkits())
        near = f"did you mean {unknown.suggestions[0]}?" if unknown.suggestions else "choose one of these"
        raise BuildInputError(
            f"there is no CUDA {cuda}\n    expected: one of {', '.join(toolkits)}\n    fix: {near}"
        ) from None
    try:
        image = CUDA_BASES[minor, ubuntu]
    except KeyError:
        pairs = ", ".join(f"CUDA {has} on {on}" for has, on in CUDA_BASES)
        raise BuildInputError(
            f"no base image has CUDA {minor} on Ubuntu {ubuntu}\n    expected: {pairs}"
            f"\n    fix: {_nearest(minor, ubuntu)}, or --base with an image of yours"
        ) from None
    return Base(image, image.partition("@")[2], minor)


def custom(store: Store, image: str, platform: str, progress: Progress = "auto") -> Base:
    """An image that a user names, pulled for `platform` (linux/amd64) where the engine has none of that name.

    Raises BuildError.
    """
    if store.image(image) is None:
        store.pull(image, platform=platform, progress=progress)
    local = store.image(image)
    if local is None:
        raise BuildInputError(
            f"the engine has no {image}, although it pulled it\n    expected: an image for one platform"
            "\n    fix: name it with its registry and tag, as docker image ls shows it"
        )
    # An image that was also pushed elsewhere has digests of other names, which come and go.
    own = f"{Reference.parse(image).name}@"
    identity = next((digest.removeprefix(own) for digest in local.digests if digest.startswith(own)), local.id)
    variable = local.environment.get("CUDA_VERSION") or local.environment.get("NV_CUDA_LIB_VERSION") or ""
    cuda = re.match(r"\d+\.\d+", variable)
    return Base(image, identity, cuda[0] if cuda else None)


def _nearest(cuda: str, ubuntu: str) -> str:
    if ubuntus := [on for has, on in CUDA_BASES if has == cuda]:
        return f"--ubuntu {ubuntus[0]}"
    pairs = [(has, on) for has, on in CUDA_BASES if on == ubuntu] or list(CUDA_BASES)
    newer = [pair for pair in pairs if catalog.version(pair[0]) >= catalog.version(cuda)]
    has, on = (newer or pairs[-1:])[0]
    return f"--cuda {has}" + (f" --ubuntu {on}" if on != ubuntu else "")
