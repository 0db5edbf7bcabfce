"""`plan --with-doctor FILE`: what `pulumi up` would meet, in every form of a plan, and files that are not readings."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from paddock.operate.doctor.report import NO_CREDENTIALS, Examination, Result
from paddock.plan.document.doctor import SCHEMA
from tests.plan.conftest import Planned, document
from tests.support.fleets import fleet_data

FLEET = fleet_data(name="lab")
FIX = "pulumi import aws:iam/openIdConnectProvider:OpenIdConnectProvider github ARN"
EXAMINED = Examination(
    stack="case",
    fleet="lab",
    region="us-west-2",
    account="111122223333",
    at=datetime(2026, 11, 27, 14, 3, tzinfo=UTC),
    seconds=4.2,
    results=(
        Result(status="pass", area="account", subject="account", message="111122223333"),
        Result(status="warn", area="capacity", subject="pools.t4 spot score", message="3 of 10"),
        Result(status="fail", area="account", subject="OIDC provider", message="there is one | `already`", fix=FIX),
        Result(status="unknown", area="quotas", subject="VPCs", message="denied", permission="ec2:DescribeVpcs"),
    ),
)
PASSING = replace(EXAMINED, results=EXAMINED.results[:1])


@pytest.fixture
def reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PADDOCK_TODAY", "2026-11-27")
    monkeypatch.setenv("COLUMNS", "200")
    return saved(tmp_path, EXAMINED)


def saved(folder: Path, what: Examination | dict[str, Any] | str) -> Path:
    """Write what `doctor --json` writes, or something else."""
    path = folder / "doctor.json"
    if isinstance(what, Examination):
        what = what.document()
    path.write_text(what if isinstance(what, str) else json.dumps(what, default=str))
    return path


def test_failure_is_shown_with_its_fix_and_fails_the_plan(planned: Planned, reading: Path) -> None:
    assert planned(FLEET)[0] == 0
    code, output, _ = planned(FLEET, "--with-doctor", str(reading))
    assert code == 1
    lines = output[output.index("What pulumi up would meet") :].splitlines()
    assert lines[1] == (
        "Read by the doctor on 2026-11-27 14:03 UTC in account 111122223333: 1 FAIL, 1 UNKNOWN, 1 WARN, 1 PASS"
    )
    assert lines[2].split(maxsplit=1) == ["FAIL", "OIDC provider: there is one | `already`"]
    assert lines[3].strip() == f"fix: {FIX}"
    assert [line.split()[0] for line in lines[4:6]] == ["UNKNOWN", "WARN"]
    assert "the doctor says 1 FAIL, 1 UNKNOWN, 1 WARN" in output


@pytest.mark.parametrize(("results", "flags", "code"), [
    ((0,), (), 0),
    ((0, 1, 3), (), 0),
    ((0, 1), ("--strict",), 1),
    ((0, 3), ("--fail-on", "warning"), 1),
    ((0, 2), (), 1),
])  # fmt: skip
def test_exit_code_follows_the_doctors_lines(
    planned: Planned, reading: Path, results: tuple[int, ...], flags: tuple[str, ...], code: int
) -> None:
    saved(reading.parent, replace(EXAMINED, results=tuple(EXAMINED.results[index] for index in results)))
    pools = {"t4": {"instances": ["g4dn.xlarge", "g4dn.2xlarge", "g4dn.4xlarge"], "nodes": {"max": 2}}}
    quiet = fleet_data(name="lab", pools=pools)
    assert planned(quiet, *flags)[0] == 0
    assert planned(quiet, "--with-doctor", str(reading), *flags)[0] == code


def test_document_holds_what_does_not_pass_worst_first(planned: Planned, reading: Path) -> None:
    data = document(planned(FLEET, "--json", "--with-doctor", str(reading)))["doctor"]
    assert [line["status"] for line in data["results"]] == ["fail", "unknown", "warn"]
    assert (data["at"], data["account"]) == ("2026-11-27T14:03:00+00:00", "111122223333")
    assert (data["passed"], data["days"]) == (1, 0)
    assert data["results"][1]["permission"] == "ec2:DescribeVpcs"
    assert document(planned(FLEET, "--json"))["doctor"] is None


def test_pages_and_the_comment_say_it(planned: Planned, reading: Path, tmp_path: Path) -> None:
    old, files = tmp_path / "old.json", [tmp_path / name for name in ("plan.md", "plan.html", "comment.md")]
    planned(FLEET, "--json", str(old))
    written = ["--markdown", str(files[0]), "--html", str(files[1]), "--against", str(old), "--comment", str(files[2])]
    planned(FLEET, "--with-doctor", str(reading), *written)
    markdown, page, comment = (file.read_text(encoding="utf-8") for file in files)
    assert "### What `pulumi up` would meet" in markdown
    assert "| \u274c FAIL | `OIDC provider` | there is one \\| \\`already\\` |" in markdown
    assert "Not ready: 1 error" in markdown
    assert '<h2 id="doctor">What pulumi up would meet</h2>' in page
    assert FIX in page
    assert "- **FAIL** `OIDC provider`: there is one" in comment
    assert FIX in comment


@pytest.mark.parametrize(("today", "words"), [
    ("2026-11-28", "That is 1 day ago, and the account may have changed: run ./inv doctor again"),
    ("2026-12-04", "That is 7 days ago"),
    ("2026-11-26", "That is after this plan: one of the clocks is wrong"),
])  # fmt: skip
def test_age_of_a_reading_is_said(
    planned: Planned, reading: Path, monkeypatch: pytest.MonkeyPatch, today: str, words: str
) -> None:
    monkeypatch.setenv("PADDOCK_TODAY", today)
    assert words in planned(FLEET, "--with-doctor", str(reading))[1]


def test_checks_that_say_the_same_are_one_line(planned: Planned, reading: Path) -> None:
    unread = [Result(status="unknown", area="quotas", subject=name, message=NO_CREDENTIALS) for name in "abc"]
    saved(reading.parent, replace(PASSING, account=None, results=tuple(unread)))
    output = planned(FLEET, "--with-doctor", str(reading))[1]
    assert f"UNKNOWN a, b, c: {NO_CREDENTIALS}" in output
    assert "in an account that it could not name: 3 UNKNOWN, 0 PASS" in output


DOCUMENT = json.loads(json.dumps(EXAMINED.document(), default=str))


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in DOCUMENT.items() if name != key}


@pytest.mark.parametrize(("content", "words"), [
    ("", "it is empty"),
    ("PASS all\n", "it is not JSON"),
    ("[]", "not a reading of the doctor: a list"),
    ({}, "it has no `schema`"),
    ({"schema": 5}, "its `schema` is 5"),
    ({"schema": None}, "its `schema` is null"),
    ({"schema": "paddock.plan/1"}, 'it is not a reading of the doctor, but of schema "paddock.plan/1"'),
    (DOCUMENT | {"schema": "paddock.doctor/2"}, "written by another version of Paddock"),
    (DOCUMENT | {"stack": "prod"}, 'of stack "prod"\n    expected: a reading of stack "case"'),
    (without("fleet"), "it has no `fleet`\n    expected: a reading of fleet"),
    (DOCUMENT | {"fleet": "other"}, 'of fleet "other"'),
    (DOCUMENT | {"region": "eu-west-1"}, 'of region "eu-west-1"'),
    (DOCUMENT | {"account": "444455556666"}, 'of account "444455556666", which the stack rules out'),
    (DOCUMENT | {"account": None}, "it names no account, and the stack allows certain ones only"),
    (DOCUMENT | {"results": []}, "it has no `results`: nothing was read"),
    (DOCUMENT | {"at": "yesterday"}, "`at` has an unexpected form\n    expected: a time with its zone"),
    (DOCUMENT | {"at": "2026-11-27T14:03:00"}, "`at` has an unexpected form\n    expected: a time with its zone"),
    (DOCUMENT | {"results": [{"status": "good", "message": "m"}]}, "`results[0].status` has an unexpected form"),
    (without("results"), "it has no `results`\n    expected: `results`, as"),
])  # fmt: skip
def test_file_that_is_no_reading_of_this_stack_is_refused(
    planned: Planned, reading: Path, content: dict[str, Any] | str, words: str
) -> None:
    saved(reading.parent, content)
    allowed = {"aws:allowedAccountIds": ["111122223333"]}
    code, output, errors = planned(FLEET, "--with-doctor", str(reading), **allowed)
    assert (code, output) == (2, "")
    assert words in errors
    assert "expected: " in errors
    assert f"fix: ./inv doctor --stack case --json {reading}" in errors


def test_absent_file_is_refused(planned: Planned, tmp_path: Path) -> None:
    code, _, errors = planned(FLEET, "--with-doctor", str(tmp_path / "none.json"))
    assert (code, "no such file" in errors) == (2, True)
    _, _, errors = planned(FLEET, "--with-doctor", str(tmp_path))
    assert f"--json {tmp_path / 'doctor.json'}\n" in errors


def test_line_without_a_subject_is_its_message(planned: Planned, reading: Path) -> None:
    lines = [{"status": "fail", "message": "pulumi is missing"}]
    saved(reading.parent, DOCUMENT | {"results": lines})
    line = next(line for line in planned(FLEET, "--with-doctor", str(reading))[1].splitlines() if "pulumi is" in line)
    assert line.split(maxsplit=1) == ["FAIL", "pulumi is missing"]


def test_schema_is_the_doctors_own() -> None:
    assert SCHEMA == Examination.SCHEMA
