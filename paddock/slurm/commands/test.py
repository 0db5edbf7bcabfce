"""`slurm.test`: a job on every GPU, and one without."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from paddock.console.command import command
from paddock.console.output import say
from paddock.console.parameters import Parameters, parameter
from paddock.console.report import Report
from paddock.duration import Seconds
from paddock.errors import Interrupted
from paddock.slurm.commands.jobs import prefix
from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.programs.nodes import Node, read_nodes
from paddock.slurm.programs.place import find
from paddock.slurm.submit.gpu_jobs import Check, check

_LONGEST = 3600
_WORDS = {True: "ok", False: "failed", None: "unknown"}


@dataclass(frozen=True, kw_only=True)
class Tested(Parameters):
    """Parameters of `slurm.test`."""

    node: tuple[str, ...] = parameter((), "these nodes alone")
    seconds: float = parameter(60.0, "longest time that a job may wait for its start", flag="wait", unit=Seconds)
    prefix: str = prefix()


@dataclass(frozen=True, kw_only=True)
class Results(Report):
    """Results of the jobs; each was printed when it was there."""

    SCHEMA = 1
    slurm: str
    checks: Sequence[Check]

    @property
    def verdict(self) -> str:
        states = {result.passed for result in self.checks}
        return "failed" if False in states else "ok" if True in states and None not in states else "unknown"

    @property
    def exit_code(self) -> int:
        return 0 if self.verdict == "ok" else 1

    def text(self) -> Iterator[str]:
        counts = Counter(_WORDS[result.passed] for result in self.checks)
        yield ", ".join(f"{counts[word]} {word}" for word in _WORDS.values() if counts[word])

    def document(self) -> dict[str, Any]:
        jobs = [_document(result) for result in self.checks]
        return {"schema": self.SCHEMA, "slurm": self.slurm, "verdict": self.verdict, "jobs": jobs}


@command()
def test(parameters: Tested) -> Results:
    """Run a job on every GPU and one without. Raises SlurmError and SlurmInputError."""
    if not 1 <= parameters.seconds <= _LONGEST:
        raise SlurmInputError(f"--wait is {parameters.seconds:g} s\n    expected: 1s to 1h")
    place = find(parameters.prefix)
    nodes = _chosen(read_nodes(place), parameters.node)
    try:
        checks = check(place, nodes, parameters.seconds, lambda result: say(parameters.json, _line(result)))
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the jobs of the test were ended, and nothing of it stays") from None
    return Results(slurm=place.name, checks=checks)


def _chosen(nodes: Sequence[Node], names: Sequence[str]) -> list[Node]:
    if not nodes:
        raise SlurmError("Slurm has no nodes\n    fix: start slurmd; `sinfo` then shows its node")
    present = {node.name: node for node in nodes}
    if unknown := [name for name in names if name not in present]:
        raise SlurmInputError(f"--node: no node is called {unknown[0]}\n    expected: one of {', '.join(present)}")
    return [present[name] for name in names] if names else list(nodes)


def _line(result: Check) -> str:
    kind = f"{result.count} GPU" if result.gpu == "gpu" else f"{result.count} {result.gpu}" if result.gpu else "no GPU"
    seen = result.seen
    about = ""
    if seen:
        parts = [f"job {seen.job}"]
        parts += [f"GPU {','.join(seen.numbers)}"] if seen.numbers else []
        parts += [*seen.files, *(seen.uuids or ())] if result.gpu else []
        about = ", ".join(parts)
    words = "; ".join((*([about] if about else []), *result.problems, *result.notes))
    return f"{_WORDS[result.passed]:<8} {result.node}  {kind}  {words}"


def _document(result: Check) -> dict[str, Any]:
    seen = result.seen
    return {
        "node": result.node,
        "gpu": result.gpu or None,
        "count": result.count,
        "result": _WORDS[result.passed],
        "problems": list(result.problems),
        "notes": list(result.notes),
        "job": seen.job if seen else None,
        "numbers": list(seen.numbers) if seen else [],
        "visible": list(seen.visible) if seen else [],
        "devices": list(seen.files) if seen else [],
        "uuids": None if seen is None or seen.uuids is None else list(seen.uuids),
    }
