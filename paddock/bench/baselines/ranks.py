"""The one-sided Mann-Whitney test, exact, and Holm's correction.

Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other", Annals of
Mathematical Statistics 18 (1947). Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal
of Statistics 6 (1979): it holds the rate over all tests together, however they depend on each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache


def slower_by_chance(old: Sequence[float], new: Sequence[float]) -> float:
    """Return the probability of ranks of `new` at least this low where both come from one distribution.

    A tie counts half, and half a rank is rounded against a low probability: ties make the test more careful.
    """
    wins = sum((ours > theirs) + 0.5 * (ours == theirs) for ours in new for theirs in old)
    counts = _counts(len(new), len(old))
    return sum(counts[: math.ceil(wins) + 1]) / math.comb(len(new) + len(old), len(new))


def holm(probabilities: Sequence[float], rate: float) -> list[bool]:
    """Return which hypotheses are rejected, so that one false rejection or more is no likelier than `rate`."""
    rejected = [False] * len(probabilities)
    for rank, index in enumerate(sorted(range(len(probabilities)), key=probabilities.__getitem__)):
        if probabilities[index] > rate / (len(probabilities) - rank):
            break
        rejected[index] = True
    return rejected


def samples_needed(tests: int, rate: float) -> int:
    """Return the samples on each side with which the clearest result can be rejected among so many tests."""
    samples = 2
    while 1 / math.comb(2 * samples, samples) > rate / max(tests, 1):
        samples += 1
    return samples


def decides(old: int, new: int, tests: int, rate: float) -> bool:
    """Return whether so many samples can reject the first of so many tests."""
    return 1 / math.comb(old + new, old) <= rate / max(tests, 1)


@cache
def _counts(first: int, second: int) -> tuple[int, ...]:
    """Return the number of orders by the statistic U: in how many pairs the first's value is the larger."""
    if first == 0 or second == 0:
        return (1,)
    counts = [0] * (first * second + 1)
    for wins, orders in enumerate(_counts(first - 1, second)):
        counts[wins + second] += orders
    for wins, orders in enumerate(_counts(first, second - 1)):
        counts[wins] += orders
    return tuple(counts)
