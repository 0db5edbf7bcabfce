"""Results of a removal: what goes, what stays, and what AWS still has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from paddock.operate.phases import PhasedWork

FREE = "free"
NEEDED = "what is protected needs it"
IN_STATE = "in the stack's state"
"""Beginning of the reason of what a removal left on purpose."""
PERHAPS = "perhaps another's"
"""Beginning of the reason of what may be another's."""
WITH_PROTECTED = "./inv destroy --with-protected"
WAYS = "tag, cluster, VPC, name and owner (docs/day-two.md)"
_FEW = 3
"""Things of one kind that may be another's, which are shown one by one."""


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something that stays, or is left: one thing of the fleet that is still there afterwards."""

    what: str
    """Kind and name, or ARN."""
    reason: str
    """Why it stays; `unknown` where that is not known."""
    usd_per_month: float | None = None
    """None where it is not known, or depends on use."""
    cost: str = ""
    """The price, its unit, source and date, or why it has none."""
    removal: str = ""
    """What removes it."""

    def lines(self, word: str) -> Iterator[str]:
        yield f"  {word:11} {self.what}: {self.reason}{f'; {self.cost}' if self.cost else ''}"
        if self.removal:
            yield f"              removed by: {self.removal}"


@dataclass(frozen=True, kw_only=True)
class Destroyed(PhasedWork):
    """Outcome of a removal."""

    SCHEMA = "paddock.fleet-destroy/1"
    goes: dict[str, int]
    """Resources of the stack that go, by type."""
    stays: tuple[Item, ...]
    """What stays by design, as far as state and cluster say."""
    jobs: tuple[str, ...] = ()
    """Runners that had a job before."""
    left: tuple[Item, ...] | None = None
    """What AWS has of the fleet, by every way that it is known; of a plan, what the removal would leave.

    None where AWS was not asked.
    """
    region: str = ""
    """Region of what is left, and so of its commands."""
    unknown: tuple[str, ...] = ()
    """What could not be read, with the permission that is missing."""

    @property
    def failed(self) -> bool:
        return super().failed or bool(self.unknown)

    def text(self) -> Iterator[str]:
        yield self.heading("destroy", f"context {self.context or 'none'}")
        yield f"  goes        {self._goes()}"
        folded = [item for item in self.stays if item.reason == NEEDED and item.cost == FREE]
        for item in self.stays:
            if item not in folded:
                yield from item.lines("stays")
        if folded:
            kinds = Counter(item.what.partition(" (")[0].rpartition(" ")[0] for item in folded)
            names = ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items()))
            yield f"  stays       {len(folded)} free things that what is protected needs: {names}"
        yield from (f"  has a job   {job}" for job in self.jobs)
        yield from self.phase_lines()
        if self.left is not None:
            yield from self._left(self.left)
        yield from (f"  UNKNOWN     {text}" for text in self.unknown)

    def _left(self, left: tuple[Item, ...]) -> Iterator[str]:
        stays = [item for item in left if item.reason.startswith(IN_STATE)]
        others = [item for item in left if item.reason.startswith(PERHAPS)]
        for item in left:
            if item not in stays and item not in others:
                yield from item.lines("left")
        yield from _perhaps(others)
        if self.region and len(left) > len(stays):
            yield f"  the commands are for {self.region}: export AWS_REGION={self.region}"
        costs = [item.usd_per_month for item in left if item not in others]
        month = f"{'at least ' if None in costs else ''}{sum(cost or 0 for cost in costs):.2f} USD a month"
        if costs:
            yield f"  AWS has {len(costs)} things of the fleet, {len(stays)} of which stay as said: {month}"
        if len(costs) == len(stays) and not self.unknown:
            yield f"  nothing {'else ' if self.stays or others else ''}is left: AWS was asked by {WAYS}"

    def _goes(self) -> str:
        shown = sorted(self.goes.items(), key=lambda entry: (-entry[1], entry[0]))
        names = ", ".join(f"{count} {type_.rpartition(':')[2]}" for type_, count in shown)
        return f"{sum(self.goes.values())} resources: {names}" if shown else "nothing of the stack's state"


def _perhaps(items: list[Item]) -> Iterator[str]:
    """Yield what may be another's: one by one where these are few, else counted by kind and reason."""
    groups: dict[tuple[str, str], list[Item]] = {}
    for item in items:
        kind = item.what.split(":")[2] if item.what.startswith("arn:") else item.what.partition(" ")[0]
        groups.setdefault((kind, item.reason.partition(";")[0]), []).append(item)
    for (kind, reason), group in groups.items():
        if len(group) > _FEW:
            first = ", ".join(item.what.rpartition(" ")[2] for item in group[:_FEW])
            yield f"  left?       {len(group)} {kind}, {reason}: {first} and {len(group) - _FEW} more; --json has all"
        else:
            for item in group:
                yield from item.lines("left?")
