"""Two one-sided exact tests, Mann-Whitney's and Wilcoxon's for pairs, and Holm's correction.

Mann and Whitney, "On a test of whether one of two random variables is stochastically larger than the other", Annals of
Mathematical Statistics 18 (1947). Wilcoxon, "Individual comparisons by ranking methods", Biometrics Bulletin 1 (1945).
Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6 (1979): it holds
the rate over all tests together, however they depend on each other.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cache


def slower_by_chance(old: Sequence[float], new: Sequence[float]) -> float:
    """Return the probability of ranks of `new` at least this low where both come from one distribution.

    A tie counts half, and half a rank is rounded against a low probability: ties make the test more careful.
    """
    wins = sum((ours > theirs) + 0.5 * (ours == theirs) for ours in new for theirs in old)
    counts = _counts(len(new), len(old))
    return sum(counts[: math.ceil(wins) + 1]) / math.comb(len(new) + len(old), len(new))


def lower_by_chance(differences: Sequence[float]) -> float:
    """Return the probability of signed ranks at least this low where each difference has either sign as likely.

    A difference of zero counts as positive: that makes the test more careful. Ranks are doubled, so that those of ties
    are whole.
    """
    sizes = sorted(map(abs, differences))
    ranks = [bisect_left(sizes, abs(value)) + bisect_right(sizes, abs(value)) + 1 for value in differences]
    counts = [1]
    for rank in ranks:
        counts = [a + b for a, b in zip([*counts, *[0] * rank], [*[0] * rank, *counts], strict=True)]
    positive = sum(rank for rank, value in zip(ranks, differences, strict=True) if value >= 0)
    return sum(counts[: positive + 1]) / sum(counts)


def holm(probabilities: Sequence[float], rate: float) -> list[bool]:
    """Return which hypotheses are rejected, so that one false rejection or more is not likelier than `rate`."""
    rejected = [False] * len(probabilities)
    for rank, index in enumerate(sorted(range(len(probabilities)), key=probabilities.__getitem__)):
        if probabilities[index] > rate / (len(probabilities) - rank):
            break
        rejected[index] = True
    return rejected


def samples_needed(tests: int, rate: float, *, pairs: bool = False) -> int:
    """Return the samples on each side with which the clearest result can be rejected among so many tests."""
    samples = 2
    while not decides(samples, samples, tests, rate, pairs=pairs):
        samples += 1
    return samples


def decides(old: int, new: int, tests: int, rate: float, *, pairs: bool = False) -> bool:
    """Return whether so many samples can reject the first of so many tests."""
    orders = 2**old if pairs else math.comb(old + new, old)
    return 1 / orders <= rate / max(tests, 1)


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
