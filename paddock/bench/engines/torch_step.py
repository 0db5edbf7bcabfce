"""Decode step over a cache of fixed size, compiled into one graph: on a GPU a CUDA graph, launched as a whole.

`torch.compile` sees one shape of batch and cache; another one is another `GraphStep`, so that no step attends to places
that its batch does not need. A prompt is read over its own keys alone, as flash attention takes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
import transformers
from transformers.cache_utils import StaticLayer

_INDUCTOR: Mapping[str, Any] = MappingProxyType({"triton.cudagraphs": True})
_RECORDED_AFTER = 3
"""Steps after which a CUDA graph is recorded: one runs to warm up, one is recorded, one is replayed."""


class GraphStep:
    """One new token of each of `batch` rows, over a cache of `length` tokens. `fits` says for which models.

    `invalid` is set, inside the graph, where a largest logit is not a finite number. `options` are the compiler's on a
    GPU. One lives at a time: a new one ends what was compiled before.
    """

    def __init__(
        self,
        model: Any,
        batch: int,
        length: int,
        invalid: torch.Tensor,
        backend: Any = "inductor",
        options: Mapping[str, Any] = _INDUCTOR,
    ) -> None:
        release()
        self._batch = batch
        self._model, self._invalid = model, invalid
        self._layers = [_Layer(length) for _ in transformers.StaticCache(config=model.config, max_cache_len=1).layers]
        self._cache = transformers.Cache(layers=self._layers)
        torch._dynamo.mark_static_address(invalid)  # or writing to it would keep inductor from making a CUDA graph
        graphed = backend == "inductor" and model.device.type == "cuda"
        self._skipped = _skipped_graphs()
        self._compiled = torch.compile(
            self._forward,
            backend=backend,
            options={**_INDUCTOR, **options} if graphed else None,
            fullgraph=True,
            dynamic=False,
        )

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether every layer attends to all tokens: the length of a sliding window is not a tensor, and would
        compile each step again."""
        layers = transformers.StaticCache(config=model.config, max_cache_len=1).layers
        return all(type(layer) is StaticLayer for layer in layers)

    def compile(self) -> str:
        """Run the step until a GPU has recorded its graph, and return its form.

        Raises torch's TorchDynamoException where it cannot be compiled. After this a step that does not fit what was
        compiled raises, so that no measured run compiles.
        """
        device = self._model.device
        with torch.inference_mode():
            for _ in range(_RECORDED_AFTER):
                token, _best = self.read(torch.zeros(self._batch, 1, dtype=torch.long, device=device))
                self(token)
        torch.compiler.set_stance("fail_on_recompile")
        if device.type != "cuda":
            return "compiled"
        torch.cuda.synchronize()
        return "compiled" if _skipped_graphs() > self._skipped else "compiled into a CUDA graph"

    def read(self, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Read prompts [batch, up to length] into the empty cache. Return the next token of each row and its logit."""
        for layer in self._layers:
            layer.reading = True
        best, following = self._logits(ids).max(-1)
        for layer in self._layers:
            layer.reading = False
        return following, best

    def __call__(self, token: torch.Tensor) -> torch.Tensor:
        """Return the next token of each row, [batch, 1]."""
        following: torch.Tensor = self._compiled(token)
        return following.clone()  # a graph writes each step's token to the same place

    def _forward(self, token: torch.Tensor) -> torch.Tensor:
        best, following = self._logits(token).max(-1)
        self._invalid.logical_or_(~torch.isfinite(best).all())
        return following

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        output = self._model(input_ids=ids, past_key_values=self._cache, use_cache=True, logits_to_keep=1)
        logits: torch.Tensor = output.logits[:, -1:]
        return logits


class _Layer(StaticLayer):  # type: ignore[misc]  # transformers is unknown to the checker
    """Cache of one layer. While a prompt is read it is empty, and gives the prompt's own keys and values back."""

    reading = False

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *_args: Any, **_kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.reading:
            keys, values = super().update(key_states, value_states)
            return keys, values
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        length = key_states.shape[2]
        self.keys[:, :, :length], self.values[:, :, :length] = key_states, value_states
        self.cumulative_length.fill_(length)
        return key_states, value_states

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return (query_length, 0) if self.reading else super().get_mask_sizes(query_length)

    def get_seq_length(self) -> Any:
        return 0 if self.reading else super().get_seq_length()


def release() -> None:
    """Forget what was compiled, with the memory of its graphs."""
    torch.compiler.set_stance("default")
    torch._dynamo.reset()


def _skipped_graphs() -> int:
    """Return how often inductor has compiled without a CUDA graph, which it says in its log alone."""
    return int(torch._dynamo.utils.counters["inductor"]["cudagraph_skips"])
