"""The plan as Markdown: golden for the small example, short enough for GitHub, and text that stays text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paddock.plan.document.model import PlanDocument
from paddock.plan.output.markdown import LIMIT, render
from tests.support.documents import NAMES, document, full, of, resource, seed

GOLDEN = Path(__file__).parent / "golden" / "dev.md"


def cells(row: str) -> list[str]:
    """Cells as GitHub splits them: at each bar that no backslash escapes."""
    return re.split(r"(?<!\\)(?:\\\\)*\|", row)[1:-1]


def check(page: str) -> None:
    assert len(page.encode("utf-16-le")) // 2 < LIMIT
    width = 0
    for line in page.splitlines():
        if line.startswith("|"):
            width = width or len(cells(line))
            assert len(cells(line)) == width, line
        else:
            width = 0


def test_the_small_example_reads_as_agreed() -> None:
    """To change it on purpose, write `render(small())` to the golden file and read the difference."""
    assert render(small()) == GOLDEN.read_text(encoding="utf-8")


def small() -> PlanDocument:
    """Return the dev stack without what changes with each refresh of the catalogue, and with a rule for show."""
    data = of("dev").data()
    keys = ("schema", "stack", "fleet", "github", "pools", "runners", "fit")
    finding = {
        "id": "CFG002", "severity": "warning", "subject": "network.nat", "message": "no way out",
        "fix": "network.nat: single",
    }  # fmt: skip
    steps = [
        {"id": "CFG001", "subject": "paddock:githubAppKey", "text": "Give Pulumi the key", "command": "pulumi config"},
        {"id": "CFG005", "subject": "cluster.endpoint.allow", "text": "Run pulumi up inside the VPC"},
    ]
    cost = {"value": 123.4, "unit": "USD/month", "sources": [], "as_of": None, "missing": ["a price"]}
    month = {"low": cost, "expected": cost, "high": cost}
    return document(
        **{key: data[key] for key in keys},
        findings=[finding],
        before_up=steps,
        resources=[resource(custom=True, type="aws:ec2/vpc:Vpc", name="network_vpc")],
        cost={"month": month, "fixed": {"total": cost}, "runners": [], "assumptions": ["a month has 730 hours"]},
        quota=[{"name": "G on spot", "code": "L-3819A6DF", "unit": "vCPU", "need": 40, "default": 0, "shortfall": 40}],
        compatibility=[{"id": "CMP003", "subject": "pools.t4", "verdict": "ok", "message": "R580 drives T4"}],
        rules={"evaluated": [{"id": "PAD001"}, {"id": "PAD002"}]},
    )


@pytest.mark.parametrize("name", NAMES)
def test_every_fleet_is_short_enough_and_names_all(name: str) -> None:
    page = render(of(name))
    check(page)
    plan = of(name)
    for part in [*(pool.name for pool in plan.pools), *(runner.name for runner in plan.runners)]:
        assert part in page


def test_what_is_cut_is_counted() -> None:
    findings = [
        {"id": "X1", "severity": "warning", "subject": f"runners.r{i}", "message": "m" * 300, "fix": "f"}
        for i in range(900)
    ]
    page = render(document(**{**of("dev").data(), "findings": findings}))
    check(page)
    assert re.search(r"\.\.\. \d+ of 900 shown", page)


def test_the_worst_fleet_is_reported() -> None:
    page = render(full(seed()))
    check(page)
    assert "Not ready: 1 error" in page
    assert "265m of 4 CPU" in page


def test_markup_in_names_is_text() -> None:
    plan = document(
        stack="<img src=x>",
        findings=[
            {
                "id": "A1",
                "severity": "error",
                "subject": "a|b`c\\",
                "message": "@octocat #12 **bold** [x](http://y) a\\|b",
                "fix": "|",
            }
        ],
    )
    page = render(plan)
    check(page)
    for harmful in ("<img", "@octocat", " #12", "**bold**", "[x](", "a|b"):
        assert harmful not in page.replace("## ", "")


ANY = st.text(max_size=30)


@settings(max_examples=100, deadline=None)
@given(ANY, ANY, ANY, ANY)
def test_any_text_keeps_its_row(stack: str, subject: str, message: str, fix: str) -> None:
    finding = {"severity": "error", "subject": subject, "message": message, "fix": fix, "id": "A1"}
    page = render(document(stack=stack, findings=[finding]))
    check(page)
    rows = [line for line in page.splitlines() if line.startswith("|")]
    assert len(rows) == 3
