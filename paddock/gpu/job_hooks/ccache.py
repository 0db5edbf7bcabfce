"""How many of a job's compilations came from the cache. The cache's own counters are left as they are."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import IO

from paddock.gpu.job_hooks import files

_BEFORE = "ccache-before.txt"
_HITS = ("direct_cache_hit", "preprocessed_cache_hit")
_MISSES = "cache_miss"


@dataclass(frozen=True, slots=True)
class Compilations:
    hits: int
    misses: int


def begin(folder: Path) -> None:
    """Writes down the counters; nobody waits for it, since a cache may lie on a slow network."""
    program = which("ccache")
    if program is None:
        return
    with open(folder / _BEFORE, "wb") as file:
        child = _asked(program, file)
    child.returncode = 0  # nobody waits for it here, which is no leak


def since(folder: Path, seconds: float = 1.0) -> Compilations | None:
    """Those since `begin`. None without ccache, or where it does not tell, or nothing was compiled through it."""
    program = which("ccache")
    try:
        before = _counters(files.read(folder / _BEFORE))
    except (OSError, ValueError):
        return None
    if program is None or not before:
        return None
    try:
        after = _counters(_told(program, seconds))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if any(after.get(name, 0) < before.get(name, 0) for name in (*_HITS, _MISSES)):
        before = {}  # the job has set them to zero
    hits = sum(after.get(name, 0) - before.get(name, 0) for name in _HITS)
    misses = after.get(_MISSES, 0) - before.get(_MISSES, 0)
    return Compilations(hits, misses) if hits + misses else None


def _told(program: str, seconds: float) -> str:
    """Its counters. A program that hangs on a slow network is not waited for, not even after it was killed."""
    child = _asked(program, subprocess.PIPE)
    try:
        text, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.returncode = -9
        if child.stdout:
            child.stdout.close()
        raise
    return text.decode()


def _asked(program: str, to: IO[bytes] | int) -> subprocess.Popen[bytes]:
    command = [program, "--print-stats"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=to, stderr=subprocess.DEVNULL)


def _counters(text: str) -> dict[str, int]:
    pairs = (line.split("\t") for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
