"""From sources to programs in a folder of the host, by an image with the toolkit."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paddock.build import deliver, recipe
from paddock.build.bases import Base
from paddock.build.cuda import manifest
from paddock.build.cuda.architectures import architectures, numbers
from paddock.build.docker import Docker, Progress
from paddock.build.errors import BuildError, BuildInputError
from paddock.build.recipe import Prepared

NAME = "cuda-builder"


def compiled(base: Base, asked: Sequence[str]) -> tuple[str, ...]:
    """The architectures to compile for. Raises BuildInputError.

    Of a base that does not say which CUDA it holds the build finds out: then none means all, and none is refused here.
    """
    return architectures(base.cuda, asked) if base.cuda else numbers(asked)


def prepare(root: Path, base: Base, asked: Sequence[str], into: Path) -> Prepared:
    """What the image is built from, for the architectures asked for or all. Raises BuildInputError."""
    arguments = [f"ARCHITECTURES={' '.join(compiled(base, asked))}"]
    plan = recipe.plain(root, NAME, base, recipe.architecture(None), arguments)
    return recipe.prepare(plan, {".": recipe.folder(root, NAME)}, into)


def build(docker: Docker, prepared: Prepared, root: Path, *, no_cache: bool, progress: Progress) -> bool:
    """Compiles, unless this content was compiled before on this machine; whether it did. Raises BuildError."""
    built = deliver.build(
        docker,
        prepared,
        labels=recipe.labels(prepared, root),
        platform=None,
        no_cache=no_cache,
        cache_from=[],
        progress=progress,
        verify=lambda image: None,
    )
    return built is not None


def run(docker: Docker, image: str, output: Path) -> manifest.Manifest:
    """Leaves the image's programs and their manifest in `output`, which is made, as files of this user.

    Raises BuildError, and BuildInputError where the folder cannot be written to.
    """
    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BuildInputError(
            f"{output} cannot be made: {error.strerror}\n    expected: a folder that is yours\n    fix: choose another"
        ) from None
    done = docker.run(image, volumes={output.resolve(): "/output"}, user=f"{os.getuid()}:{os.getgid()}")
    if done.code:
        raise BuildError(f"no programs came out of {image}: {done.stderr.strip()}")
    return manifest.read(output)


def programs(
    root: Path, docker: Docker, base: Base, asked: Sequence[str], output: Path, *, no_cache: bool, progress: Progress
) -> tuple[Prepared, bool, manifest.Manifest]:
    """All of the above: what was prepared, whether it was compiled now, and what lies in `output`."""
    with tempfile.TemporaryDirectory(prefix="paddock-cuda-") as scratch:
        prepared = prepare(root, base, asked, Path(scratch) / "context")
        built = build(docker, prepared, root, no_cache=no_cache, progress=progress)
    return prepared, built, run(docker, prepared.local, output)
