"""A skip says what it leaves unproven, and the end of a run lists it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.support.counterparts import COUNTERPARTS, counterpart_of, is_here, skip_reasons, summary


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


def test_a_skip_for_what_is_here_is_a_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("PADDOCK_LAB_BIN", raising=False)
    said = [
        "no promtool on PATH",
        "slurmd is not on PATH",
        "helm is not here (on PATH, or in PADDOCK_LAB_BIN)",
        "no C compiler (cc) for the made-up driver library",
        "needs bash",
    ]
    assert not any(is_here(reason) for reason in (*said, "no nothing_of_the_kind in this environment", "the moon"))
    for program in ("promtool", "slurmd", "helm", "cc", "bash"):
        (tmp_path / program).touch(mode=0o755)
    assert all(is_here(reason) for reason in (*said, "no pytest in this environment"))
    assert is_here("only root gives files away") != is_here("root reads everything")
