"""`images.check`: whether the images of a stack's runners are pinned, new enough and fit the nodes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime, time
from typing import Any

from paddock import clock
from paddock.aws.client import Aws
from paddock.console.command import command
from paddock.console.parameters import parameter
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.fleet import Fleet, load
from paddock.images import check as image_check
from paddock.images import image_inventory, retention
from paddock.images.check import Finding
from paddock.images.image_inventory import Engine, ImageRecord, engine_here


@dataclass(frozen=True, kw_only=True)
class CheckImages(OfStack):
    """Parameters of `images.check`."""

    registry: bool = parameter(
        False, "ask ECR for the images that the stack files of this folder name: which are gone, or soon will be"
    )


@dataclass(frozen=True, kw_only=True)
class ImagesChecked(Report):
    """Findings about each image. Exit code 1 where something is wrong."""

    SCHEMA = 1
    stack: str
    day: date
    missing: str
    """Why there is no engine; empty where there is one."""
    findings: tuple[Finding, ...]

    @property
    def wrong(self) -> int:
        return sum(finding.verdict == "wrong" for finding in self.findings)

    @property
    def exit_code(self) -> int:
        return 1 if self.wrong else 0

    def document(self) -> dict[str, Any]:
        return {
            "schema": self.SCHEMA,
            **({"error": self._summary()} if self.wrong else {}),
            "stack": self.stack,
            "date": self.day.isoformat(),
            "engine": self.missing or None,
            "max_age_days": image_check.MAX_DAYS,
            "findings": [asdict(finding) for finding in self.findings],
        }

    def text(self) -> Iterator[str]:
        subject = ""
        for finding in self.findings:
            if finding.subject != subject:
                subject = finding.subject
                yield from ("", subject)
            yield f"  {finding.verdict:<8}{finding.about:<8} {finding.evidence}"
            if finding.fix and finding.verdict != "ok":
                yield f"{'':19}fix: {finding.fix}"
        if self.missing:
            yield from ("", f"What only the engine knows is left out: {self.missing}")

    def notes(self) -> Iterator[str]:
        if self.wrong:
            yield self._summary()

    def _summary(self) -> str:
        are = "is" if self.wrong == 1 else "are"
        return (
            f"{self.wrong} of {len(self.findings)} answers about the images of stack {self.stack} {are} wrong;"
            " each has its fix"
        )


@command()
def check(parameters: CheckImages, *, today: date | None = None, engine: Engine | None = None) -> ImagesChecked:
    """Judge the images. Raises FleetError."""
    fleet, today = load(root(), parameters.stack).fleet, today or clock.today()
    engine, missing = (engine, "") if engine else engine_here()
    images = image_inventory.of_fleet(fleet, engine)
    base = engine.image if engine else lambda _: None
    findings = [finding for image in images for finding in image_check.image(image, _nodes(fleet, image), base, today)]
    findings += image_check.cuda(fleet, images)
    if parameters.registry:
        aws = Aws(fleet.region)
        evening = datetime.combine(today, time.max, UTC)
        findings += image_check.registry(retention.fates(retention.pins(root()), aws.pages, aws.ask, evening))
    named = (replace(one, fix=one.fix.replace("--pin STACK", f"--pin {parameters.stack}")) for one in findings)
    return ImagesChecked(stack=parameters.stack, day=today, missing=missing, findings=tuple(named))


def _nodes(fleet: Fleet, image: ImageRecord) -> dict[str, tuple[str, ...]]:
    """Return the CPU architectures of the nodes that run an image, by what the nodes are."""
    system = image_inventory.system_processors(fleet) if image_inventory.GATEWAY in image.pinned else {}
    return {**image_inventory.processors(fleet, image.runners), **system}
