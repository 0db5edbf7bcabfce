"""Pictures of the documentation, drawn by the code that they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from paddock.catalog import stamps
from paddock.fleet import load
from paddock.plan.document.builder import build_document
from paddock.plan.document.model import PlanDocument
from paddock.plan.output.html import overview
from paddock.plan.plan import build_plan
from paddock.site import diagrams, recording

FOLDER = Path("docs/pictures")
RECORDED = "lab-demo.json"
"""What `./inv lab.demo --json` printed, of the example stack dev."""


def _of_plan(draw: Callable[[PlanDocument], str], stack: str, root: Path) -> str:
    # The day of the newest facts: a picture changes with the facts and the code, not with the calendar.
    day = max(stamp.as_of for stamp in stamps())
    return draw(build_document(build_plan(load(root, stack), day, root=root)))


PICTURES: Mapping[str, Callable[[Path], str]] = {
    "plan.svg": partial(_of_plan, overview.render, "prod"),
    "path-of-a-job.svg": partial(_of_plan, diagrams.path_of_a_job, "dev"),
    "fleet-and-job.svg": partial(_of_plan, diagrams.fleet_and_job, "dev"),
    "lab-demo.svg": lambda root: recording.draw(root / FOLDER / RECORDED),
}
"""File name and what draws it, for the example stacks of a checkout and a job that the lab recorded."""
