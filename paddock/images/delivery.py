"""From a recipe to an image that a fleet can use: built once for one content, looked at, and pushed."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from paddock.errors import Interrupted
from paddock.images.docker import ROOM, Built, Docker, Progress
from paddock.images.errors import BuildError, BuildInputError
from paddock.images.recipes import labels, recipe
from paddock.images.recipes.bases import Base
from paddock.images.recipes.recipe import Prepared

CUDA_ROOM = 15_000_000_000
"""Bytes that a build needs where a CUDA base comes first. An estimate of November 2026: with compiler and cuDNN one is
about 5 GB packed and 9 GB unpacked, and containerd's store keeps both."""


@contextlib.contextmanager
def resumable() -> Iterator[None]:
    """Say at Ctrl-C what stays: a name in the engine, a tag and a pin each come last, so none is of half an image."""
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            "interrupted; steps that were built stay in Docker's cache, layers that were pushed in the registry:"
            " the same command continues from there"
        ) from None


def build(
    docker: Docker,
    prepared: Prepared,
    root: Path,
    *,
    no_cache: bool,
    cache_from: Sequence[str] = (),
    progress: Progress,
    verify: Callable[[str], None] | None = None,
) -> Built | None:
    """Builds the image where the engine has none of its content; None where it has.

    `root` is the checkout, which its labels name. Raises BuildError, also those of `verify`, which gets the image.
    """
    if not no_cache and docker.image(prepared.local) is not None:
        return None
    trial = f"paddock/trial:{uuid.uuid4().hex}"
    try:
        built = docker.build(
            prepared.context,
            tags=[trial],
            args=prepared.arguments,
            labels=recipe.labels_of(prepared, root),
            # Said always: by default the engine may choose another, and the tag would not tell.
            platform=prepared.recipe.platform,
            no_cache=no_cache,
            # Inline, not mode=max: that wants a second tag which moves, and the tags of our registry never do.
            cache_from=cache_from,
            progress=progress,
            room_bytes=_room(docker, prepared.recipe.base),
            known_as=f"{recipe.IMAGES}/{prepared.recipe.name}",
        )
        if verify:
            verify(trial)
        # Named only now: what has the name is what is pushed.
        docker.tag(trial, prepared.local)
    finally:
        with contextlib.suppress(BuildError):  # what went wrong before is what counts
            docker.remove(trial)
    return built


def _room(docker: Docker, base: Base) -> int:
    """Bytes that must be free. The builder keeps a base without a name for it, so what was built on it tells too."""
    if not base.cuda or docker.image(base.image) or docker.images(f"{labels.BASE_DIGEST}={base.identity}"):
        return ROOM
    return CUDA_ROOM


def find(docker: Docker, prepared: Prepared, target: str, *, no_cache: bool) -> str | None:
    """The digest under which the registry has this very content; None where it has not. Raises BuildError."""
    digest = docker.remote_digest(target)
    if digest and no_cache:
        raise BuildInputError(
            f"{target} is in the registry, and a tag always has the same content\n    expected: other content"
            "\n    fix: for newer packages --build-arg PACKAGES_AS_OF=YYYY-MM-DD of today, which makes another tag"
        )
    return digest


def push(docker: Docker, prepared: Prepared, target: str, progress: Progress) -> str:
    """Pushes what was built on this machine; the digest. Raises BuildError."""
    if docker.image(prepared.local) is None:
        raise BuildInputError(
            f"images/{prepared.recipe.name} as it is now was not built on this machine ({prepared.local})"
            "\n    expected: a build of these files with the same flags"
            f"\n    fix: ./inv images.build {prepared.recipe.name}, then push again"
        )
    docker.tag(prepared.local, target)
    return docker.push(target, progress=progress)
