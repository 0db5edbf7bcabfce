"""Matrix products of a decode step in C, compiled for the processor at hand on first use.

Without a C compiler there are none, and torch's own kernels do the work more slowly.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from paddock import files

GROUP = 64
"""Columns that share a scale; also those of `gemv.c`."""
MAX_ROWS = 16
"""Rows up to which these products are faster than one matrix product of unpacked weights."""
_SOURCE = Path(__file__).with_name("gemv.c")
_FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-std=c11"),
    # Sums in any order. -ffast-math would say so too, and make the whole process round small numbers to zero.
    *("-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)
_COMPILES_WITHIN = 120.0
"""Seconds."""


class Kernels:
    """The compiled functions, for contiguous tensors on the processor."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._bf16 = _function(loaded.paddock_bf16, 3)
        self._int8 = _function(loaded.paddock_int8, 5)
        self._int4 = _function(loaded.paddock_int4, 5)

    def bf16(self, weight: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Return x times the transposed weight: [n, k] bf16 and [m, k] fp32 give [m, n] fp32."""
        return _product(self._bf16, x, weight.shape[0], weight.data_ptr(), x.data_ptr())

    def int8(self, weight: torch.Tensor, scale: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Do the same for [n, k] int8 with a fp32 scale a row; activations are rounded to int8 by groups."""
        room = _room(x)
        return _product(
            self._int8, x, weight.shape[0], weight.data_ptr(), scale.data_ptr(), x.data_ptr(), room.data_ptr()
        )

    def int4(self, weight: torch.Tensor, scale_zero: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Do the same for packed int4, [n, k / 2] bytes with bf16 scale and zero, [n, k / 64, 2]."""
        room = _room(x)
        return _product(
            self._int4, x, weight.shape[0], weight.data_ptr(), scale_zero.data_ptr(), x.data_ptr(), room.data_ptr()
        )


def _function(function: Any, pointers: int) -> Callable[..., None]:
    """Declare a function's arguments: its pointers, then m, n and k, and the threads."""
    function.argtypes = (*[ctypes.c_void_p] * pointers, *[ctypes.c_int64] * 3, ctypes.c_int)
    function.restype = None
    declared: Callable[..., None] = function
    return declared


def _product(function: Callable[..., None], x: torch.Tensor, n: int, *pointers: int) -> torch.Tensor:
    m, k = x.shape
    y = torch.empty(m, n)
    function(*pointers, y.data_ptr(), m, n, k, torch.get_num_threads())
    return y


def _room(x: torch.Tensor) -> torch.Tensor:
    """Return memory for activations [m, k] as int8, with a scale and a sum of each group."""
    m, k = x.shape
    return torch.empty(m * (k + 8 * k // GROUP), dtype=torch.int8)


@cache
def kernels() -> Kernels | None:
    """Return the functions, compiled for this processor on first use; None where that is not possible."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux"):
        return None
    identity = "\0".join((_SOURCE.read_text(), *_FLAGS, compiler, platform.machine(), _processor()))
    library = _folder() / f"gemv-{hashlib.sha256(identity.encode()).hexdigest()[:16]}.so"
    try:
        if is_own(library):
            return Kernels(library)
        with tempfile.TemporaryDirectory() as folder:
            built = _compile(compiler, Path(folder) / library.name)
            _keep(built, library)
            return Kernels(built)
    except (OSError, subprocess.SubprocessError):
        return None


def is_own(library: Path) -> bool:
    """Return whether the file is there, and whether nobody but this user, or root, could have written it.

    Loading a library runs it, so neither the file nor its folder may be another's, or writable for others.
    """
    try:
        states = [path.lstat() for path in (library, library.parent)]
    except OSError:
        return False
    file = states[0]
    return stat.S_ISREG(file.st_mode) and all(
        state.st_uid in (0, os.geteuid()) and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH) for state in states
    )


def _compile(compiler: str, output: Path) -> Path:
    command = [compiler, *_FLAGS, str(_SOURCE), "-o", str(output)]
    subprocess.run(command, check=True, capture_output=True, timeout=_COMPILES_WITHIN)
    return output


def _keep(built: Path, library: Path) -> None:
    """Keep the library for the next time, where the folder is this user's or can be made so."""
    with contextlib.suppress(OSError):
        library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        library.parent.chmod(library.parent.stat().st_mode & ~0o022)
        files.write(library, built.read_bytes(), mode=0o600)


def _folder() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "paddock"


def _processor() -> str:
    """Return what decides which instructions `-march=native` takes."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return "\n".join(line for line in lines[:40] if line.startswith(("model name", "flags", "Features")))
