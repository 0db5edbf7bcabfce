"""`slurm.test` on the console."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from paddock.errors import Interrupted
from paddock.slurm.cli.job_parameters import Test
from paddock.slurm.cli.table import say
from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.programs.nodes import Node, read_nodes
from paddock.slurm.programs.place import find
from paddock.slurm.submit.gpu_jobs import Check, check
from paddock.terminal import JsonOutput, json_errors

_LONGEST = 3600
_WORDS = {True: "ok", False: "failed", None: "unknown"}


def test(flags: Mapping[str, Any]) -> int:
    """Run a job on every GPU and one without, and return 1 where a job fails or none could run. Raises SlurmError."""
    parameters = Test.from_flags(flags)
    return _test(parameters, json=JsonOutput.parse(parameters.json))


@json_errors
def _test(parameters: Test, *, json: JsonOutput) -> int:
    if not 1 <= parameters.seconds <= _LONGEST:
        raise SlurmInputError(f"--wait: {parameters.seconds:g} s makes no sense\n    expected: 1s to 1h")
    place = find(parameters.prefix)
    nodes = _chosen(read_nodes(place), parameters.node)
    try:
        results = check(place, nodes, parameters.seconds, (lambda _: None) if json.replaces_text else _show)
    except KeyboardInterrupt:
        raise Interrupted("interrupted; the jobs of the test were ended, and nothing of it stays") from None
    verdict = _verdict(results)
    json.write(
        {"schema": 1, "slurm": place.name, "verdict": verdict, "jobs": [_document(result) for result in results]}
    )
    if not json.replaces_text:
        counts = {word: sum(_WORDS[result.passed] == word for result in results) for word in _WORDS.values()}
        say(", ".join(f"{count} {word}" for word, count in counts.items() if count))
    return 0 if verdict == "ok" else 1


def _chosen(nodes: Sequence[Node], names: Sequence[str]) -> list[Node]:
    if not nodes:
        raise SlurmError("Slurm has no nodes\n    fix: start slurmd; `sinfo` then shows its node")
    present = {node.name: node for node in nodes}
    if unknown := [name for name in names if name not in present]:
        raise SlurmInputError(f"--node: there is no node {unknown[0]}\n    expected: one of {', '.join(present)}")
    return [present[name] for name in names] if names else list(nodes)


def _verdict(results: Sequence[Check]) -> str:
    states = {result.passed for result in results}
    return "failed" if False in states else "ok" if True in states and None not in states else "unknown"


def _show(result: Check) -> None:
    kind = f"{result.count} GPU" if result.gpu == "gpu" else f"{result.count} {result.gpu}" if result.gpu else "no GPU"
    seen = result.seen
    about = ""
    if seen:
        parts = [f"job {seen.job}"]
        parts += [f"GPU {','.join(seen.numbers)}"] if seen.numbers else []
        parts += [*seen.files, *(seen.uuids or ())] if result.gpu else []
        about = ", ".join(parts)
    words = "; ".join((*([about] if about else []), *result.problems, *result.notes))
    say(f"{_WORDS[result.passed]:<8} {result.node}  {kind}  {words}")


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
