"""Operations of a decode step in C, compiled for the processor at hand on first use.

Without a C compiler there are none, and torch's own do the work more slowly.
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
_SOURCES = tuple(Path(__file__).with_name(name) for name in ("gemv.c", "step.c"))
_FLAGS = (
    *("-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-std=c11"),
    # Sums in any order. -ffast-math would say so too, and make the whole process round small numbers to zero.
    *("-ffp-contract=fast", "-fassociative-math", "-fno-signed-zeros", "-fno-trapping-math", "-fno-math-errno"),
)
_COMPILES_WITHIN = 120.0
"""Seconds."""


class Kernels:
    """The compiled functions, for tensors on the processor: contiguous ones where nothing else is said."""

    def __init__(self, library: Path) -> None:
        loaded = ctypes.CDLL(str(library))
        self._bf16 = _declare_product(loaded.paddock_bf16, 3)
        self._int8 = _declare_product(loaded.paddock_int8, 5)
        self._int4 = _declare_product(loaded.paddock_int4, 5)
        self._norm = _declare(loaded.paddock_norm, *[_POINTER] * 4, *[_SIZE] * 2, ctypes.c_float)
        self._gate = _declare(loaded.paddock_gate, *[_POINTER] * 3, *[_SIZE] * 4)
        self._attend = _declare(loaded.paddock_attend, _POINTER, _SIZE, ctypes.c_int)

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

    def norm(self, x: torch.Tensor, added: torch.Tensor | None, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        """Return the RMS norm of the rows of x, to which `added` is added before; all fp32 and contiguous."""
        y, k = torch.empty_like(x), x.shape[-1]
        more = None if added is None else added.data_ptr()
        self._norm(x.data_ptr(), more, weight.data_ptr(), y.data_ptr(), x.numel() // k, k, epsilon)
        return y

    def gate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Return SiLU(gate) times up, [m, 1, k] fp32, whose rows may lie apart."""
        m, _, k = gate.shape
        y = torch.empty(m, 1, k)
        self._gate(gate.data_ptr(), up.data_ptr(), y.data_ptr(), m, k, gate.stride(0), up.stride(0))
        return y

    def attend(self, arguments: AttentionArguments, end: int) -> None:
        """Keep each row's key and value, and compute its attention over the places up to its position.

        Raises IndexError where `end`, one more than the largest position, is beyond the length.
        """
        if end > arguments.length:
            raise IndexError(f"place {end - 1} of {arguments.length}")
        self._attend(ctypes.addressof(arguments), end, torch.get_num_threads())


_POINTER, _SIZE = ctypes.c_void_p, ctypes.c_int64


class AttentionArguments(ctypes.Structure):
    """Arguments of `paddock_attend`, as `step.c` describes them."""

    _fields_ = (
        *((name, _POINTER) for name in ("q", "k", "v", "q_norm", "k_norm", "cosines", "sines", "positions")),
        *((name, _POINTER) for name in ("keys", "values", "y")),
        *((name, _SIZE) for name in ("q_stride", "k_stride", "v_stride", "rows", "heads", "kv_heads", "length", "dim")),
        *((name, ctypes.c_float) for name in ("scale", "epsilon")),
    )


def _declare(function: Any, *types: Any) -> Callable[..., None]:
    function.argtypes, function.restype = types, None
    declared: Callable[..., None] = function
    return declared


def _declare_product(function: Any, pointers: int) -> Callable[..., None]:
    """Declare a product's arguments: its pointers, then m, n and k, and the threads."""
    return _declare(function, *[_POINTER] * pointers, *[_SIZE] * 3, ctypes.c_int)


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
    sources = (source.read_text() for source in _SOURCES)
    identity = "\0".join((*sources, *_FLAGS, compiler, platform.machine(), _processor()))
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
    command = [compiler, *_FLAGS, *map(str, _SOURCES), "-o", str(output), "-lm"]
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
