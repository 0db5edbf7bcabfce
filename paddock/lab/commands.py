"""Commands of the lab."""

from __future__ import annotations

import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from paddock.console.command import command
from paddock.console.parameters import Parameters, parameter
from paddock.console.progress import Progress
from paddock.console.project import OfStack, root
from paddock.console.report import Report
from paddock.duration import Seconds
from paddock.errors import Interrupted
from paddock.lab import BOOT_SECONDS, JOB_SECONDS
from paddock.lab.errors import LabError, LabInputError

if TYPE_CHECKING:
    from paddock.fleet import Stack
    from paddock.lab import demo
    from paddock.lab.control_plane.servers import Lab
    from paddock.lab.status import LabState

# Imports of the lab's rooms are in the functions: a command line is read before the packages are there.


@dataclass(frozen=True, kw_only=True)
class Up(OfStack):
    """Parameters of `lab.up`."""

    port: int = parameter(0, "the first of six ports on loopback; by default ports that are free", ge=0)
    boot_seconds: float = parameter(
        BOOT_SECONDS, "how long a simulated node takes to boot; 0 takes the published figures", unit=Seconds, ge=0
    )
    keep: bool = parameter(False, "leave running what runs when a later part fails, to look at it")


@dataclass(frozen=True, kw_only=True)
class IsUp(Report):
    """The lab as it is now, and what was done for it."""

    SCHEMA = "paddock.lab.up/1"
    lab: Lab
    started: bool
    seconds: dict[str, float]
    total: float
    applied: dict[str, Any] | None
    skipped: list[str]

    def text(self) -> Iterator[str]:
        yield f"export KUBECONFIG={self.lab.kubeconfig}"

    def notes(self) -> Iterator[str]:
        yield from (textwrap.indent(sentence, " " * 11) for sentence in self.skipped)
        yield f"{self.total:7.1f} s  {'up' if self.started else 'it was up already'}"

    def document(self) -> dict[str, Any]:
        from paddock.lab.status import document

        timing = {"started": self.started, "seconds": self.seconds, "total": self.total}
        outcome = {"applied": self.applied, "skipped": self.skipped}
        return {"schema": self.SCHEMA, **document(self.lab), **timing, **outcome}


@command()
def up(parameters: Up) -> IsUp:
    """Start the lab of a stack and apply the stack in it, or bring a running lab to what the stack file says now.

    Raises LabError and FleetError.
    """
    from paddock.fleet import load
    from paddock.lab.control_plane import servers, state
    from paddock.lab.stack import charts

    name, boot_seconds, keep = parameters.stack, parameters.boot_seconds or None, parameters.keep
    if boot_seconds is not None and not 0 <= boot_seconds <= 3600:
        raise LabInputError(f"--boot-seconds is {boot_seconds:g}\n    expected: seconds, from 0 to 3600")
    progress = Progress(quiet=parameters.json.replaces_text)
    configured, _ = load(root(), name), charts.real_folder()  # a mistake in them should not cost the time of a start
    try:
        lab, started = servers.up(state.folder(name), first_port=parameters.port or None, progress=progress)
    except KeyboardInterrupt:
        up = state.inv("up", state.folder(name))
        raise Interrupted(f"interrupted; what had started of the lab was ended: {up} starts it") from None
    try:
        applied, skipped = _apply_stack(lab, configured, boot_seconds, progress)
    except BaseException as error:
        if started and not keep:
            servers.down(lab.folder, keep=True)
        next_steps = _next_steps(lab, started, keep)
        if isinstance(error, LabError):
            error_type = LabInputError if isinstance(error, LabInputError) else LabError
            raise error_type(f"{error}\n{next_steps}") from error
        if isinstance(error, KeyboardInterrupt):
            raise Interrupted(f"interrupted\n{next_steps}") from None
        progress.say(next_steps)
        raise
    lab = servers.status(lab.folder)
    seconds, total = progress.seconds, progress.total
    return IsUp(lab=lab, started=started, seconds=seconds, total=total, applied=applied, skipped=skipped)


