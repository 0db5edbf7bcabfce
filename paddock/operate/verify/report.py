"""Results of a verification: what `--json` prints, and the same as JUnit."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from datetime import datetime
from typing import Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from paddock.errors import printable

SCHEMA: Final = "paddock.verify/1"
State = Literal["pass", "fail", "skip", "unknown"]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Phase(_Model):
    """One part of a cold start. `seconds` is None where nothing recorded it."""

    name: str
    seconds: float | None
    budget_seconds: float
    note: str = ""

    @property
    def exceeded(self) -> bool:
        return self.seconds is not None and self.seconds > self.budget_seconds


class Step(_Model):
    """One test."""

    name: str
    state: State
    message: str
    fix: str = ""
    seconds: float = 0.0
    phases: tuple[Phase, ...] = ()


class Report(_Model):
    """All tests of a run."""

    schema_: str = Field(SCHEMA, alias="schema", serialization_alias="schema")
    stack: str
    fleet: str
    context: str
    run: str
    """Value of the label paddock.dev/verify on all that the run made."""
    at: datetime
    seconds: float
    interrupted: bool
    steps: tuple[Step, ...]
    left_behind: tuple[str, ...]
    """Objects that could not be taken away."""

    @property
    def failed(self) -> bool:
        """True where a test failed, was interrupted, or left something behind. What was skipped fails nothing."""
        bad = any(step.state in ("fail", "unknown") for step in self.steps)
        return bad or self.interrupted or bool(self.left_behind)


def junit(report: Report) -> str:
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
