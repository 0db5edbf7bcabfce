"""Operations of a decode step of Llama's kind beside its products of weights, on the processor: in C, else in torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import torch
import torch.nn.functional as F

from paddock.serve.own.packing import native

KeysValues = tuple[torch.Tensor, torch.Tensor]
"""A layer's cache, twice [rows, kv_heads, length, dim]."""


@dataclass(frozen=True, slots=True)
class Positions:
    """Places in the cache of one step's tokens."""

    tokens: torch.Tensor
    """Position of each row's new token, [rows] int64."""
    end: int
    """One more than the largest position."""
    mask: torch.Tensor | None = None
    """Added to the scores, [rows, 1, 1, end]: hides the places behind a row's own. None where all rows end together."""


class Norm(NamedTuple):
    """An RMS norm: its weight, and what is added to the mean of the squares."""

    weight: torch.Tensor
    epsilon: float

    @classmethod
    def of(cls, module: Any) -> Norm:
        """Return the norm of a module of transformers."""
        return cls(module.weight, module.variance_epsilon)


class Attention(NamedTuple):
    """Constants of an attention: the factor of its scores, and the norms of its heads, where it has them."""

    scale: float
    q_norm: Norm | None
    k_norm: Norm | None

    @classmethod
    def of(cls, module: Any) -> Attention:
        """Return the attention of a module of transformers."""
        if not hasattr(module, "q_norm"):
            return cls(module.scaling, None, None)
        return cls(module.scaling, Norm.of(module.q_norm), Norm.of(module.k_norm))


class Operations(Protocol):
    """The operations, on fp32 tensors and hidden states [rows, 1, hidden]."""

    def norm(self, norm: Norm, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        """Add to x in place, and return its RMS norm."""

    def gate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Return the activation of the gate times `up`."""

    def attend(
        self, attention: Attention, qkv: Sequence[torch.Tensor], cache: KeysValues, positions: Positions
    ) -> torch.Tensor:
        """Keep the new keys and values, and return the attention, [rows, 1, heads * dim]."""


def operations(model: Any, cosines: torch.Tensor, sines: torch.Tensor) -> Operations:
    """Return the fastest ones that are here. Cosines and sines, [length, dim], are those of `rotary_tables`."""
    kernels = native.kernels()
    if kernels is None or model.config.hidden_act != "silu":
        return TorchOperations(model.model.layers[0].mlp.act_fn, cosines, sines)
    return NativeOperations(kernels, cosines, sines)


def rotary_tables(model: Any, length: int, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosines and sines of each position, [length, dim] fp32, the sines of the first half negated."""
    cosines, sines = model.model.rotary_emb(torch.zeros(1), torch.arange(length)[None])
    sign = torch.ones(dim)
    sign[: dim // 2] = -1
    return cosines[0].float().contiguous(), (sines[0] * sign).float().contiguous()


class TorchOperations:
    """Those of torch: several calls each."""

    def __init__(
        self, activation: Callable[[torch.Tensor], torch.Tensor], cosines: torch.Tensor, sines: torch.Tensor
    ) -> None:
        self._activation, self._cosines, self._sines = activation, cosines, sines

    def norm(self, norm: Norm, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        if added is not None:
            x += added
        return F.rms_norm(x, (x.shape[-1],), *norm)

    def gate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return self._activation(gate) * up

    def attend(
        self, attention: Attention, qkv: Sequence[torch.Tensor], cache: KeysValues, positions: Positions
    ) -> torch.Tensor:
        (keys, values), rows = cache, qkv[0].shape[0]
        q, k, v = (part.reshape(rows, -1, 1, keys.shape[-1]) for part in qkv)
        if attention.q_norm and attention.k_norm:
            q, k = self.norm(attention.q_norm, q), self.norm(attention.k_norm, k)
        index = torch.arange(rows)
        keys[index, :, positions.tokens] = self._rotated(k, positions)[:, :, 0]
        values[index, :, positions.tokens] = v[:, :, 0]
        y = F.scaled_dot_product_attention(
            self._rotated(q, positions), keys[:rows, :, : positions.end], values[:rows, :, : positions.end],
            attn_mask=positions.mask, scale=attention.scale, enable_gqa=True,
        )  # fmt: skip
        return y.reshape(rows, 1, -1)

    def _rotated(self, x: torch.Tensor, positions: Positions) -> torch.Tensor:
        """Return x with the rotary embedding of its position: the two halves of a head are one complex number each."""
        cosines, sines = (table[positions.tokens][:, None, None] for table in (self._cosines, self._sines))
        return torch.addcmul(x * cosines, x.roll(x.shape[-1] // 2, -1), sines)


class NativeOperations:
    """Those in C: one call each."""

    def __init__(self, kernels: native.Kernels, cosines: torch.Tensor, sines: torch.Tensor) -> None:
        self._kernels, self._cosines, self._sines = kernels, cosines, sines

    def norm(self, norm: Norm, x: torch.Tensor, added: torch.Tensor | None = None) -> torch.Tensor:
        return self._kernels.norm(x, added, *norm)

    def gate(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        return self._kernels.gate(gate, up)

    def attend(
        self, attention: Attention, qkv: Sequence[torch.Tensor], cache: KeysValues, positions: Positions
    ) -> torch.Tensor:
        (q, k, v), (keys, values) = qkv, cache
        rows, (places, kv_heads, length, dim) = q.shape[0], keys.shape
        if not positions.tokens.numel() == rows <= places:
            raise IndexError(f"{rows} rows, {positions.tokens.numel()} positions and a cache of {places}")
        y = torch.empty(q.shape)
        scale, q_norm, k_norm = attention
        arguments = native.AttentionArguments(
            q.data_ptr(), k.data_ptr(), v.data_ptr(),
            q_norm and q_norm.weight.data_ptr(), k_norm and k_norm.weight.data_ptr(),
            self._cosines.data_ptr(), self._sines.data_ptr(), positions.tokens.data_ptr(),
            keys.data_ptr(), values.data_ptr(), y.data_ptr(),
            q.stride(0), k.stride(0), v.stride(0), rows, q.shape[-1] // dim, kv_heads, length, dim,
            scale, q_norm.epsilon if q_norm else 0.0,
        )  # fmt: skip
        self._kernels.attend(arguments, positions.end)
        return y
