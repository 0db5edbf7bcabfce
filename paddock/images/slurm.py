"""Image of a Slurm node: its parts, its build, and a check of what was built."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, get_args

from infra.versions import SLURM_BASES
from paddock import __version__
from paddock.errors import did_you_mean
from paddock.images import delivery, runner
from paddock.images.docker import Built, Docker, Progress
from paddock.images.errors import BuildError, BuildInputError
from paddock.images.recipes import bases, recipe
from paddock.images.recipes.bases import Base
from paddock.images.recipes.recipe import Architecture, Prepared, Recipe

NAME = "slurm"
GpuType = Literal["nvidia", "amd", "none"]

_CHECK = """set -e
for program in munged slurmctld slurmd sbatch scontrol tini; do
  command -v $program > /dev/null || echo no $program
done
test ! -e /etc/munge/munge.key || echo a key of munge is in it
paddock --version
"""


def gpu_type(name: str) -> GpuType:
    """Return the type of that name. Raises BuildInputError."""
    names: tuple[GpuType, ...] = get_args(GpuType)
    if name in names:
        return names[names.index(name)]
    raise BuildInputError(
        f"--gpu-type {name!r}\n    expected: {', '.join(names)}"
        f"\n    fix: {did_you_mean(name, names, '--gpu-type none')}"
    )


def default_base(kind: GpuType) -> str:
    """Return the pinned base for GPUs of this type."""
    return SLURM_BASES[kind]


def alias(kind: GpuType) -> str:
    """Return the name under which this machine's engine has the newest build."""
    return f"paddock/{NAME}:{kind}"


def make(root: Path, base: Base, architecture: Architecture, kind: GpuType, build_args: Sequence[str] = ()) -> Recipe:
    """Return the recipe on a base. `build_args` are a user's NAME=VALUE. Raises BuildInputError."""
    dockerfile = recipe.folder(root, NAME) / "Dockerfile"
    args = recipe.arguments(dockerfile, {"BASE": base.image, "GPU_TYPE": kind}, build_args)
    return Recipe(NAME, base, architecture, args["GPU_TYPE"], args, labels={})


def parts(root: Path, architecture: Architecture, scratch: Path) -> dict[str, Path]:
    """Return the parts of its build context, created or downloaded; `scratch` must last until they are staged."""
    return runner.environment(root, NAME, root / "locks" / "base.txt", architecture, scratch)


def build(
    docker: Docker,
    root: Path,
    kind: GpuType,
    *,
    base: str = "",
    tag: str = "",
    no_cache: bool = False,
    progress: Progress = "auto",
) -> Built | None:
    """Build the image for this machine unless its content was built before, and name it by its alias or by `tag`.

    Returns None where nothing was to be built. Raises BuildError.
    """
    architecture = recipe.architecture(None)
    chosen = bases.custom(docker, base or default_base(kind), f"linux/{architecture}", progress)
    with tempfile.TemporaryDirectory(prefix="paddock-build-") as folder:
        scratch = Path(folder)
        plan = make(root, chosen, architecture, kind)
        prepared = recipe.prepare(plan, parts(root, architecture, scratch), scratch / NAME)
        check = functools.partial(verify, docker)
        built = delivery.build(docker, prepared, root, no_cache=no_cache, progress=progress, verify=check)
    docker.tag(prepared.local, tag or alias(kind))
    return built


def name(docker: Docker, prepared: Prepared) -> None:
    """Give a built image its alias. Raises BuildError."""
    docker.tag(prepared.local, alias(gpu_type(prepared.recipe.args["GPU_TYPE"])))


def verify(docker: Docker, image: str) -> None:
    """Check that a built image has Slurm's programs, Paddock, and no key. Raises BuildError."""
    finished = docker.run(image, ["-c", _CHECK], entrypoint="sh")
    lines = [line for line in (finished.stdout + finished.stderr).splitlines() if line.strip()]
    if finished.code or lines != [f"paddock {__version__}"]:
        problem = "; ".join(lines) or f"exit {finished.code}"
        raise BuildError(f"the image was built but is not a Slurm node: {problem}")
