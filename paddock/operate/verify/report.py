"""Results of a verification, and the same as JUnit."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from paddock.errors import printable
from paddock.operate.report import OfFleet, code, part

State = Literal["pass", "fail", "skip", "unknown"]


@dataclass(frozen=True, kw_only=True)
class ColdPart:
    """Part of a cold start. `seconds` is None where nothing recorded it."""

    name: str
    seconds: float | None
    budget_seconds: float
    note: str = ""

    @property
    def exceeded(self) -> bool:
        return self.seconds is not None and self.seconds > self.budget_seconds


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One test of a verification."""

    name: str
    state: State
    message: str
    fix: str = ""
    seconds: float = 0.0
    phases: tuple[ColdPart, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Verified(OfFleet):
    """All tests of a run."""

    SCHEMA = "paddock.verify/1"
    context: str
    run: str
    """Value of the label paddock.dev/verify on all that the run made."""
    at: datetime
    seconds: float
    interrupted: bool
    steps: tuple[Proof, ...]
    left_behind: tuple[str, ...]
    """Objects that could not be removed."""

    @property
    def failed(self) -> bool:
        """True where a test failed, was interrupted, or left something behind. What was skipped fails nothing."""
        bad = any(step.state in ("fail", "unknown") for step in self.steps)
        return bad or self.interrupted or bool(self.left_behind)

    @property
    def exit_code(self) -> int:
        return code(interrupted=self.interrupted, failed=self.failed)

    def text(self) -> Iterator[str]:
        yield self.heading("Verification", f"context {self.context}", f"run {self.run}")
        yield ""
        for test in self.steps:
            yield from part(test.state.upper(), f"{test.name}: {test.message}", test.fix, width=8)
            for one in test.phases:
                shown = one.note if one.seconds is None else f"{one.seconds:.0f} s of {one.budget_seconds:.0f} s"
                yield f"           {one.name:20} {shown}"
        yield ""
        yield from (f"  left behind: {item}" for item in self.left_behind)
        how = "interrupted; " if self.interrupted else ""
        left = f"{len(self.left_behind)} things left behind" if self.left_behind else "nothing left behind"
        yield f"{how}{'failed' if self.failed else 'passed'} after {self.seconds:.0f} s; {left}"


def junit(report: Verified) -> str:
    """Return the report as JUnit's XML."""
    failed = [step for step in report.steps if step.state in ("fail", "unknown")]
    errors = ["interrupted before the end"] if report.interrupted else []
    errors += [f"left behind: {item}" for item in report.left_behind]
    suite = ElementTree.Element(
        "testsuite",
        name=f"verify {report.stack}",
        tests=str(len(report.steps) + len(errors)),
        failures=str(len(failed)),
        errors=str(len(errors)),
        skipped=str(sum(step.state == "skip" for step in report.steps)),
        time=f"{report.seconds:.1f}",
        timestamp=report.at.isoformat(),
    )
    for step in report.steps:
        case = ElementTree.SubElement(
            suite, "testcase", classname="paddock.verify", name=step.name, time=f"{step.seconds:.1f}"
        )
        text = printable(step.message + (f"\nfix: {step.fix}" if step.fix else ""))
        if step.state in ("fail", "unknown"):
            ElementTree.SubElement(case, "failure", message=printable(step.message), type=step.state).text = text
        elif step.state == "skip":
            ElementTree.SubElement(case, "skipped", message=printable(step.message))
        else:
            ElementTree.SubElement(case, "system-out").text = text
    for number, error in enumerate(errors):
        case = ElementTree.SubElement(suite, "testcase", classname="paddock.verify", name=f"end of the run {number}")
        ElementTree.SubElement(case, "error", message=printable(error))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"
