"""Cache hits of a job's compilations, as the difference of ccache's counters, which are never reset here."""

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
    """Write the counters to the folder without waiting: a cache may be on a slow network."""
    program = which("ccache")
    if program is None:
        return
    with open(folder / _BEFORE, "wb") as file:
        child = _start(program, file)
    child.returncode = 0  # prevents the warning about a child that is not waited for


def since(folder: Path, seconds: float = 1.0) -> Compilations | None:
    """Return the counts since `begin`; None without ccache, without its answer, or if nothing was compiled with it."""
    program = which("ccache")
    try:
        before = _parse(files.read(folder / _BEFORE))
    except (OSError, ValueError):
        return None
    if program is None or not before:
        return None
    try:
        after = _parse(_read_counters(program, seconds))
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if any(after.get(name, 0) < before.get(name, 0) for name in (*_HITS, _MISSES)):
        before = {}  # the job has reset them
    hits = sum(after.get(name, 0) - before.get(name, 0) for name in _HITS)
    misses = after.get(_MISSES, 0) - before.get(_MISSES, 0)
    return Compilations(hits, misses) if hits + misses else None


def _read_counters(program: str, seconds: float) -> str:
    """Return ccache's counters. A process that hangs on a slow network is killed and not waited for."""
    child = _start(program, subprocess.PIPE)
    try:
        text, _ = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        child.kill()
        child.returncode = -9
        if child.stdout:
            child.stdout.close()
        raise
    return text.decode()


def _start(program: str, output: IO[bytes] | int) -> subprocess.Popen[bytes]:
    command = [program, "--print-stats"]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.DEVNULL)


def _parse(text: str) -> dict[str, int]:
    pairs = (line.split("\t") for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdecimal()}
