"""What holds today holds later: supports end and facts grow old, but a stack that loads goes on to load and to plan."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from paddock import clock
from paddock.catalog import eks_versions
from paddock.fleet import NewCluster, load
from paddock.plan.plan import build_plan
from tests.support import fleets

STANDARD_ENDED = date(2027, 3, 28)
"""Of Kubernetes 1.35, which most tests have."""
EXTENDED_ENDED = date(2028, 6, 1)


@pytest.mark.parametrize("day", [STANDARD_ENDED, EXTENDED_ENDED])
@pytest.mark.parametrize("name", fleets.EXAMPLES)
def test_an_example_plans_without_an_error_later(name: str, day: date) -> None:
    findings = build_plan(fleets.example(name), day).findings
    assert [finding for finding in findings if finding.severity == "error"] == []


@pytest.mark.parametrize("day", [STANDARD_ENDED, EXTENDED_ENDED])
def test_an_old_cluster_still_plans_and_says_so(day: date) -> None:
    plan = build_plan(fleets.stack(fleets.fleet_data()), day)
    (finding,) = (finding for finding in plan.findings if finding.id == "CMP007")
    assert finding.severity == ("error" if day == EXTENDED_ENDED else "warning")
    assert finding.fix.startswith('cluster.version: "1.36"')


def test_default_and_examples_have_the_newest_supported_minor() -> None:
    supported = [name for name, dates in eks_versions().items() if dates.support_on(clock.today()) == "standard"]
    fleets_ = (fleets.example(name).fleet for name in fleets.EXAMPLES)
    named = {NewCluster().version, *(fleet.cluster.version for fleet in fleets_)}
    assert named == {supported[-1]}


def test_loading_asks_for_no_day(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_TODAY", "never")
    assert [load(root, name).name for name in fleets.EXAMPLES] == list(fleets.EXAMPLES)