def _apply_stack(
    lab: Lab, configured: Stack, boot_seconds: float | None, progress: Progress
) -> tuple[dict[str, Any] | None, list[str]]:
    """Start nodes, GitHub, the stack and ARC; return the applied stack, and a sentence for each missing part."""
    from paddock.lab import github
    from paddock.lab.control_plane import state
    from paddock.lab.simulators import arc, arc_programs, nodes
    from paddock.lab.stack import stack
    from paddock.lab.stack.engine import NO_PROVIDER, Programs
    from paddock.plan.engine.program import plan_graph

    with progress.step("plan"):
        graph = plan_graph(configured)
    with progress.step("nodes and autoscaler"):
        nodes.start(lab, configured, boot_seconds=boot_seconds)
    try:
        Programs.find()
    except LabInputError as error:
        return None, [f"the stack is not applied, so no job can run: {error}, then {state.inv('up', lab.folder)}"]
    with progress.step("stand-in for GitHub"):
        url = github.start(lab)
    outcome = stack.apply(lab, configured, root=root(), graph=graph, github=url, progress=progress)
    skipped = []
    if not outcome.objects:
        skipped.append(f"no job can run: {NO_PROVIDER}, then {state.inv('up', lab.folder)}")
    real = all(chart.real for chart in outcome.charts if "runner-scale-set" in chart.name)
    absent = arc_programs.unavailable_reason() or ("" if real else "its charts are not in PADDOCK_LAB_CHARTS")
    with progress.step("stand-in for ARC" if absent else "ARC"):
        (arc if absent else arc_programs).start(lab, url)
    if absent:
        skipped.append(f"a stand-in takes ARC's place: {absent} (docs/lab.md)")
    changes = Counter(operation for done in outcome.result.changes.values() for operation in set(done))
    applied = {
        "resources": outcome.resources,
        "changes": dict(sorted(changes.items())),
        "seconds": round(outcome.result.seconds, 2),
        "objects": outcome.objects,
        "charts": [{"name": chart.name, "version": chart.version, "real": chart.real} for chart in outcome.charts],
    }
    return applied, skipped


def _next_steps(lab: Lab, started: bool, keep: bool) -> str:
    from paddock.lab.control_plane import state

    state_text = "it runs on" if keep or not started else "it was ended, its state is kept (--keep leaves it running)"
    up, down = state.inv("up", lab.folder), state.inv("down", lab.folder)
    return f"    the lab: {state_text}; {up} continues from here, {down} deletes it"


@dataclass(frozen=True, kw_only=True)
class OfLab(Parameters):
    """Parameters of a command on a lab."""

    stack: str = parameter("dev", "the lab of this stack")


@command()
def status(parameters: OfLab) -> LabState:
    """Read programs, nodes and jobs."""
    from paddock.lab.control_plane import servers, state
    from paddock.lab.status import LabState

    return LabState.of(parameters.stack, servers.status(state.folder(parameters.stack)))


@dataclass(frozen=True, kw_only=True)
class Demo(OfLab):
    """Parameters of `lab.demo`."""

    runner: str = parameter("", "the runner that the job is for; by default the fleet's first")
    job_seconds: float = parameter(JOB_SECONDS, "how long the job works", unit=Seconds)


@command()
def show_demo(parameters: Demo) -> demo.Story:
    """Run one GPU job through the lab. Raises LabError and FleetError."""
    from paddock.fleet import load
    from paddock.lab import demo
    from paddock.lab.control_plane import servers, state

    configured = load(root(), parameters.stack)
    lab = servers.status(state.folder(parameters.stack))
    try:
        return demo.demo(
            lab, configured, job_seconds=parameters.job_seconds, json=parameters.json, runner=parameters.runner
        )
    except KeyboardInterrupt:
        look = state.inv("status", lab.folder)
        raise Interrupted(f"interrupted; its job was cancelled and the lab runs on: {look} shows it") from None


@dataclass(frozen=True, kw_only=True)
class Down(OfLab):
    """Parameters of `lab.down`."""

    keep: bool = parameter(False, "keep its objects for the next lab.up")


@dataclass(frozen=True, kw_only=True)
class IsDown(Report):
    """Programs of the lab that were ended."""

    SCHEMA = "paddock.lab.down/1"
    stack: str
    ended: list[str]
    seconds: float
    kept: bool

    def text(self) -> Iterator[str]:
        count = len(self.ended)
        message = f"ended {count} processes in {self.seconds:.1f} s" if count else f"no lab of {self.stack} runs"
        yield f"{message}{'; its objects are kept' if self.kept else ''}"

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "ended": self.ended, "seconds": self.seconds}


@command()
def down(parameters: Down) -> IsDown:
    """End the lab. Raises LabInputError while another command applies its stack."""
    from paddock.lab.control_plane import servers, state

    started, folder = time.monotonic(), state.folder(parameters.stack)
    with state.exclusive_command(folder):
        ended = servers.down(folder, keep=parameters.keep)
    seconds = round(time.monotonic() - started, 2)
    return IsDown(stack=parameters.stack, ended=list(ended), seconds=seconds, kept=parameters.keep)
