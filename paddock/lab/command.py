"""What `inv lab.*` does, without Invoke."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from paddock.fleet import load
from paddock.lab import control_plane, nodes, state
from paddock.lab.api import Api, Unreachable
from paddock.lab.control_plane import Lab
from paddock.lab.errors import LabInputError
from paddock.lab.progress import Progress


def up(
    root: Path,
    stack: str,
    *,
    first_port: int | None = None,
    boot_seconds: float | None = nodes.BOOT_SECONDS,
    as_json: bool = False,
) -> None:
    """Starts the lab of a stack. Raises LabError and FleetError."""
    if boot_seconds is not None and not 0 <= boot_seconds <= 3600:
        raise LabInputError(f"{boot_seconds} is no time for a boot\n    expected: seconds, from 0 to 3600")
    progress = Progress(quiet=as_json)
    read = load(root, stack)  # a mistake in the stack should not cost the time of a start
    lab, started = control_plane.up(state.folder(stack), first_port=first_port, progress=progress)
    try:
        with progress.step("nodes and autoscaler"):
            nodes.bring(lab, read, boot_seconds=boot_seconds)
    except BaseException:
        if started:
            control_plane.down(lab.folder, keep=True)
        raise
    lab = control_plane.status(lab.folder)
    if as_json:
        _print({**document(lab), "started": started, "seconds": progress.seconds, "total": progress.total})
        return
    progress.say(f"{progress.total:7.1f} s  {'up' if started else 'it was up already'}")
    sys.stdout.write(f"export KUBECONFIG={lab.kubeconfig}\n")


def status(stack: str, *, as_json: bool = False) -> bool:
    """Shows what runs where, and returns whether the lab is up."""
    lab = control_plane.status(state.folder(stack))
    if as_json:
        _print(document(lab))
    elif not lab.known:
        sys.stdout.write(f"no lab of {stack}; `./inv lab.up` starts one\n")
    else:
        _show(lab)
    return lab.up


def down(stack: str, *, keep: bool = False, as_json: bool = False) -> None:
    """Ends the lab."""
    began = time.monotonic()
    ended = control_plane.down(state.folder(stack), keep=keep)
    seconds = round(time.monotonic() - began, 2)
    if as_json:
        _print({"ended": list(ended), "seconds": seconds})
    else:
        said = f"ended {len(ended)} processes in {seconds:.1f} s" if ended else f"nothing of a lab of {stack} runs"
        sys.stdout.write(f"{said}{'; its objects are kept' if keep else ''}\n")


def document(lab: Lab) -> dict[str, Any]:
    """The lab as JSON."""
    return {
        "up": lab.up,
        "folder": str(lab.folder),
        "kubeconfig": str(lab.kubeconfig),
        "server": lab.server if lab.ports else "",
        "ports": dict(lab.ports),
        "processes": {name: process.pid for name, process in lab.running.items()},
        "ended": list(lab.ended),
        "nodes": _nodes(lab),
    }


def _nodes(lab: Lab) -> list[dict[str, Any]]:
    if not lab.up:
        return []
    try:
        with Api.of(lab.kubeconfig) as api:
            return nodes.overview(api)
    except Unreachable:
        return []


def _show(lab: Lab) -> None:
    from rich.table import Table

    from paddock.terminal import console

    out = console()
    head = "up" if lab.up else "not whole" if lab.running else "down"
    out.print(f"{head}   {lab.server}   {lab.folder}", soft_wrap=True)
    programs = Table(box=None, pad_edge=False)
    for column in ("program", "process", "port"):
        programs.add_column(column, justify="left" if column == "program" else "right")
    for name in (*lab.running, *lab.ended):
        process = str(lab.running[name].pid) if name in lab.running else "gone"
        programs.add_row(name, process, str(lab.ports.get(name, "")))
    out.print(programs)
    if lab.ended:
        out.print("fix: ./inv lab.up starts what is gone; ./inv lab.down ends the rest")
    if found := _nodes(lab):
        table = Table(box=None, pad_edge=False)
        for column in ("node", "pool", "capacity", "instance", "GPUs", "in use", "pods"):
            table.add_column(column, justify="right" if column in ("GPUs", "in use") else "left")
        for node in found:
            row = (node[key] for key in ("name", "pool", "capacity", "instance", "gpus", "gpus_used"))
            table.add_row(*map(str, row), ", ".join(node["pods"]))
        out.print()
        out.print(table)


def _print(told: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(told, indent=2)}\n")
