"""The roofline: the least time that memory and arithmetic allow for a step, and the part of it that was reached."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Work:
    """Work of one decode step or one prefill, on one device."""

    bytes: float
    flop: float


@dataclass(frozen=True, slots=True)
class ModelWork:
    """Sizes of a model.

    `weight_bytes` are those that a step reads, `parameters` the weights of its Linear layers with the head's,
    `cache_bytes` those of one token in the cache.
    """

    weight_bytes: int
    parameters: int
    head_parameters: int
    cache_bytes: int
    layers: int
    heads: int
    head_dim: int

    def decode(self, batch: int, context: float) -> Work:
        """Return the work of one step at a mean context.

        Bytes: ``W + B S KV + B KV`` (weights once, the cache read and one token written). FLOP: ``2 B P + 4 B L n d S``
        (two for each weight and row; scores and their sum over values).
        """
        cache = batch * (context + 1) * self.cache_bytes
        attention = 4 * batch * self.layers * self.heads * self.head_dim * context
        return Work(self.weight_bytes + cache, 2 * batch * self.parameters + attention)

    def prefill(self, batch: int, prompt: int) -> Work:
        """Return the work of reading prompts.

        FLOP: ``2 B S (P - P_head) + 2 B P_head + 2 B L n d S^2`` (the head for the last position alone, and the causal
        half of attention). Bytes: weights once, and the cache written.
        """
        body = 2 * batch * prompt * (self.parameters - self.head_parameters) + 2 * batch * self.head_parameters
        attention = 2 * batch * self.layers * self.heads * self.head_dim * prompt**2
        return Work(self.weight_bytes + batch * prompt * self.cache_bytes, body + attention)


def least_seconds(work: Work, gbs: float | None, tflops: float | None) -> float | None:
    """Return ``max(bytes / BW, flop / F)`` for GB/s and TFLOP/s; None where neither is known.

    Williams, Waterman, Patterson: Roofline (CACM 2009).
    """
    memory = work.bytes / (gbs * 1e9) if gbs else None
    arithmetic = work.flop / (tflops * 1e12) if tflops else None
    return max((bound for bound in (memory, arithmetic) if bound is not None), default=None)


def ridge_batch(tflops: float | None, gbs: float | None, bits: float) -> float | None:
    """Return the batch above which arithmetic bounds a decode step: ``F w / (2 BW)`` with w bytes a weight.

    Weight-only quantisation pays below it.
    """
    return None if not tflops or not gbs else tflops * 1e12 * bits / 8 / (2 * gbs * 1e9)
