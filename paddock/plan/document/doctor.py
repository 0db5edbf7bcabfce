"""The doctor's last reading of a stack's account, for the part of a plan that says what `pulumi up` would meet."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator
from pydantic_core import PydanticCustomError

from paddock.fleet import Stack
from paddock.fleet.stackfile.configuration import accounts
from paddock.html.markup import clean
from paddock.plan.document.json_file import JsonFile, file_in, quoted
from paddock.plan.document.model import DoctorLine, DoctorReading, Model

SCHEMA = "paddock.doctor/1"
ORDER = ("fail", "unknown", "warn")
"""Of what is not right, worst first."""


def _time(text: str) -> str:
    try:
        at = datetime.fromisoformat(text)
        if at.tzinfo:
            return at.astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        pass
    raise PydanticCustomError("time", "a time with its zone, such as 2026-11-28T08:00:00Z")


class _Report(Model):
    """Part of what `doctor --json` writes that a plan needs."""

    account: str | None = None
    at: Annotated[str, AfterValidator(_time)]
    results: list[DoctorLine]


def read(path: Path, stack: Stack, today: date) -> DoctorReading:
    """Return what is not right in the account. Raises PlanFileError where it is not one of this stack's."""
    file = JsonFile(
        path, "reading of the doctor", SCHEMA, "./inv doctor", "--with-doctor cannot use",
        f"./inv doctor --stack {stack.name} --json {file_in(path, 'doctor.json')}",
    )  # fmt: skip
    fleet = stack.fleet
    report = file.read({"stack": stack.name, "fleet": fleet.name, "region": fleet.region}, _Report)
    allowed = accounts(stack.config.get("aws:allowedAccountIds", ""))
    forbidden = accounts(stack.config.get("aws:forbiddenAccountIds", ""))
    if not report.results:
        raise file.wrong("it has no `results`: nothing was read", "a line for each thing that the doctor looked at")
    if report.account in forbidden or (allowed and report.account not in allowed):
        expected = f"a reading of account {' or '.join(sorted(allowed))}" if allowed else "a reading of another account"
        if not report.account:
            raise file.wrong("it names no account, and the stack allows certain ones only", expected)
        raise file.wrong(f"it is a reading of account {quoted(report.account)}, which the stack rules out", expected)
    wrong: dict[tuple[str, str, str], DoctorLine] = {}
    for line in report.results:
        if line.status == "pass":
            continue
        # Without credentials every check says the same: one line stands for all.
        same = wrong.get((line.status, line.message, line.fix))
        subject = ", ".join(filter(None, (same.subject if same else "", clean(line.subject))))
        texts = {
            name: " ".join(clean(getattr(line, name)).split()) for name in ("area", "message", "fix", "permission")
        }
        checks = same.checks + 1 if same else 1
        wrong[line.status, line.message, line.fix] = DoctorLine(
            status=line.status, subject=subject, checks=checks, **texts
        )
    return DoctorReading(
        at=report.at,
        account=report.account,
        days=(today - datetime.fromisoformat(report.at).date()).days,
        passed=sum(line.status == "pass" for line in report.results),
        results=sorted(wrong.values(), key=lambda line: ORDER.index(line.status)),
    )
