"""Cost before and after: the month in all, each pool's part of it, and an hour of each runner."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from paddock.plan.diff import renames
from paddock.plan.diff.fields import clean
from paddock.plan.diff.model import Amount, CostChange, PartCost
from paddock.plan.diff.renames import Pair
from paddock.plan.document.model import Cost, Range, RunnerCost

_Amounts = tuple[float | None, float | None, float | None]
_UNKNOWN: _Amounts = (None, None, None)
_NOTHING: _Amounts = (0.0, 0.0, 0.0)


def compare(old: Cost | None, new: Cost | None, pairs: Sequence[Pair] = ()) -> CostChange:
    """Return how the cost changes. Renamed pools and runners are compared with what they were."""
    before, after = (_amounts(cost.month) if cost else _UNKNOWN for cost in (old, new))
    fixed = Amount(old.fixed.total.value if old else None, new.fixed.total.value if new else None)
    low, expected, high = map(Amount, before, after)
    pools, runners = renames.keys(pairs, "pool"), renames.keys(pairs, "runner")
    # A plan of an older version has no months of pools: nothing can be said of them then.
    comparable = old is not None and all(cost.month for cost in old.pools)
    return CostChange(
        fixed,
        low,
        expected,
        high,
        tuple(_pools(old, new, pools)) if old and new and comparable else (),
        tuple(_runners(old, new, runners)) if old and new else (),
    )


def _pools(old: Cost, new: Cost, renamed: Mapping[str, str]) -> Iterator[PartCost]:
    before = {renamed.get(cost.pool, cost.pool): _amounts(cost.month) for cost in old.pools if cost.month}
    after = {cost.pool: _amounts(cost.month) for cost in new.pools if cost.month}
    for name in dict.fromkeys((*before, *after)):
        low, expected, high = map(Amount, before.get(name, _NOTHING), after.get(name, _NOTHING))
        part = PartCost(clean(name), _action(name, before, after), low, expected, high)
        if part.differs:
            yield part


def _runners(old: Cost, new: Cost, renamed: Mapping[str, str]) -> Iterator[PartCost]:
    before = {renamed.get(cost.runner, cost.runner): cost for cost in old.runners}
    after = {cost.runner: cost for cost in new.runners}
    for name in dict.fromkeys((*before, *after)):
        was, becomes = before.get(name), after.get(name)
        hours = (_amounts(cost.per_hour) if cost else _NOTHING for cost in (was, becomes))
        low, expected, high = map(Amount, *hours)
        comparable = was is None or was.month is not None
        jobs = Amount(_month(was), _month(becomes)) if comparable else None
        part = PartCost(clean(name), _action(name, before, after), low, expected, high, jobs)
        if part.differs:
            yield part


def _month(cost: RunnerCost | None) -> float | None:
    """Return what a runner's jobs cost a month; one that is not there costs nothing."""
    if cost is None:
        return 0.0
    return cost.month.value if cost.month else None


def _action(name: str, old: Mapping[str, object], new: Mapping[str, object]) -> Literal["add", "remove", "change"]:
    return "change" if name in old and name in new else "add" if name in new else "remove"


def _amounts(amounts: Range) -> _Amounts:
    """Return low, expected and high, in order however a plan that was edited by hand has them."""
    low, expected, high = amounts.low.value, amounts.expected.value, amounts.high.value
    return (low, expected, high) if low is None or high is None else (min(low, high), expected, max(low, high))
