"""What `inv lab.*` does, without Invoke."""

from __future__ import annotations

import functools
import json
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from paddock.fleet import Stack, load
from paddock.lab import demo, github
from paddock.lab import status as screen
from paddock.lab.control_plane import servers, state
from paddock.lab.control_plane.servers import Lab
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.progress import Progress
from paddock.lab.simulators import arc, arc_programs, nodes
from paddock.lab.stack import charts, stack
from paddock.lab.stack.engine import NO_PROVIDER, Programs
from paddock.lab.status import document
from paddock.plan.engine.program import plan_graph

_Given = ParamSpec("_Given")
_Back = TypeVar("_Back")


def _told(command: Callable[_Given, _Back]) -> Callable[_Given, _Back]:
    """With `as_json` what fails is JSON too: `{"error": ...}`, beside the sentence that a user reads."""

    @functools.wraps(command)
    def run(*given: _Given.args, **named: _Given.kwargs) -> _Back:
        try:
            return command(*given, **named)
        except Exception as error:
            if named.get("as_json") and not isinstance(error, OSError):
                _print({"error": str(error)})
            raise

    return run


@_told
def up(
    root: Path,
    name: str,
    *,
    first_port: int | None = None,
    boot_seconds: float | None = nodes.BOOT_SECONDS,
    keep: bool = False,
    as_json: bool = False,
) -> None:
    """Starts the lab of a stack and applies the stack in it; what is there already is brought to what the file says.

    `keep` leaves what runs running when a later part fails. Raises LabError and FleetError.
    """
    if boot_seconds is not None and not 0 <= boot_seconds <= 3600:
        raise LabInputError(f"{boot_seconds} is no time for a boot\n    expected: seconds, from 0 to 3600")
    progress = Progress(quiet=as_json)
    read, _ = load(root, name), charts.real_folder()  # a mistake in them should not cost the time of a start
    lab, started = servers.up(state.folder(name), first_port=first_port, progress=progress)
    try:
        applied, skipped = _fill(lab, read, root, boot_seconds, progress)
    except BaseException as error:
        if started and not keep:
            servers.down(lab.folder, keep=True)
        way_on = _way_on(lab, started, keep)
        if isinstance(error, LabError):
            again = LabInputError if isinstance(error, LabInputError) else LabError
            raise again(f"{error}\n{way_on}") from error
        progress.say(way_on)
        raise
    lab = servers.status(lab.folder)
    if as_json:
        timing = {"started": started, "seconds": progress.seconds, "total": progress.total}
        _print({**document(lab), **timing, "applied": applied, "skipped": skipped})
        return
    for sentence in skipped:
        progress.say(textwrap.indent(sentence, " " * 11))
    progress.say(f"{progress.total:7.1f} s  {'up' if started else 'it was up already'}")
    sys.stdout.write(f"export KUBECONFIG={lab.kubeconfig}\n")


def _fill(
    lab: Lab, read: Stack, root: Path, boot_seconds: float | None, progress: Progress
) -> tuple[dict[str, Any] | None, list[str]]:
    """Nodes, GitHub, the stack and ARC. Returns what was applied, and a sentence for each part that is not there."""
    with progress.step("plan"):
        graph = plan_graph(read)
    with progress.step("nodes and autoscaler"):
        nodes.bring(lab, read, boot_seconds=boot_seconds)
    try:
        Programs.find()
    except LabInputError as error:
        return None, [f"the stack is not applied, so no job can run: {error}, then {state.inv('up', lab.folder)}"]
    with progress.step("stand-in for GitHub"):
        url = github.start(lab)
    outcome = stack.applied(lab, read, root=root, graph=graph, github=url, progress=progress)
    skipped = []
    if not outcome.objects:
        skipped.append(f"no job can run: {NO_PROVIDER}, then {state.inv('up', lab.folder)}")
    real = all(chart.real for chart in outcome.charts if "runner-scale-set" in chart.name)
    absent = arc_programs.absent() or ("" if real else "its charts are not in PADDOCK_LAB_CHARTS")
    with progress.step("stand-in for ARC" if absent else "ARC"):
        (arc if absent else arc_programs).start(lab, url)
    if absent:
        skipped.append(f"a stand-in takes ARC's place: {absent} (docs/lab.md)")
    changed = sorted({each for operations in outcome.result.changes.values() for each in operations})
    applied = {
        "resources": outcome.resources,
        "changes": {each: sum(each in made for made in outcome.result.changes.values()) for each in changed},
        "seconds": round(outcome.result.seconds, 2),
        "objects": outcome.objects,
        "charts": [{"name": each.name, "version": each.version, "real": each.real} for each in outcome.charts],
    }
    return applied, skipped


def _way_on(lab: Lab, started: bool, keep: bool) -> str:
    kept = "it runs on" if keep or not started else "it was ended, its state is kept (--keep leaves it running)"
    up, down = state.inv("up", lab.folder), state.inv("down", lab.folder)
    return f"    the lab: {kept}; {up} goes on from here, {down} forgets it"


@_told
def status(name: str, *, as_json: bool = False) -> bool:
    """Shows what runs where, and returns whether the lab is up and whole."""
    lab = servers.status(state.folder(name))
    if as_json:
        _print(document(lab))
    elif not lab.known:
        sys.stdout.write(f"no lab of {name}; {state.inv('up', lab.folder)} starts one\n")
    else:
        screen.show(lab)
    return lab.up and not lab.ended


@_told
def show_demo(
    root: Path, name: str, *, runner: str = "", job_seconds: float = demo.JOB_SECONDS, as_json: bool = False
) -> bool:
    """Runs one GPU job through the lab, and returns whether all of it happened. Raises LabError and FleetError."""
    read = load(root, name)
    lab = servers.status(state.folder(name))
    story = demo.demo(lab, read, job_seconds=job_seconds, out=None if as_json else sys.stdout, runner=runner)
    if as_json:
        _print(story.document())
    return story.ok


@_told
def down(name: str, *, keep: bool = False, as_json: bool = False) -> None:
    """Ends the lab. Raises LabInputError while another command applies its stack."""
    began, folder = time.monotonic(), state.folder(name)
    with state.alone(folder):
        ended = servers.down(folder, keep=keep)
    seconds = round(time.monotonic() - began, 2)
    if as_json:
        _print({"ended": list(ended), "seconds": seconds})
    else:
        said = f"ended {len(ended)} processes in {seconds:.1f} s" if ended else f"nothing of a lab of {name} runs"
        sys.stdout.write(f"{said}{'; its objects are kept' if keep else ''}\n")


def _print(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told, indent=2)}\n")
