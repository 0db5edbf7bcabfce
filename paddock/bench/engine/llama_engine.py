"""The engine on llama.cpp, for GGUF files on the processor or Metal: what a machine without a big GPU would run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from paddock.bench.engine.protocol import Info, Prepared, Spec
from paddock.bench.errors import BenchError, BenchInputError
from paddock.models import gguf

_CACHE_ELEMENT = 2
"""Bytes of a number in its cache: fp16, unless it is told otherwise."""


class LlamaEngine:
    """A GGUF file in llama.cpp, one row at a time."""

    def __init__(self) -> None:
        self._llama: Any = None

    def load(self, spec: Spec) -> Info:
        """Load the file. Raises BenchInputError where llama.cpp cannot."""
        import llama_cpp

        start, model = time.perf_counter(), gguf.read(Path(spec.source), "--model")
        try:
            self._llama = llama_cpp.Llama(
                spec.source,
                n_ctx=spec.length,
                n_threads=torch.get_num_threads(),
                n_threads_batch=torch.get_num_threads(),
                n_gpu_layers=0 if spec.device == "cpu" else -1,
                seed=spec.seed,
                verbose=False,
            )
        except (ValueError, OSError) as error:
            raise BenchInputError(
                f"--model: llama.cpp cannot load {spec.source}: {error}\n    fix: try --engine torch, or fetch it again"
            ) from None
        return Info(
            "llama.cpp",
            f"llama-cpp-python {llama_cpp.__version__}",
            f"llama.cpp's, {model.format} weights",
            model.step_bytes,
            _CACHE_ELEMENT,
            time.perf_counter() - start,
            0.0,
        )

    def prepare(self, batch: int, length: int) -> Prepared:
        """Do nothing: `load` made the context, for one row."""
        return Prepared(0.0, "llama.cpp's own graph")

    def check(self) -> None:
        """Do nothing: each step raises by itself."""

    def prefill(self, ids: torch.Tensor) -> torch.Tensor:
        """Read a prompt [1, length] and return the first new token, [1, 1]."""
        self._llama.reset()
        return self._next(ids[0].tolist())

    def decode(self, token: torch.Tensor) -> torch.Tensor:
        """Return the next token, [1, 1]."""
        return self._next(token[0].tolist())

    def unload(self) -> None:
        """Give the memory back."""
        if self._llama is not None:
            self._llama.close()
            self._llama = None

    def _next(self, tokens: list[int]) -> torch.Tensor:
        import llama_cpp

        self._llama.eval(tokens)
        logits = np.ctypeslib.as_array(
            llama_cpp.llama_get_logits_ith(self._llama.ctx, -1), shape=(self._llama.n_vocab(),)
        )
        best = int(logits.argmax())
        if not np.isfinite(logits[best]):
            raise BenchError("the model's logits are not finite numbers: the file is damaged")
        return torch.tensor([[best]])
