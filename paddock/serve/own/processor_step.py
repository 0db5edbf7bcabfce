"""Decode step of models of Llama's kind on the processor, in a tenth of the operations of transformers' modules.

Between two products of weights a small operation of torch takes some microseconds, and a layer of transformers has some
sixty: with packed weights they took half of the step's time. The products themselves stay the model's own layers,
packed or split over ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from paddock.models.shapes import LLAMA_KIND
from paddock.serve.own.operations import Attention, KeysValues, Norm, Positions, operations, rotary_tables
from paddock.serve.own.packing.linear import together

Pick = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Takes logits, [batch, 1, vocabulary], and returns the token of each row and the largest logit, [batch, 1]."""


def most_probable(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick the token of the largest logit."""
    best, token = logits.max(-1)
    return token, best


@dataclass(frozen=True, slots=True)
class _Layer:
    """Parts of a layer: looking up a module's submodules takes longer than some of them compute."""

    first_norm: Norm
    second_norm: Norm
    attention: Attention
    qkv: Callable[[torch.Tensor], Sequence[torch.Tensor]]
    gate_up: Callable[[torch.Tensor], Sequence[torch.Tensor]]
    o: Callable[[torch.Tensor], torch.Tensor]
    down: Callable[[torch.Tensor], torch.Tensor]

    @classmethod
    def of(cls, layer: Any) -> _Layer:
        attention, mlp = layer.self_attn, layer.mlp
        return cls(
            Norm.of(layer.input_layernorm),
            Norm.of(layer.post_attention_layernorm),
            Attention.of(attention),
            together([attention.q_proj, attention.k_proj, attention.v_proj]),
            together([mlp.gate_proj, mlp.up_proj]),
            attention.o_proj,
            mlp.down_proj,
        )


class ProcessorStep:
    """One new token of each row at a time, over a cache of its own. `fits` says for which models.

    A stage without the embedding takes hidden states, [batch, 1, hidden], and one without the output head gives them.
    """

    def __init__(self, model: Any, length: int) -> None:
        self._embedding, self._head = model.get_input_embeddings(), model.get_output_embeddings()
        self._layers = [_Layer.of(layer) for layer in model.model.layers]
        self._norm = None if self._head is None else Norm.of(model.model.norm)
        dim = model.model.layers[0].self_attn.head_dim
        self._operations = operations(model, *rotary_tables(model, length, dim))
        self._length = length
        self.pick: Pick = most_probable
        self._cache: list[KeysValues] = []
        self._position = 0

    @staticmethod
    def fits(model: Any) -> bool:
        """Return whether the model is of a kind whose step this is."""
        sliding = getattr(model.config, "use_sliding_window", True) and getattr(model.config, "sliding_window", None)
        return model.config.model_type in LLAMA_KIND and not sliding

    def start(self, cache: Any) -> None:
        """Take over the keys and values of a prompt, a `DynamicCache`."""
        self._cache = []
        for layer in cache.layers:
            batch, heads, self._position, dim = layer.keys.shape
            keys, values = torch.empty(2, batch, heads, self._length, dim)
            keys[:, :, : self._position], values[:, :, : self._position] = layer.keys, layer.values
            self._cache.append((keys, values))

    def __call__(self, token: torch.Tensor) -> Any:
        """Return the next token of each row, [batch, 1], and its logit. Raises IndexError where the cache is full."""
        positions = torch.full((token.shape[0],), self._position)
        result = self._step(token, self._cache, Positions(positions, self._position + 1))
        self._position += 1
        return result

    def _step(self, x: torch.Tensor, caches: Iterable[KeysValues], positions: Positions) -> Any:
        run = self._operations
        # What an earlier stage gives is in its device's format, and is added to below.
        x = x.to(torch.float32, copy=True) if self._embedding is None else self._embedding(x)
        added = None
        for layer, cache in zip(self._layers, caches, strict=True):
            h = run.norm(layer.first_norm, x, added)
            h = layer.o(run.attend(layer.attention, layer.qkv(h), cache, positions))
            h = run.norm(layer.second_norm, x, h)
            added = layer.down(run.gate(*layer.gate_up(h)))
        if self._norm is None:
            return x + added
        return self.pick(self._head(run.norm(self._norm, x, added)))
