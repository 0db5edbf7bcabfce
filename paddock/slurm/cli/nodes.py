"""Nodes on the console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.slurm.cli.job_parameters import Nodes
from paddock.slurm.cli.table import table
from paddock.slurm.programs.nodes import Node, read_nodes
from paddock.slurm.programs.place import find
from paddock.slurm.submit.gpu_memory import gpu_memories
from paddock.terminal import JsonOutput, json_errors

_HEAD = ("node", "state", "CPUs", "memory MiB", "GPUs", "shards", "reason")


def nodes(flags: Mapping[str, Any]) -> int:
    """Show the nodes; the exit code is 1 where none may take jobs. Raises SlurmError."""
    parameters = Nodes.from_flags(flags)
    return _nodes(parameters, json=JsonOutput.parse(parameters.json))


@json_errors
def _nodes(parameters: Nodes, *, json: JsonOutput) -> int:
    place = find(parameters.prefix)
    present = read_nodes(place)
    json.write({"schema": 1, "slurm": place.name, "nodes": [_document(node) for node in present]})
    if not json.replaces_text:
        rows = (
            (
                node.name,
                node.state.lower().replace("+", ", ").replace("_", " "),
                f"{node.cpus_used} of {node.cpus}",
                f"{node.memory_used} of {node.memory}",
                _counts(node.gpus, node.gpus_used),
                _counts(node.shards, node.shards_used),
                node.reason,
            )
            for node in present
        )
        table(_HEAD, rows, "Slurm has no nodes")
    return 0 if any(node.usable for node in present) else 1


def _counts(have: Mapping[str, int], used: Mapping[str, int]) -> str:
    return ", ".join(f"{used.get(kind, 0)} of {count} {kind}".rstrip() for kind, count in have.items()) or "none"


def _document(node: Node) -> dict[str, Any]:
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
