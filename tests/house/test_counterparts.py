"""A skip says what it leaves unproven, and the end of a run lists it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.support.counterparts import COUNTERPARTS, counterpart_of, skip_reasons, summary


@cache
def stated(root: Path) -> dict[str, str]:
    return {
        f"{file.relative_to(root)}:{line}": reason
        for file in sorted((root / "tests").rglob("*.py"))
        for line, reason in skip_reasons(file)
    }


def test_every_skip_says_what_it_leaves_unproven(root: Path) -> None:
    unknown = {place: reason for place, reason in stated(root).items() if counterpart_of(reason) is None}
    assert not unknown, "describe what is absent in tests/support/counterparts.py"


def test_every_counterpart_is_met_somewhere(root: Path) -> None:
    met = {counterpart_of(reason) for reason in stated(root).values()}
    assert [c.name for c in COUNTERPARTS if c not in met] == []


def test_summary_has_one_line_for_each_counterpart() -> None:
    reasons = [
        "cluster-autoscaler is not here (on PATH, or in PADDOCK_LAB_BIN)",
        "no hadolint on PATH or in PADDOCK_HADOLINT",
        "cluster-autoscaler is not here (on PATH, or in PADDOCK_LAB_BIN)",
        "one process runs all of them",
        "the moon is not full",
    ]
    assert list(summary(reasons)) == [
        "cluster-autoscaler (2 skipped): that the real cluster-autoscaler buys the nodes that the lab's stand-in buys",
        "hadolint (1 skipped): that hadolint has nothing against the Dockerfiles",
        "the moon is not full (1 skipped): not described in tests/support/counterparts.py",
    ]
