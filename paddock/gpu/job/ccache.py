"""How many of a job's compilations came from the cache. The cache's own counters are left as they are."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from shutil import which

from paddock.gpu.job import files

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
        child = subprocess.Popen([program, "--print-stats"], stdin=subprocess.DEVNULL, stdout=file, stderr=-3)
    child.returncode = 0  # nobody waits for it here, which is no leak


def since(folder: Path, seconds: float = 2.0) -> Compilations | None:
    """Those since `begin`. None without ccache, or where it does not tell, or nothing was compiled through it."""
    program = which("ccache")
    try:
        before = _counters(files.read(folder / _BEFORE))
    except (OSError, ValueError):
        return None
    if program is None or not before:
        return None
    try:
        done = subprocess.run([program, "--print-stats"], capture_output=True, text=True, timeout=seconds, check=True)
        after = _counters(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if any(after.get(name, 0) < before.get(name, 0) for name in (*_HITS, _MISSES)):
        before = {}  # the job has set them to zero
    hits = sum(after.get(name, 0) - before.get(name, 0) for name in _HITS)
    misses = after.get(_MISSES, 0) - before.get(_MISSES, 0)
    return Compilations(hits, misses) if hits + misses else None


def _counters(text: str) -> dict[str, int]:
    pairs = (line.split("\t") for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
