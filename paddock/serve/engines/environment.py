"""Environment of vLLM on this machine: made of its own lock when a model first needs it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

from paddock import files
from paddock.errors import one_line
from paddock.serve.errors import ServeError

LOCK = Path(__file__).parents[3] / "locks/engines/vllm.txt"
"""In a checkout alone: elsewhere `--python` names an environment."""
SIZE = "4.3 GB to download"
"""Sum of the wheels of the lock for Linux on x86-64, by the index's own sizes, on 2026-11-27."""
_LOOK_S = 1.0
_WHOLE = "whole"
"""File in an environment that has all packages of its lock."""


def vllm_python(environ: Mapping[str, str] = os.environ, lock: Path | None = None) -> Path | None:
    """Return the interpreter of the environment of this lock, which may not be there yet; None without a lock."""
    lock = lock or LOCK
    if not lock.is_file():
        return None
    python = f"{os.path.realpath(sys.executable)} {sys.version}"
    digest = hashlib.sha256(lock.read_bytes() + python.encode()).hexdigest()[:16]
    cache = Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / f"paddock/programs/vllm-{digest}/bin/python"


def is_installed(python: Path) -> bool:
    """Return whether the environment of an interpreter has all of its packages."""
    return (python.parents[1] / _WHOLE).exists()


def install(python: Path, progress: Callable[[str], None], lock: Path | None = None) -> None:
    """Make the environment, alone; what an interrupted one left is made again. Raises ServeError with pip's reason."""
    folder = python.parents[1]
    folder.mkdir(parents=True, exist_ok=True)
    with files.locked(folder.parent / f".{folder.name}.lock", wait=True):
        if is_installed(python):
            return
        progress(f"installing vLLM ({SIZE})")
        # -I: what PYTHONPATH shows would count as installed there.
        _run([sys.executable, "-I", "-m", "venv", "--clear", str(folder)], progress)
        flags = ["--no-input", "--progress-bar=off", "--require-hashes", "--only-binary=:all:"]
        _run([str(python), "-I", "-m", "pip", "install", *flags, "-r", str(lock or LOCK)], progress)
        (folder / _WHOLE).touch()


def _run(command: list[str], progress: Callable[[str], None]) -> None:
    """Run pip, whose downloads print nothing: `progress` is asked once a second all the same, as it may end them."""
    lines: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
    ) as run:

        def read() -> None:
            for line in run.stdout or ():
                lines.append(line.strip())

        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        try:
            while reader.is_alive():
                reader.join(_LOOK_S)
                packages = [line.split()[1] for line in lines if line.startswith("Collecting ")]
                named = f": package {len(packages)}, {packages[-1]}" if packages else ""
                progress(f"installing vLLM ({SIZE}){named}")
        except BaseException:
            run.kill()
            raise
    if run.returncode:
        last = next((line for line in reversed(lines) if line), "")
        raise ServeError(f"vLLM cannot be installed: {one_line(last)}; fix: install it yourself, and name its --python")
