"""The verdict as JSON, and as JUnit's XML for CI systems."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as xml

from paddock.errors import printable
from paddock.gpu.serialization import data
from paddock.smoke.verdict.model import MachineVerdict, StageResult


def document(report: MachineVerdict) -> dict[str, Any]:
    """Return the report as JSON types, with its verdict, its action and what could not be tested first."""
    values = data(report)
    first = {name: values.pop(name) for name in ("schema", "no_gpu")}
    untested = list(dict.fromkeys(stage.stage for stage in report.untested))
    verdict = {"verdict": report.verdict, "action": report.action, "untested": untested}
    return {"schema": first["schema"], **verdict, "no_gpu": first["no_gpu"] or None, **values}


def junit(report: MachineVerdict) -> str:
    """Return a test suite with a test case for each stage and device: a failure fails, a warning is its output."""
    count = {status: sum(stage.status == status for stage in report.stages) for status in ("fail", "skip")}
    suite = xml.Element(
        "testsuite",
        name=f"paddock smoke, tier {report.tier}",
        hostname=report.machine,
        timestamp=report.taken_at.removesuffix("Z"),
        tests=str(len(report.stages)),
        failures=str(count["fail"]),
        skipped=str(count["skip"]),
        errors="0",
        time=f"{sum(stage.seconds for stage in report.stages):.3f}",
    )
    for stage in report.stages:
        _case(suite, stage)
    root = xml.Element("testsuites")
    root.append(suite)
    xml.indent(root)
    return xml.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _case(suite: xml.Element, stage: StageResult) -> None:
    name = f"{stage.stage} {stage.gpu}" if stage.gpu else stage.stage
    case = xml.SubElement(
        suite, "testcase", classname=f"smoke.tier{stage.tier}", name=name, time=f"{stage.seconds:.3f}"
    )
    evidence = printable(stage.evidence)
    match stage.status:
        case "fail":
            xml.SubElement(case, "failure", message=evidence).text = printable(stage.fix)
        case "skip":
            xml.SubElement(case, "skipped", message=evidence)
        case _:
            xml.SubElement(case, "system-out").text = f"{stage.status}: {evidence}"
