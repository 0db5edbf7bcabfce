"""Drawing of tokens by their probabilities. What is random is drawn where the answer is, on any device alike."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.serve.admission.sampling import Sampling

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Draw:
    """Draw of one token: the temperature, the part of the probability that counts, and the place in it, 0 to 1."""

    scale: float
    top_p: float
    at: float


Draws = Sequence[Draw | None]
"""One for each row; None takes the most probable token."""


class Sampler:
    """Draws of one answer. Equal seeds give equal draws; without a seed none are like others."""

    def __init__(self, sampling: Sampling) -> None:
        self._sampling = sampling
        self._random = random.Random(sampling.seed)  # noqa: S311 - it keeps no secret

    def draw(self) -> Draw | None:
        """Return how the next token is drawn; None for the most probable one."""
        sampling = self._sampling
        if sampling.greedy:
            return None
        return Draw(sampling.scale, 1.0 if sampling.top_p is None else sampling.top_p, self._random.random())


def drawn(logits: torch.Tensor, draw: Draw) -> torch.Tensor:
    """Return the token that a draw takes, a number, of a row's logits, [vocabulary].

    Its tokens are the most probable ones whose probabilities add up to `top_p`, at least one.
    """
    import torch

    if logits.device.type == "mps":
        logits = logits.cpu()  # Metal has no fp64, in which a small temperature and long sums stay exact
    logits, order = logits.double().sort(descending=True)
    probabilities = ((logits - logits[0]) / draw.scale).exp()
    sums = probabilities.cumsum(0)
    kept = int(((sums - probabilities) < draw.top_p * sums[-1]).sum())
    place = torch.searchsorted(sums, draw.at * sums[max(kept, 1) - 1], right=True)
    return order[place.clamp(max=max(kept, 1) - 1)]
