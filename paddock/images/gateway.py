"""Image of the gateway before Ray Serve LLM: its recipe, its parts, and a check of what was built."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from paddock.images import runner
from paddock.images.docker import Docker
from paddock.images.errors import BuildError
from paddock.images.recipes import recipe
from paddock.images.recipes.bases import Base
from paddock.images.recipes.recipe import Architecture, Recipe

NAME = "gateway"

_CHECK = """import importlib.util, os
import paddock.serve.gateway.program
wrong = [f"{name} is in it" for name in ("ray", "torch") if importlib.util.find_spec(name)]
wrong += ["it runs as root"] * (os.getuid() == 0)
print(*wrong, sep="; ")
"""


def make(root: Path, base: Base, architecture: Architecture, build_args: Sequence[str] = ()) -> Recipe:
    """Return the recipe on a base. `build_args` are a user's NAME=VALUE. Raises BuildInputError."""
    args = recipe.arguments(recipe.folder(root, NAME) / "Dockerfile", {"BASE": base.image}, build_args)
    return Recipe(NAME, base, architecture, "py3", args, labels={})


def parts(root: Path, architecture: Architecture, scratch: Path) -> dict[str, Path]:
    """Return the parts of its build context, created or downloaded; `scratch` must last until they are staged."""
    return runner.environment(root, NAME, root / "locks" / "gateway.txt", architecture, scratch)


def verify(docker: Docker, image: str) -> None:
    """Check that a built image has the gateway's program, no engine, and a user without rights. Raises BuildError."""
    finished = docker.run(image, ["-c", _CHECK], entrypoint="/opt/paddock/venv/bin/python")
    problem = (finished.stdout + finished.stderr).strip()
    if finished.code or problem:
        last = problem.splitlines()[-1] if problem else f"exit {finished.code}"
        raise BuildError(f"the image was built, but the gateway does not start in it: {last}")
