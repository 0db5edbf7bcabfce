"""The registry of findings is complete, and its page is current."""

from __future__ import annotations

import re
from collections import defaultdict
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from paddock.plan.finding import current_id
from paddock.plan.findings import FAMILIES, FINDINGS
from paddock.plan.plan import build_plan
from tests.support import fleets

PLAN = fleets.ROOT / "paddock" / "plan"


def _module(path: Path) -> str:
    return ".".join(path.relative_to(PLAN).with_suffix("").parts).removesuffix(".__init__")


def test_every_id_in_the_code_is_registered_where_it_is_reported() -> None:
    reported = defaultdict(set)
    for path in PLAN.rglob("*.py"):
        if path.name not in ("finding.py", "findings.py") and "output" not in path.parts:
            for id_ in re.findall(r'"([A-Z]{3,}-?\d{2,3})"', path.read_text(encoding="utf-8")):
                reported[id_].add(_module(path))
    assert reported == {id_: {kind.where} for id_, kind in FINDINGS.items()}


def test_every_id_is_three_letters_of_a_family_and_three_digits() -> None:
    for id_ in FINDINGS:
        assert re.fullmatch(r"[A-Z]{3}\d{3}", id_)
        assert id_[:3] in FAMILIES


@pytest.mark.parametrize("name", fleets.SAMPLES)
def test_a_plan_reports_registered_findings_only(name: str) -> None:
    plan = build_plan(fleets.named(name), date(2028, 1, 1))
    for finding in plan.findings:
        assert (
            finding.severity in re.split(r", | or ", FINDINGS[finding.id].severity)
            or finding.id in plan.rules.evaluated
        )


@pytest.mark.parametrize(("old", "new"), [("PAD-08", "PAD008"), ("CON-11", "CON011"), ("COST001", "CST001")])
def test_old_ids_have_a_current_id(old: str, new: str) -> None:
    assert current_id(old) == new
    assert current_id(new) == new
    assert new in FINDINGS


def test_a_reservation_is_of_one_zone_and_not_of_the_past() -> None:
    def found(**pool: Any) -> set[str]:
        capacity = {"capacityBlock": "cr-0aaaaaaaaaaaaaaa0", "ends": "2026-12-01T11:30Z"}
        data = fleets.fleet_data(
            network={"zones": ["us-west-2a", "us-west-2b"]},
            pools={"h100": {"instances": ["p5.48xlarge"], "capacity": capacity, "nodes": {"max": 1}} | pool},
            runners={"gpu": {"pool": "h100"}},
        )
        plan = build_plan(fleets.stack(data), date(2026, 12, 2))
        return {finding.id for finding in plan.findings} & {"CFG012", "CFG013"}

    assert found() == {"CFG012", "CFG013"}
    assert found(zones=["us-west-2a"], capacity={"reserved": "cr-0aaaaaaaaaaaaaaa0"}) == set()
