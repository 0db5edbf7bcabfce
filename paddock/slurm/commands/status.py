"""`slurm.status`: the queue, how jobs ended, or the nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.output import BadFlag
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report
from paddock.console.table import table
from paddock.slurm.commands.jobs import document, job_id, log_path, prefix
from paddock.slurm.programs import jobs
from paddock.slurm.programs.jobs import SlurmJob
from paddock.slurm.programs.nodes import Node, read_nodes
from paddock.slurm.programs.place import Place, find
from paddock.slurm.submit.gpu_memory import gpu_memories


@dataclass(frozen=True, kw_only=True)
class Status(Parameters):
    """Parameters of `slurm.status`."""

    job: tuple[str, ...] = parameter((), "these jobs alone, by number")
    last: int = parameter(10, "ended jobs to show", ge=0)
    nodes: bool = parameter(False, "the nodes: state, and CPUs, memory and GPUs in use; exit code 1 if no job can run")
    prefix: str = prefix()


@dataclass(frozen=True, kw_only=True)
class Jobs(Report):
    """Jobs in the queue, and those that ended."""

    SCHEMA = 1
    place: Place
    queue: Sequence[SlurmJob]
    ended: Sequence[SlurmJob]

    def text(self) -> Iterator[str]:
        if self.queue:
            rows = [(job.id, job.name, job.user, job.gpus, job.started or "", _state(job)) for job in self.queue]
            yield from table(("job", "name", "user", "GPUs", "started", "state"), rows)
        elif not self.ended:
            yield "the queue is empty"
        if self.ended:
            yield from [""] if self.queue else []
            results = [
                (job.id, job.name, job.words, _seconds(job), log_path(self.place, job.log)) for job in self.ended
            ]
            yield from table(("job", "name", "result", "ran", "log"), results, drop=("ran", "name"))

    def document(self) -> dict[str, Any]:
        shown = [document(self.place, job) for job in [*self.queue, *self.ended]]
        return {"schema": self.SCHEMA, "slurm": self.place.name, "jobs": shown}


@dataclass(frozen=True, kw_only=True)
class Nodes(Report):
    """Nodes, with what their jobs use."""

    SCHEMA = 1
    slurm: str
    nodes: Sequence[Node]

    def text(self) -> Iterator[str]:
        if not self.nodes:
            yield "Slurm has no nodes"
            return
        rows = [
            (
                node.name,
                node.state.lower().replace("+", ", ").replace("_", " "),
                f"{node.cpus_used} of {node.cpus}",
                f"{node.memory_used} of {node.memory}",
                _counts(node.gpus, node.gpus_used),
                _counts(node.shards, node.shards_used),
                node.reason,
            )
            for node in self.nodes
        ]
        yield from table(("node", "state", "CPUs", "memory MiB", "GPUs", "shards", "reason"), rows)

    @property
    def exit_code(self) -> int:
        return 0 if any(node.usable for node in self.nodes) else 1

    def document(self) -> dict[str, Any]:
        return {"schema": self.SCHEMA, "slurm": self.slurm, "nodes": [_node(node) for node in self.nodes]}


@command()
def status(parameters: Status) -> Jobs | Nodes:
    """Read the queue and the ended jobs, or the nodes. Raises SlurmError, SlurmInputError and BadFlag."""
    if parameters.nodes and parameters.job:
        raise BadFlag("--nodes with --job\n    expected: one of them\n    fix: leave one of them out")
    place = find(parameters.prefix)
    if parameters.nodes:
        return Nodes(slurm=place.name, nodes=read_nodes(place))
    ids = [job_id(word) for word in parameters.job]
    shown = jobs.find(place, ids) if ids else jobs.every(place)
    ended = sorted((job for job in shown if job.final), key=lambda job: job.ended or "")
    ended = ended if ids else ended[max(0, len(ended) - parameters.last) :]
    return Jobs(place=place, queue=[job for job in shown if not job.final], ended=jobs.explained(place, ended))


def _state(job: SlurmJob) -> str:
    return f"runs on {job.nodes}" if job.state == "RUNNING" else job.words


def _seconds(job: SlurmJob) -> str:
    return "" if job.seconds is None else f"{job.seconds:g} s"


def _counts(have: Mapping[str, int], used: Mapping[str, int]) -> str:
    return ", ".join(f"{used.get(kind, 0)} of {count} {kind}".rstrip() for kind, count in have.items()) or "none"


def _node(node: Node) -> dict[str, Any]:
    memories = gpu_memories([node])
    return {
        "name": node.name,
        "state": node.state,
        "usable": node.usable,
        "reason": node.reason or None,
        "cpus": {"total": node.cpus, "used": node.cpus_used},
        "memory_mib": {"total": node.memory, "used": node.memory_used},
        "gpus": [
            {
                "type": kind or None,
                "total": count,
                "used": node.gpus_used.get(kind, 0),
                "memory_mib": memory[0] if (memory := memories.get(kind)) else None,
            }
            for kind, count in node.gpus.items()
        ],
        "shards": {"total": sum(node.shards.values()), "used": sum(node.shards_used.values())},
        "partitions": list(node.partitions),
    }
