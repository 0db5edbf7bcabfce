"""The image that runs a job: what goes into it, and whether what was built can be trusted to run one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from infra.versions import ACTIONS_RUNNER, ACTIONS_RUNNER_DIGEST, ACTIONS_RUNNER_SHA256
from paddock import __version__
from paddock.images.cuda import manifest
from paddock.images.docker import Docker
from paddock.images.errors import BuildError
from paddock.images.recipes import labels, recipe, wheels
from paddock.images.recipes.bases import Base
from paddock.images.recipes.recipe import Architecture, Recipe

NAME = "runner-gpu"

_RELEASES = "https://github.com/actions/runner/releases/download"
_FRAMEWORKS = Path("locks", "torch.txt")
"""PyTorch, transformers and what `paddock bench` needs besides them."""
_ARCHIVES = {"amd64": "x64", "arm64": "arm64"}


def make(
    root: Path, base: Base, architecture: Architecture, build_args: Sequence[str] = (), *, torch: bool = False
) -> Recipe:
    """The recipe of the pinned runner on a base. `build_args` are a user's NAME=VALUE. Raises BuildInputError."""
    archive = _ARCHIVES[architecture]
    defaults = {
        "BASE": base.image,
        "RUNNER_URL": f"{_RELEASES}/v{ACTIONS_RUNNER}/actions-runner-linux-{archive}-{ACTIONS_RUNNER}.tar.gz",
        "RUNNER_SHA256": ACTIONS_RUNNER_SHA256[archive],
        **({"FRAMEWORKS": "pytorch"} if torch else {}),
        "CONTAINER_HOOKS": f"ghcr.io/actions/actions-runner:{ACTIONS_RUNNER}@{ACTIONS_RUNNER_DIGEST}",
    }
    dockerfile = recipe.folder(root, NAME) / "Dockerfile"
    return Recipe(
        name=NAME,
        base=base,
        architecture=architecture,
        version="-".join(
            (base.cuda or "nocuda", *([f"torch{torch_version(root)}"] if torch else []), f"runner{ACTIONS_RUNNER}")
        ),
        args=recipe.arguments(dockerfile, defaults, build_args),
        labels={labels.RUNNER: ACTIONS_RUNNER},
    )


def torch_version(root: Path) -> str:
    """Return the version of PyTorch in the lock that a runner image has it from."""
    (version,) = re.findall(r"^torch==([\w.]+)", (root / _FRAMEWORKS).read_text(), re.MULTILINE)
    return str(version)


def parts(root: Path, architecture: Architecture, scratch: Path, *, torch: bool = False) -> dict[str, Path]:
    """Return the parts of its build context, created or downloaded; `scratch` must last until they are staged."""
    lock, nothing = root / "locks" / "base.txt", scratch / "nothing"
    nothing.mkdir()
    wheel = wheels.of_project(root, scratch)
    return {
        ".": recipe.folder(root, NAME),
        "hooks": root / "runners" / "hooks",
        "wheels": wheels.of_lock(lock, architecture),
        "wheels/base.txt": lock,
        f"project/{wheel.name}": wheel,
        "cuda": nothing,
        **({"frameworks/torch.txt": root / _FRAMEWORKS} if torch else {"frameworks": nothing}),
        **{f"cuda/{name}": path for name, path in manifest.of_checkout(root, f"linux/{architecture}").items()},
    }


def environment(root: Path, name: str, lock: Path, architecture: Architecture, scratch: Path) -> dict[str, Path]:
    """Return the parts of another image whose Paddock is installed as in the runner's: a lock's wheels, and scripts."""
    wheel, scripts = wheels.of_project(root, scratch), recipe.folder(root, NAME)
    return {
        ".": recipe.folder(root, name),
        **{script: scripts / script for script in ("environment.sh", "paddock.sh")},
        "wheels": wheels.of_lock(lock, architecture),
        "wheels/base.txt": lock,
        f"project/{wheel.name}": wheel,
    }


def verify(docker: Docker, image: str, base: Base, torch: str | None = None) -> None:
    """Runs the image and looks at what a job relies on. Raises BuildError, naming all that is not so.

    `torch` is the version of PyTorch that it must have.
    """
    checks = _checks(base)
    if torch:
        checks["PyTorch"] = ("python3 -c 'import torch; print(torch.__version__.partition(\"+\")[0])'", torch)
    finished = docker.run(image, ["bash", "-c", _script(checks)])
    answers = dict(line.split("\t", 1) for line in finished.stdout.splitlines() if "\t" in line)
    if finished.code or set(answers) != set(checks):
        lines = [line for line in (finished.stdout + finished.stderr).splitlines() if line.strip()]
        raise BuildError(f"the image was built but does not run: {lines[-1] if lines else f'exit {finished.code}'}")
    wrong = [
        f"{subject}: expected {expected}, found {answers[subject]}"
        for subject, (_, expected) in checks.items()
        if answers[subject] != expected
    ]
    if wrong:
        raise BuildError("\n    ".join(["the image was built but is not a runner", *wrong]))


def _checks(base: Base) -> dict[str, tuple[str, str]]:
    """Return each check by its subject: a command, and the last line that it must print."""
    checks = {
        "user": ("id --user", "1001"),
        "runner": ("/home/runner/bin/Runner.Listener --version", ACTIONS_RUNNER),
        "run.sh": ("test -x /home/runner/run.sh && echo there", "there"),
        "hook before a job": ('test -x "$ACTIONS_RUNNER_HOOK_JOB_STARTED" && echo there', "there"),
        "hook after a job": ('test -x "$ACTIONS_RUNNER_HOOK_JOB_COMPLETED" && echo there', "there"),
        "paddock": ("paddock --version", f"paddock {__version__}"),
        "Python packages": ("python3 -c 'import numpy, typing_extensions, yaml; print(\"there\")'", "there"),
        "GPUs without a request": ('echo "$NVIDIA_VISIBLE_DEVICES"', "void"),
    }
    if base.cuda:
        # A runtime base has no compiler; one that has it must have the right one.
        compiler = "if command -v nvcc >/dev/null; then nvcc --version | sed -n 's/.*release \\([0-9.]*\\),.*/\\1/p'"
        checks["CUDA compiler"] = (f"{compiler}; else echo {base.cuda}; fi", base.cuda)
    return checks


def _script(checks: Mapping[str, tuple[str, str]]) -> str:
    return "\n".join(
        f"printf '%s\\t%s\\n' '{subject}' \"$( {{ {command}; }} 2>&1 | tail -n 1)\""
        for subject, (command, _) in checks.items()
    )
