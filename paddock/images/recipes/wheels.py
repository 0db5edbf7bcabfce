"""Wheels for an image, so that its build asks no package index: Paddock itself, and what Paddock needs."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path

from paddock.images.docker import folders
from paddock.images.errors import BuildError, BuildInputError
from paddock.images.recipes import context

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
"""Python versions that a base image may have: the same wheels serve each base, so the base is not part of them."""
_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
# The first is what wheels are named after today, the others are older names of tags that still run everywhere.
_TAGS = ("manylinux_2_28", "manylinux_2_17", "manylinux2014")

PROJECT = (
    "pyproject.toml",
    "LICENSE",
    *(f"paddock/{name}.py" for name in ("__init__", "__main__", "baselines", "children", "clock", "duration")),
    *(f"paddock/{name}.py" for name in ("errors", "files", "image_reference", "labels", "process", "ray_labels")),
    "paddock/validation.py",
    *(f"paddock/{name}" for name in ("tasks", "console", "aws", "catalog", "gpu", "html", "models", "openai")),
    *(f"paddock/{name}" for name in ("modes", "smoke", "bench", "serve", "slurm")),
)
"""Packages of jobs: the hooks, `paddock gpu.*`, `smoke`, `bench.*`, Slurm and the catalogue. If what plans
and builds fleets were in it too, each change of that would make another image."""


def of_project(root: Path, into: Path) -> Path:
    """Builds the wheel of `PROJECT`, which is all that an image needs of the checkout at `root`. Raises BuildError."""
    if not (root / "pyproject.toml").is_file():
        raise BuildInputError(
            f"{root} is not a checkout of Paddock, which images are built from\n"
            "    expected: pyproject.toml and images/\n    fix: clone the project and run ./inv there"
        )
    with tempfile.TemporaryDirectory(prefix="paddock-wheel-") as folder:
        context.stage({name: root / name for name in PROJECT}, Path(folder))
        Path(folder, "README.md").touch()  # pyproject.toml names it as the description
        command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(into.resolve())]
        finished = _run(command, Path(folder))
    built = list(into.glob("paddock-*.whl"))
    if finished.returncode or len(built) != 1:
        raise BuildError(f"cannot build the wheel of Paddock in {into}: {_last(finished.stderr)}")
    return built[0]


def of_lock(lock: Path, architecture: str, cache: Path | None = None) -> Path:
    """The folder with the wheels of a lock for Linux, downloaded once and checked against its hashes.

    `architecture` is amd64 or arm64. Raises BuildError.
    """
    text = lock.read_bytes() + " ".join((*PYTHONS, *_TAGS, architecture)).encode()
    folder = (cache or folders.cache(os.environ)) / "wheels" / hashlib.sha256(text).hexdigest()[:16]
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Whole or not at all: next to its place, then renamed.
        with tempfile.TemporaryDirectory(prefix=".", dir=folder.parent) as part:
            into = Path(part, "wheels")
            with _pip() as pip:
                for python in PYTHONS:
                    _download(pip, lock, python, architecture, into)
            try:
                into.rename(folder)
            except OSError:
                if not folder.is_dir():  # another run may have been first
                    raise
    except OSError as error:
        raise BuildError(
            f"cannot keep wheels in {folder.parent}: {error.strerror}\n    expected: a writable folder with 20 MB free"
            "\n    fix: XDG_CACHE_HOME names another cache"
        ) from None
    return folder


def _download(pip: Sequence[str], lock: Path, python: str, architecture: str, into: Path) -> None:
    machine = _MACHINES[architecture]
    platforms = [word for tag in _TAGS for word in ("--platform", f"{tag}_{machine}")]
    finished = _run(
        [
            *(*pip, "download", "--quiet", "--no-input", "--require-hashes", "--no-deps", "--only-binary", ":all:"),
            *("--python-version", python, *platforms, "--dest", str(into), "--requirement", str(lock)),
        ],
        lock.parent,
    )
    if not finished.returncode:
        return
    if re.search(r"connection|timed out|resolution|certificate|proxy|from versions: none\)", finished.stderr, re.I):
        raise BuildError(
            f"cannot download the wheels of {lock.name}: the package index cannot be reached ({_last(finished.stderr)})"
            "\n    expected: a network for the first build after the lock changed"
            "\n    fix: run again; behind a proxy set HTTPS_PROXY, where there is a mirror PIP_INDEX_URL"
        )
    raise BuildError(f"cannot download the wheels of {lock.name} for Python {python}: {_last(finished.stderr)}")


@contextlib.contextmanager
def _pip() -> Iterator[list[str]]:
    """This environment's pip; one made for the purpose where a tool made the environment without."""
    module = ["-m", "pip", "--disable-pip-version-check"]
    if importlib.util.find_spec("pip"):
        yield [sys.executable, *module]
        return
    with tempfile.TemporaryDirectory(prefix="paddock-pip-") as folder:
        try:
            venv.create(folder, with_pip=True)
        except subprocess.CalledProcessError:
            raise BuildInputError(
                "this Python has no pip and cannot make an environment with one\n    expected: pip, to download wheels"
                "\n    fix: apt install python3-venv"
            ) from None
        yield [str(Path(folder, "bin", "python")), *module]


def _run(command: Sequence[str], folder: Path) -> subprocess.CompletedProcess[str]:
    # hatchling gives the members of a wheel the date in this variable; set by a user, it would be another one's wheel.
    environ = {name: value for name, value in os.environ.items() if name != "SOURCE_DATE_EPOCH"}
    return subprocess.run(
        command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )


def _last(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    # pip prints its own word for an unexpected error above a traceback.
    errors = [line for line in lines if line.lower().startswith("error") and line != "ERROR: Exception:"]
    return (errors or lines or ["it says nothing"])[-1]
