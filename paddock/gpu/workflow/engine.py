"""Run a workflow: independent steps at once, each as often and as long as it may, and none that is done already."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any, Literal

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.host import programs
from paddock.gpu.model import SCHEMA
from paddock.gpu.workflow.journal import Event, Journal, default_path, keys, reusable
from paddock.gpu.workflow.model import Workflow, WorkflowStep
from paddock.gpu.workflow.tasks import Context, Document, ProgramRun
from paddock.process import sigterm_as_interrupt

AT_ONCE = 8
"""Steps that run at one time, at most."""
_EXIT = {"succeeded": 0, "failed": 1, "interrupted": 130}
_LAST_LINES = 10

Outcome = Literal["succeeded", "failed", "skipped", "interrupted", "reused"]


@dataclass(frozen=True, slots=True)
class StepEvent:
    """Event for the one who watches: `status` is started, retried or how the step ended; `detail` is why."""

    step: WorkflowStep
    status: str
    detail: str = ""
    seconds: float = 0


@dataclass(slots=True)
class _State:
    outcome: Outcome | None = None
    attempts: int = 0
    seconds: float = 0
    result: Document | None = None
    error: str | None = None


Watch = Callable[[StepEvent], None]


def plan(workflow: Workflow, *, journal: Path | None = None, fresh: bool = False) -> Document:
    """Return what a run would do, in order, and do nothing. The steps of one wave run at the same time."""
    path = journal or default_path(workflow)
    finished = {}
    if not fresh and path.exists():
        with Journal(path) as there:
            finished = reusable(workflow, there.done)
    waves = [[_planned(step, reused=step.id in finished) for step in wave] for wave in workflow.waves()]
    return {"schema": SCHEMA, "workflow": workflow.id, "name": workflow.name, "journal": str(path), "waves": waves}


def run(
    workflow: Workflow, *, journal: Path | None = None, fresh: bool = False, watch: Watch = lambda _: None
) -> Document:
    """Run the steps and return how each ended; a rerun continues after the last good steps unless `fresh`.

    A step that fails keeps those from running that wait for it, and no others. Ctrl-C and SIGTERM end what runs and
    give the outcome interrupted. Leases that steps took end with this process, unless they have a time to live. Raises
    GpuError where there can be no journal.
    """
    with Journal(journal or default_path(workflow)) as book:
        execution = _Run(workflow, book, {} if fresh else reusable(workflow, book.done), watch)
        with sigterm_as_interrupt():
            outcome = execution.go()
    steps = [_step_document(step, execution.states[step.id]) for step in workflow.steps]
    return {"schema": SCHEMA, "workflow": workflow.id, "outcome": outcome, "journal": str(book.path), "steps": steps}


def exit_code(document: Document) -> int:
    """Return the exit code of a run: 0, 1 for a step that failed, 130 for one that was interrupted."""
    return _EXIT[document["outcome"]]


class _Run:
    def __init__(self, workflow: Workflow, journal: Journal, finished: Mapping[str, Any], watch: Watch) -> None:
        self._workflow, self._journal, self._done, self._watch = workflow, journal, finished, watch
        self._cancel = threading.Event()
        self._writing = threading.Lock()
        self._keys = keys(workflow)
        self._steps = {step.id: step for step in workflow.steps}
        self.states = {step.id: _State() for step in workflow.steps}

    def go(self) -> Outcome:
        self._write("begun", workflow=self._workflow.id, run=secrets.token_hex(4), pid=os.getpid())
        graph = self._workflow.graph()
        graph.prepare()
        running: dict[Future[None], str] = {}
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="step") as pool:
            try:
                self._start(graph, pool, running)
                while running:
                    ended, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in ended:
                        id = running.pop(future)
                        future.result()
                        if self.states[id].outcome == "succeeded":
                            graph.done(id)
                    self._start(graph, pool, running)
            except KeyboardInterrupt:
                self._cancel.set()
                _settle(running)
            except BaseException:
                self._cancel.set()
                raise
        return self._finish()

    def _start(self, graph: TopologicalSorter[str], pool: ThreadPoolExecutor, running: dict[Future[None], str]) -> None:
        while ready := graph.get_ready():
            for id in ready:
                if id in self._done:
                    self.states[id].outcome, self.states[id].result = "reused", self._done[id].result
                    self._watch(StepEvent(self._steps[id], "reused"))
                    graph.done(id)
                else:
                    running[pool.submit(self._step, self._steps[id])] = id

    def _step(self, step: WorkflowStep) -> None:
        state, start = self.states[step.id], time.monotonic()
        try:
            state.result = self._attempts(step, state)
            state.outcome = "succeeded"
            self._write("succeeded", step=step.id, key=self._keys[step.id], result=state.result)
        except programs.Cancelled:
            state.outcome, state.error = "interrupted", "ended before it was done"
            self._write("interrupted", step=step.id)
        except GpuError as error:
            state.outcome, state.error = "failed", str(error)
            self._write("failed", step=step.id, attempt=state.attempts, error=str(error))
        finally:
            state.seconds = time.monotonic() - start
        self._watch(StepEvent(step, state.outcome, state.error or "", state.seconds))

    def _attempts(self, step: WorkflowStep, state: _State) -> Document:
        while True:
            state.attempts += 1
            self._write("started", step=step.id, attempt=state.attempts)
            self._watch(StepEvent(step, "started"))
            try:
                return self._attempt(step)
            except (programs.Cancelled, GpuInputError):
                raise
            except GpuError as error:
                if state.attempts > step.retry.times:
                    raise
                delay = step.retry.delay(state.attempts)
                self._write("failed", step=step.id, attempt=state.attempts, error=str(error))
                self._watch(StepEvent(step, "retried", f"in {delay:g} s, since it failed: {error}"))
                if self._cancel.wait(delay):
                    raise programs.Cancelled(f"{step.id} was not tried again") from None

    def _attempt(self, step: WorkflowStep) -> Document:
        """Return the result of the step. Raises GpuError."""
        task, where = step.task, f"step {step.id!r}"
        leases = self._leases(step)
        with ExitStack() as cleanup:
            # Case counts in the name, as it does in ids: steps may be called Train and train.
            name = f"paddock-{self._workflow.id}-{step.id}-{os.getpid()}"
            context = Context(self._workflow.folder, name, os.getpid(), cleanup, leases)
            job = task.spec.prepare(task.parameters, context)
            finished = self._run(job, step)
            if finished.code:
                message = _last(finished.errors) or _last(finished.output) or "it printed nothing"
                # An action on GPUs ends so when its parameters are wrong, which no retry fixes.
                wrong = task.type == "gpu" and task.action != "run" and finished.code == GpuInputError.exit_code
                raise (GpuInputError if wrong else GpuError)(f"{where}: exit status {finished.code}: {message}")
            result = job.result(finished)
            if job.keeps:
                cleanup.pop_all()
        return result

    def _leases(self, step: WorkflowStep) -> dict[str, Document]:
        """Return the documents of the steps before whose leases no step before has released."""
        before = {other.id: self.states[other.id].result or {} for other in self._workflow.before(step)}
        released = {lease["id"] for result in before.values() for lease in result.get("released", ())}
        leases = {id: result for id, result in before.items() if isinstance(result.get("lease"), dict)}
        return {id: result for id, result in leases.items() if result["lease"]["id"] not in released}

    def _run(self, job: ProgramRun, step: WorkflowStep) -> programs.Finished:
        environ = {**os.environ, **job.environ}
        try:
            return programs.run(
                job.command, stdin=job.stdin, environ=environ, timeout=step.timeout, cancel=self._cancel
            )
        except (programs.TimedOut, programs.Cancelled):
            if job.undo:
                programs.run(job.undo, timeout=programs.GRACE)
            raise

    def _finish(self) -> Outcome:
        outcomes = {state.outcome for state in self.states.values()}
        outcome: Outcome = "succeeded" if outcomes <= {"succeeded", "reused"} else "failed"
        if self._cancel.is_set():
            outcome = "interrupted"
        for step in self._workflow.steps:
            state = self.states[step.id]
            if state.outcome is None:
                state.outcome, state.error = "skipped", self._why_not(step)
                self._watch(StepEvent(step, "skipped", state.error))
        self._write("ended", outcome=outcome)
        return outcome

    def _why_not(self, step: WorkflowStep) -> str:
        if self._cancel.is_set():
            return "the workflow was interrupted before"
        lacking = [id for id in step.depends_on if self.states[id].outcome not in ("succeeded", "reused")]
        return f"it waits for {', '.join(lacking)}"

    def _write(self, event: Event, **about: Any) -> None:
        with self._writing:
            self._journal.write(event, **about)


def _planned(step: WorkflowStep, *, reused: bool) -> Document:
    task = step.task
    return {
        "id": step.id,
        "name": step.name,
        "type": task.type,
        "action": task.action,
        "depends_on": list(step.depends_on),
        "would": task.spec.describe(task.parameters),
        "reused": reused,
        "timeout": step.timeout,
        "retries": step.retry.times,
    }


def _step_document(step: WorkflowStep, state: _State) -> Document:
    return {
        "id": step.id,
        "name": step.name,
        "outcome": state.outcome,
        "attempts": state.attempts,
        "seconds": round(state.seconds, 3),
        "result": state.result,
        "error": state.error,
    }


def _settle(running: Mapping[Future[None], str]) -> None:
    """Wait until all have ended, and ignore further interrupts."""
    while not all(future.done() for future in running):
        try:
            wait(running)
        except KeyboardInterrupt:
            continue
    for future in running:
        future.result()


def _last(text: str) -> str:
    return "\n".join(text.strip().splitlines()[-_LAST_LINES:])
