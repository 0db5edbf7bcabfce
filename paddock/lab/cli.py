"""The commands behind `inv lab.*`, without Invoke."""

from __future__ import annotations

import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from paddock.errors import Interrupted
from paddock.fleet import Stack, load
from paddock.lab import demo, github
from paddock.lab.control_plane import servers, state
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.progress import Progress
from paddock.lab.simulators import arc, arc_programs, nodes
from paddock.lab.stack import charts, stack
from paddock.lab.stack.engine import NO_PROVIDER, Programs
from paddock.lab.status import document, show
from paddock.plan.engine.program import plan_graph
from paddock.terminal import NO_JSON, JsonOutput, json_errors


@json_errors
def up(
    root: Path,
    name: str,
    *,
    first_port: int | None = None,
    boot_seconds: float | None = nodes.BOOT_SECONDS,
    keep: bool = False,
    json: JsonOutput = NO_JSON,
) -> None:
    """Start the lab of a stack and apply the stack in it, or bring a running lab to what the stack file says now.

    `keep` leaves the lab running when a later step fails. Raises LabError and FleetError.
    """
    if boot_seconds is not None and not 0 <= boot_seconds <= 3600:
        raise LabInputError(f"{boot_seconds} is no time for a boot\n    expected: seconds, from 0 to 3600")
    progress = Progress(quiet=json.replaces_text)
    configured, _ = load(root, name), charts.real_folder()  # a mistake in them should not cost the time of a start
    try:
        lab, started = servers.up(state.folder(name), first_port=first_port, progress=progress)
    except KeyboardInterrupt:
        up = state.inv("up", state.folder(name))
        raise Interrupted(f"interrupted; what had started of the lab was ended: {up} starts it") from None
    try:
        applied, skipped = _apply_stack(lab, configured, root, boot_seconds, progress)
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
    timing = {"started": started, "seconds": progress.seconds, "total": progress.total}
    json.write({**document(lab), **timing, "applied": applied, "skipped": skipped})
    if json.replaces_text:
        return
    for sentence in skipped:
        progress.say(textwrap.indent(sentence, " " * 11))
    progress.say(f"{progress.total:7.1f} s  {'up' if started else 'it was up already'}")
    sys.stdout.write(f"export KUBECONFIG={lab.kubeconfig}\n")


def _apply_stack(
    lab: Lab, configured: Stack, root: Path, boot_seconds: float | None, progress: Progress
) -> tuple[dict[str, Any] | None, list[str]]:
    """Start nodes, GitHub, the stack and ARC; return the applied stack, and a sentence for each missing part."""
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
    outcome = stack.apply(lab, configured, root=root, graph=graph, github=url, progress=progress)
    skipped = []
    if not outcome.objects:
        skipped.append(f"no job can run: {NO_PROVIDER}, then {state.inv('up', lab.folder)}")
    real = all(chart.real for chart in outcome.charts if "runner-scale-set" in chart.name)
    absent = arc_programs.unavailable_reason() or ("" if real else "its charts are not in PADDOCK_LAB_CHARTS")
    with progress.step("stand-in for ARC" if absent else "ARC"):
        (arc if absent else arc_programs).start(lab, url)
    if absent:
        skipped.append(f"a stand-in takes ARC's place: {absent} (docs/lab.md)")
    changed = sorted({operation for operations in outcome.result.changes.values() for operation in operations})
    applied = {
        "resources": outcome.resources,
        "changes": {
            operation: sum(operation in operations for operations in outcome.result.changes.values())
            for operation in changed
        },
        "seconds": round(outcome.result.seconds, 2),
        "objects": outcome.objects,
        "charts": [{"name": chart.name, "version": chart.version, "real": chart.real} for chart in outcome.charts],
    }
    return applied, skipped


def _next_steps(lab: Lab, started: bool, keep: bool) -> str:
    state_text = "it runs on" if keep or not started else "it was ended, its state is kept (--keep leaves it running)"
    up, down = state.inv("up", lab.folder), state.inv("down", lab.folder)
    return f"    the lab: {state_text}; {up} goes on from here, {down} forgets it"


@json_errors
def status(name: str, *, json: JsonOutput = NO_JSON) -> bool:
    """Show programs, nodes and jobs; return whether every process of the lab is running."""
    lab = servers.status(state.folder(name))
    json.write(document(lab))
    if not json.replaces_text and lab.exists:
        show(lab)
    elif not json.replaces_text:
        sys.stdout.write(f"no lab of {name}; {state.inv('up', lab.folder)} starts one\n")
    return lab.up and not lab.ended


@json_errors
def show_demo(
    root: Path, name: str, *, runner: str = "", job_seconds: float = demo.JOB_SECONDS, json: JsonOutput = NO_JSON
) -> bool:
    """Run one GPU job through the lab; return whether it completed every step. Raises LabError and FleetError."""
    configured = load(root, name)
    lab = servers.status(state.folder(name))
    try:
        story = demo.demo(
            lab, configured, job_seconds=job_seconds, out=None if json.replaces_text else sys.stdout, runner=runner
        )
    except KeyboardInterrupt:
        look = state.inv("status", lab.folder)
        raise Interrupted(f"interrupted; its job was cancelled and the lab runs on: {look} shows it") from None
    json.write(story.document())
    return story.ok


@json_errors
def down(name: str, *, keep: bool = False, json: JsonOutput = NO_JSON) -> None:
    """End the lab. Raises LabInputError while another command applies its stack."""
    started, folder = time.monotonic(), state.folder(name)
    with state.exclusive_command(folder):
        ended = servers.down(folder, keep=keep)
    seconds = round(time.monotonic() - started, 2)
    json.write({"ended": list(ended), "seconds": seconds})
    if not json.replaces_text:
        message = f"ended {len(ended)} processes in {seconds:.1f} s" if ended else f"nothing of a lab of {name} runs"
        sys.stdout.write(f"{message}{'; its objects are kept' if keep else ''}\n")
