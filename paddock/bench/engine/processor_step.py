"""Decode step of models of Llama's kind on the processor, in a third of the operations of transformers' modules.

Between two products of weights a small operation of torch takes some microseconds, and a layer of transformers has some
sixty: with packed weights they took half of the step's time. The products themselves stay the model's own layers,
packed or split over ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from paddock.bench.engine.shapes import LLAMA_KIND

Pick = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""Takes logits, [batch, 1, vocabulary], and returns the token of each row and the largest logit, [batch, 1]."""


def most_probable(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Pick the token of the largest logit."""
    best, token = logits.max(-1)
    return token, best


class ProcessorStep:
    """One new token of each row at a time, over a cache of its own. `fits` says for which models.

    A stage without the embedding takes hidden states, [batch, 1, hidden], and one without the output head gives them.
    """

    def __init__(self, model: Any, length: int) -> None:
        self._embedding, self._head = model.get_input_embeddings(), model.get_output_embeddings()
        self._layers, self._norm = list(model.model.layers), model.model.norm
        self._dim = self._layers[0].self_attn.head_dim
        positions = torch.arange(length)[None]
        cos, sin = model.model.rotary_emb(torch.zeros(1), positions)
        sign = torch.ones(self._dim)
        sign[: self._dim // 2] = -1
        self._cos, self._sin = cos[0].float(), (sin[0] * sign).float()  # [length, head_dim]
        self._length = length
        self.pick: Pick = most_probable
        self._cache: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._position = 0
        self._turn = self._cos[0], self._sin[0]
        self._mask: torch.Tensor | None = None

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
        """Return the next token of each row, [batch, 1], and its logit."""
        self._turn = self._cos[self._position], self._sin[self._position]
        result = self._step(token)
        self._position += 1
        return result

    def _step(self, x: torch.Tensor) -> Any:
        if self._embedding is not None:
            x = self._embedding(x)
        for number, layer in enumerate(self._layers):
            x = x + self._attention(layer.self_attn, _normalised(layer.input_layernorm, x), number)
            h = _normalised(layer.post_attention_layernorm, x)
            x = x + layer.mlp.down_proj(layer.mlp.act_fn(layer.mlp.gate_proj(h)) * layer.mlp.up_proj(h))
        if self._head is None:
            return x
        return self.pick(self._head(_normalised(self._norm, x)))

    def _attention(self, module: Any, x: torch.Tensor, number: int) -> torch.Tensor:
        shape = (x.shape[0], -1, 1, self._dim)
        q, k = module.q_proj(x).view(shape), module.k_proj(x).view(shape)
        if hasattr(module, "q_norm"):
            q, k = _normalised(module.q_norm, q), _normalised(module.k_norm, k)
        keys, values = self._keep(number, self._rotated(k), module.v_proj(x).view(shape))
        y = F.scaled_dot_product_attention(
            self._rotated(q), keys, values, attn_mask=self._mask, scale=module.scaling, enable_gqa=True
        )
        return module.o_proj(y.view(x.shape[0], 1, -1))

    def _keep(self, number: int, key: torch.Tensor, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Write a layer's key and value of the new token, and return those of all tokens so far."""
        (keys, values), position = self._cache[number], self._position
        keys[:, :, position : position + 1], values[:, :, position : position + 1] = key, value
        return keys[:, :, : position + 1], values[:, :, : position + 1]

    def _rotated(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with the rotary embedding of the position: the two halves of a head are one complex number each."""
        cos, sin = self._turn
        return torch.addcmul(x * cos, x.roll(self._dim // 2, -1), sin)


def _normalised(norm: Any, x: torch.Tensor) -> torch.Tensor:
    return F.rms_norm(x, (x.shape[-1],), norm.weight, norm.variance_epsilon)
