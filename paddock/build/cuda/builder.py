"""From sources to programs in a folder of the host, by an image with the toolkit."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from paddock.build.cuda import manifest
from paddock.build.cuda.architectures import architectures, numbers
from paddock.build.docker import Docker
from paddock.build.errors import BuildError
from paddock.build.recipes import recipe
from paddock.build.recipes.bases import Base
from paddock.build.recipes.recipe import Architecture, Recipe

NAME = "cuda-builder"


def compiled(base: Base, requested: Sequence[str]) -> tuple[str, ...]:
    """The architectures to compile for. Raises BuildInputError.

    Of a base that does not say which CUDA it holds the build finds out: then none means all, and none is refused here.
    """
    return architectures(base.cuda, requested) if base.cuda else numbers(requested)


def make(
    root: Path, base: Base, architecture: Architecture, build_args: Sequence[str] = (), requested: Sequence[str] = ()
) -> Recipe:
    """Return the recipe for these architectures, or all. `build_args` are NAME=VALUE. Raises BuildInputError."""
    return recipe.plain(
        root, NAME, base, architecture, build_args, own={"ARCHITECTURES": " ".join(compiled(base, requested))}
    )


def run(docker: Docker, image: str, output: Path) -> manifest.Manifest:
    """Leaves the image's programs and their manifest in `output`, which is made, as files of this user.

    Raises BuildError.
    """
    output.mkdir(parents=True, exist_ok=True)
    finished = docker.run(image, volumes={output.resolve(): "/output"}, user=f"{os.getuid()}:{os.getgid()}")
    if finished.code:
        raise BuildError(f"no programs came out of {image}: {finished.stderr.strip()}")
    return manifest.read(output)
