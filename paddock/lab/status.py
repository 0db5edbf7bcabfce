"""State of a lab, for people and as JSON."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from paddock.kube.client import Api
from paddock.kube.errors import KubernetesError
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import inv
from paddock.lab.errors import LabError
from paddock.lab.simulators import nodes, timeline
from paddock.lab.simulators.timeline import JobTimeline


def document(lab: Lab) -> dict[str, Any]:
    """Return the lab as JSON. `jobs` is null where they could not be read."""
    jobs = _job_timelines(lab)
    return {
        "up": lab.up,
        "folder": str(lab.folder),
        "kubeconfig": str(lab.kubeconfig),
        "server": lab.server if lab.ports else "",
        "ports": dict(lab.ports),
        "processes": {name: process.pid for name, process in lab.running.items()},
        "ended": list(lab.ended),
        **_cluster(lab),
        "jobs": None if jobs is None else timeline.document(jobs),
    }


def show(lab: Lab) -> None:
    """Print programs, nodes with their pods, and the progress of jobs."""
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
    if node_rows := cluster["nodes"]:
        heads = ("node", "pool", "capacity", "instance", "GPUs", "in use")
        rows = [tuple(str(node[key]) for key in columns) for node in node_rows]
        out.print()
        out.print(_table(heads, rows, right={"GPUs", "in use"}))
        # Below the table, whose cells would cut off their long names.
        for node in node_rows:
            if node["pods"]:
                out.print("\n    ".join((f"\npods on {node['name']}", *node["pods"])), soft_wrap=True, markup=False)
    if waiting := cluster["waiting"]:
        lines = (f"{pod['pod']}: {pod['why']}" for pod in waiting)
        out.print("\n    ".join(("\npods that wait for a node", *lines)), soft_wrap=True, markup=False)
    if cluster["unknown"]:
        out.print(f"\nnodes, pods and jobs are unknown: {cluster['unknown']}", soft_wrap=True, markup=False)
        return
    if jobs := _job_timelines(lab):
        out.print()
        out.print(_table(("job", "runs-on", "state", "since push", "node", "waits for"), list(map(_job_row, jobs))))


def _job_row(job: JobTimeline) -> tuple[str, ...]:
    reached = [step.name for step in job.steps if step.at is not None]
    seconds = job.seconds(reached[-1]) if reached else None
    since = "" if seconds is None else f"{reached[-1]} at {seconds:.1f} s"
    return (str(job.number), ", ".join(job.labels), job.result or job.state, since, job.node, job.why)


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
    """Return nodes and unschedulable pods; `unknown` says why they could not be read."""
    document: dict[str, Any] = {"nodes": [], "waiting": [], "unknown": ""}
    if not lab.up:
        return document
    try:
        with Api.of(lab.kubeconfig, timeout=10) as api:
            return {**document, "nodes": nodes.overview(api), "waiting": nodes.waiting(api)}
    except (LabError, KubernetesError) as error:
        return {**document, "unknown": str(error)}


def _job_timelines(lab: Lab) -> tuple[JobTimeline, ...] | None:
    if not lab.up:
        return None
    try:
        return timeline.job_timelines(lab)
    except (LabError, KubernetesError):
        return None
