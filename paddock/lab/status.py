"""What runs where in a lab: for people, and as JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import inv
from paddock.lab.errors import LabError
from paddock.lab.kube.client import Api
from paddock.lab.simulators import nodes, timeline
from paddock.lab.simulators.timeline import Life


def document(lab: Lab) -> dict[str, Any]:
    """The lab as JSON. `jobs` is null where nobody could be asked."""
    lives = _lives(lab)
    return {
        "up": lab.up,
        "folder": str(lab.folder),
        "kubeconfig": str(lab.kubeconfig),
        "server": lab.server if lab.ports else "",
        "ports": dict(lab.ports),
        "processes": {name: process.pid for name, process in lab.running.items()},
        "ended": list(lab.ended),
        **_cluster(lab),
        "jobs": None if lives is None else timeline.document(lives),
    }


def show(lab: Lab) -> None:
    """Programs, nodes with their pods, and jobs with where they are in their lives."""
    from paddock.terminal import console

    out = console()
    head = "not whole" if lab.running and lab.ended else "up" if lab.up else "down"
    out.print(f"{head}   {lab.server}   {lab.folder}", soft_wrap=True)
    programs = [
        (name, str(lab.running[name].pid) if name in lab.running else "gone", str(lab.ports.get(name, "")))
        for name in (*lab.running, *lab.ended)
    ]
    out.print(_table(("program", "process", "port"), programs, right={"process", "port"}))
    if lab.ended:
        up, down = inv("up", lab.folder), inv("down", lab.folder)
        out.print(f"fix: {up} starts what is gone; {down} ends the rest", soft_wrap=True)
    columns = ("name", "pool", "capacity", "instance", "gpus", "gpus_used")
    cluster = _cluster(lab)
    if found := cluster["nodes"]:
        heads = ("node", "pool", "capacity", "instance", "GPUs", "in use")
        rows = [tuple(str(node[key]) for key in columns) for node in found]
        out.print()
        out.print(_table(heads, rows, right={"GPUs", "in use"}))
        # Below the table: beside it their names, which are long, would be cut off.
        for node in found:
            if node["pods"]:
                out.print("\n    ".join((f"\npods on {node['name']}", *node["pods"])), soft_wrap=True, markup=False)
    if waiting := cluster["waiting"]:
        told = (f"{each['pod']}: {each['why']}" for each in waiting)
        out.print("\n    ".join(("\npods that wait for a node", *told)), soft_wrap=True, markup=False)
    if cluster["unknown"]:
        out.print(f"\nnodes, pods and jobs are unknown: {cluster['unknown']}", soft_wrap=True, markup=False)
        return
    if lives := _lives(lab):
        out.print()
        out.print(_table(("job", "runs-on", "state", "since push", "node", "waits for"), list(map(_job, lives))))


def _job(life: Life) -> tuple[str, ...]:
    reached = [step.name for step in life.steps if step.at is not None]
    seconds = life.seconds(reached[-1]) if reached else None
    since = "" if seconds is None else f"{reached[-1]} at {seconds:.1f} s"
    return (str(life.job), ", ".join(life.labels), life.result or life.state, since, life.node, life.why)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _cluster(lab: Lab) -> dict[str, Any]:
    """Nodes, and pods that find none; `unknown` says why nothing is known of them."""
    found: dict[str, Any] = {"nodes": [], "waiting": [], "unknown": ""}
    if not lab.up:
        return found
    try:
        with Api.of(lab.kubeconfig, timeout=10) as api:
            return {**found, "nodes": nodes.overview(api), "waiting": nodes.waiting(api)}
    except LabError as error:
        return {**found, "unknown": str(error)}


def _lives(lab: Lab) -> tuple[Life, ...] | None:
    if not lab.up:
        return None
    try:
        return timeline.lives(lab)
    except LabError:
        return None
