"""Quality of a quantised model beside the same model without quantisation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PROMPTS = 4
LENGTH = 16
"""Tokens of each prompt: few enough for the kernels of a decode step, whose rounding of activations counts too."""


@dataclass(frozen=True, slots=True)
class Quality:
    """Error of the logits over their spread (root mean square), and the part of positions with the same best token."""

    logit_error: float
    agreement: float
    divergence: float
    """Mean Kullback-Leibler divergence of the next token's distribution, in nats."""


def compare(reference: torch.Tensor, logits: torch.Tensor) -> Quality:
    """Return the quality of logits [..., vocabulary] against a reference of the same shape."""
    error = (logits - reference).pow(2).mean().sqrt() / reference.std()
    agreement = (logits.argmax(-1) == reference.argmax(-1)).float().mean()
    expected = reference.log_softmax(-1)
    divergence = (expected.exp() * (expected - logits.log_softmax(-1))).sum(-1).mean()
    return Quality(float(error), float(agreement), float(divergence))
