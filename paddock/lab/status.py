"""State of a lab, for people and as JSON."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.console.report import Report
from paddock.console.table import table
from paddock.kubernetes.errors import KubernetesError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import inv
from paddock.lab.errors import LabError
from paddock.lab.simulators import nodes, timeline


def document(lab: Lab) -> dict[str, Any]:
    """Return the lab as JSON. `jobs` is null where they could not be read."""
    return {
        "up": lab.up,
        "folder": str(lab.folder),
        "kubeconfig": str(lab.kubeconfig),
        "server": lab.server if lab.ports else "",
        "ports": dict(lab.ports),
        "processes": {name: process.pid for name, process in lab.running.items()},
        "ended": list(lab.ended),
        **_cluster(lab),
    }


@dataclass(frozen=True, kw_only=True)
class LabState(Report):
    """Programs, nodes with their pods, and how far jobs are."""

    SCHEMA = "paddock.lab/1"
    name: str
    exists: bool
    whole: bool
    """Whether every program runs."""
    state: dict[str, Any]
    """What `document` returns."""

    @classmethod
    def of(cls, name: str, lab: Lab) -> LabState:
        return cls(name=name, exists=lab.exists, whole=lab.up and not lab.ended, state=document(lab))

    @property
    def exit_code(self) -> int:
        return 0 if self.whole else 1

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, **self.state}

    def text(self) -> Iterator[str]:
        state, folder = self.state, Path(self.state["folder"])
        if not self.exists:
            yield f"no lab of {self.name}; {inv('up', folder)} starts one"
            return
        head = "not whole" if state["processes"] and state["ended"] else "up" if state["up"] else "down"
        yield f"{head}   {state['server']}   {folder}"
        programs = [
            (name, str(state["processes"].get(name, "gone")), str(state["ports"].get(name, "")))
            for name in (*state["processes"], *state["ended"])
        ]
        yield from table(("program", "process", "port"), programs, right=("process", "port"))
        if state["ended"]:
            yield f"fix: {inv('up', folder)} starts what has ended; {inv('down', folder)} ends the rest"
        if state["nodes"]:
            yield ""
            keys = ("name", "pool", "capacity", "instance", "gpus", "gpus_used")
            heads = ("node", "pool", "capacity", "instance", "GPUs", "in use")
            rows = [tuple(str(node[key]) for key in keys) for node in state["nodes"]]
            yield from table(heads, rows, right=("GPUs", "in use"), drop=("capacity", "instance", "pool"))
            for node in state["nodes"]:
                yield from (
                    (f"\npods on {node['name']}", *(f"    {pod}" for pod in node["pods"])) if node["pods"] else ()
                )
        if state["waiting"]:
            yield from (
                "",
                "pods that wait for a node",
                *(f"    {pod['pod']}: {pod['why']}" for pod in state["waiting"]),
            )
        if state["unknown"]:
            yield from ("", f"nodes, pods and jobs are unknown: {state['unknown']}")
        elif state["jobs"]:
            yield ""
            heads = ("job", "runs-on", "state", "since push", "node", "waits for")
            yield from table(heads, [_job_row(job) for job in state["jobs"]], drop=("runs-on", "node", "since push"))


def _job_row(job: Mapping[str, Any]) -> tuple[str, ...]:
    reached = [step for step in job["steps"] if step["seconds"] is not None]
    since = f"{reached[-1]['step']} at {reached[-1]['seconds']:.1f} s" if reached else ""
    labels = ", ".join(job["labels"])
    return (str(job["job"]), labels, job["result"] or job["state"], since, job["node"], job["waits_for"])


def _cluster(lab: Lab) -> dict[str, Any]:
    """Return nodes, unschedulable pods and jobs; `unknown` says why nodes could not be read."""
    document: dict[str, Any] = {"nodes": [], "waiting": [], "unknown": "", "jobs": None}
    if lab.up:
        try:
            with lab_api(lab.kubeconfig, timeout=10) as api:
                document |= {"nodes": nodes.overview(api), "waiting": nodes.waiting(api)}
        except (LabError, KubernetesError) as error:
            document["unknown"] = str(error)
        with contextlib.suppress(LabError, KubernetesError):
            document["jobs"] = [job.document() for job in timeline.job_timelines(lab)]
    return document
