"""Exceptions in a stack file: how they are read, what they excuse, and how they end."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from paddock.fleet import FleetError, load
from paddock.plan.rules import RENAMED, STALE, check_context, suppressions
from paddock.plan.rules.base import Context
from tests.plan.rules.breaking import put
from tests.support import fleets

TODAY = date(2026, 11, 21)
GOOD = {"rule": "PAD008", "resource": "t4", "reason": "the vendor's agent cannot do IMDSv2", "expires": "2027-01-31"}


def _read(*entries: Any) -> Any:
    return suppressions({"paddock:suppressions": json.dumps(entries)}, TODAY)


def _evaluated(*entries: Any) -> Any:
    graph = put("LaunchTemplate", "t4", "metadataOptions/httpTokens", "optional")(fleets.graph("dev"))
    return check_context(Context(graph, fleet=fleets.named("dev").fleet, today=TODAY), _read(*entries))


def test_a_stack_without_suppressions_has_none() -> None:
    assert suppressions({}, TODAY) == ()


@pytest.mark.parametrize(
    "resource",
    ["t4", "t*", "*", "urn:pulumi:dev::paddock::paddock:infra:GpuPool$aws:ec2/launchTemplate:LaunchTemplate::t4"],
)
def test_an_accepted_violation_is_no_finding_and_stays_listed(resource: str) -> None:
    evaluation = _evaluated(GOOD | {"resource": resource})
    assert {finding.severity for finding in evaluation.findings} <= {"info"}
    (suppressed,) = evaluation.suppressed
    assert (suppressed.violation.rule.id, suppressed.suppression.reason) == ("PAD008", GOOD["reason"])


def test_a_suppression_excuses_its_own_rule_and_resource_only() -> None:
    for other in (GOOD | {"rule": "PAD009"}, GOOD | {"resource": "a100"}):
        evaluation = _evaluated(other)
        assert {"PAD008", STALE} <= {finding.id for finding in evaluation.findings if finding.severity == "error"}
        assert evaluation.suppressed == ()


def test_a_suppression_that_excuses_nothing_is_an_error() -> None:
    evaluation = check_context(Context(fleets.graph("dev"), today=TODAY), _read(GOOD))
    (stale,) = (finding for finding in evaluation.findings if finding.id == STALE)
    assert (stale.severity, stale.subject) == ("error", "paddock:suppressions[0]")


def test_an_old_id_is_understood_with_a_warning() -> None:
    result = _evaluated(GOOD | {"rule": "PAD-08"})
    (renamed,) = (finding for finding in result.findings if finding.severity != "info")
    assert (renamed.id, renamed.severity, renamed.fix) == (RENAMED, "warning", "rule: PAD008")
    assert [suppressed.violation.rule.id for suppressed in result.suppressed] == ["PAD008"]


def test_the_last_day_still_counts() -> None:
    assert _read(GOOD | {"expires": "2026-11-21"})


WRONG = [
    (GOOD | {"rule": "PAD8"}, "rule", 'there is no rule "PAD8"', "did you mean"),
    (GOOD | {"rule": "CKV_AWS_79"}, "rule", 'there is no rule "CKV_AWS_79"', "docs/rules.md"),
    ({key: GOOD[key] for key in ("rule", "resource", "expires")}, None, "reason is missing", "add reason"),
    ({key: GOOD[key] for key in ("rule", "resource", "reason")}, None, "expires is missing", "add expires"),
    ({key: GOOD[key] for key in ("rule", "reason", "expires")}, None, "resource is missing", "add resource"),
    (GOOD | {"reason": "todo"}, "reason", '"todo" is not a reason', "say who decided"),
    (GOOD | {"reason": " " * 20}, "reason", "reason must be text", ""),
    (GOOD | {"expires": "2026-11-20"}, "expires", "it expired on 2026-11-20", "remove it"),
    (GOOD | {"expires": "2099-12-31"}, "expires", "it would last until 2099-12-31, more than a year from today",
     "2027-11-22"),
    (GOOD | {"expires": "2027-02-30"}, "expires", '"2027-02-30" is not a date', "2027-01-31"),
    (GOOD | {"expires": "20270131"}, "expires", '"20270131" is not a date', "2027-01-31"),
    (GOOD | {"expires": 2027}, "expires", "expires must be text", "quotes"),
    (GOOD | {"resource": ["t4"]}, "resource", "resource must be text", "quotes"),
    (GOOD | {"resouce": "t4"}, "resouce", 'unknown key "resouce"', "did you mean"),
    ("PAD008", None, "not a suppression", ""),
    (None, None, "not a suppression", ""),
]  # fmt: skip


@pytest.mark.parametrize(
    ("entry", "key", "message", "fix"), WRONG, ids=lambda item: item if isinstance(item, str) else ""
)
def test_a_wrong_suppression_says_where_and_how_to_mend_it(entry: Any, key: str | None, message: str, fix: str) -> None:
    with pytest.raises(FleetError) as raised:
        _read(entry)
    (problem,) = raised.value.problems
    assert problem.key == ("config", "paddock:suppressions", 0, *([key] if key else []))
    assert problem.message == message
    assert fix in problem.fix


@pytest.mark.parametrize("text", ["{}", '"PAD008"', "PAD008", "5", "[", ""])
def test_something_else_than_a_list_is_refused(text: str) -> None:
    with pytest.raises(FleetError, match="not a list of suppressions"):
        suppressions({"paddock:suppressions": text}, TODAY)


def test_every_mistake_is_reported_with_its_line(tmp_path: Path) -> None:
    written = (fleets.ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8")
    (tmp_path / "Pulumi.yaml").write_text((fleets.ROOT / "Pulumi.yaml").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "Pulumi.dev.yaml").write_text(
        f"{written}  paddock:suppressions:\n"
        '    - {rule: PAD099, resource: a, reason: "long enough a reason", expires: "2027-01-31"}\n'
        '    - {rule: PAD008, resource: a, reason: "long enough a reason", expires: "2020-01-31"}\n',
        encoding="utf-8",
    )
    stack = load(tmp_path, "dev")
    with pytest.raises(FleetError) as raised:
        suppressions(stack.config, TODAY, stack.locate)
    line = written.count("\n") + 2
    assert (
        str(raised.value).splitlines()[0]
        == f'Pulumi.dev.yaml:{line}: paddock:suppressions[0].rule: there is no rule "PAD099"'
    )
    assert f"Pulumi.dev.yaml:{line + 1}: paddock:suppressions[1].expires" in str(raised.value)
