"""`gpu.workflow`: run steps on GPUs in their order."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.progress import Progress, progress
from paddock.gpu.report import DocumentReport

if TYPE_CHECKING:
    from paddock.gpu.workflow.engine import StepEvent, Watch


@dataclass(frozen=True, kw_only=True)
class WorkflowFile(Parameters):
    """Parameters of `gpu.workflow`."""

    file: Path = parameter(..., "the workflow, YAML or JSON")
    dry_run: bool = parameter(False, "show the order, and what each step would do")
    fresh: bool = parameter(False, "run every step again, also those that are done")
    journal: Path | None = parameter(None, "where to note what is done; by default with the user's other state")


@dataclass(frozen=True, kw_only=True)
class WorkflowPlan(DocumentReport):
    """The steps in their order, and what each would do."""

    def text(self) -> Iterator[str]:
        yield f"{self.found['name']} ({self.found['workflow']}), journal {self.found['journal']}"
        for number, wave in enumerate(self.found["waves"], 1):
            for step in wave:
                suffix = " (done already)" if step["reused"] else ""
                after = f", after {', '.join(step['depends_on'])}" if step["depends_on"] else ""
                yield f"{number}. {step['id']}{suffix}{after}: {step['would']}"


@dataclass(frozen=True, kw_only=True)
class WorkflowReport(DocumentReport):
    """Outcome of each step."""

    @property
    def exit_code(self) -> int:
        from paddock.gpu.workflow import engine

        return engine.exit_code(self.found)

    def text(self) -> Iterator[str]:
        yield f"{self.found['workflow']}: {self.found['outcome']}"
        for step in self.found["steps"]:
            reason = f": {step['error']}" if step["error"] else ""
            yield from f"{step['outcome']:<11} {step['id']} ({step['seconds']:.1f} s){reason}".split("\n")


@command()
def workflow(parameters: WorkflowFile) -> WorkflowPlan | WorkflowReport:
    """Run a workflow, or show its plan. Raises GpuError and GpuInputError."""
    from paddock.gpu.workflow import engine
    from paddock.gpu.workflow.model import load

    definition = load(parameters.file)
    if parameters.dry_run:
        return WorkflowPlan(found=engine.plan(definition, journal=parameters.journal, fresh=parameters.fresh))
    with progress() as shown:
        return WorkflowReport(
            found=engine.run(definition, journal=parameters.journal, fresh=parameters.fresh, watch=watching(shown))
        )


def watching(shown: Progress) -> Watch:
    """Return the function that `engine.run` calls for each step: it says a line, from any thread."""
    one_at_a_time = threading.Lock()

    def watch(event: StepEvent) -> None:
        took = f" after {event.seconds:.1f} s" if event.seconds else ""
        detail = f": {event.detail}" if event.detail else ""
        with one_at_a_time:
            shown.say(f"{time.strftime('%H:%M:%S')} {event.step.id} {event.status}{took}{detail}")

    return watch
