"""Nodes as `scontrol show node` describes them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from paddock.slurm.errors import SlurmError
from paddock.slurm.programs.place import Place
from paddock.slurm.programs.text import entries, fields

_GRES = re.compile(r"(gpu|shard)(?::([^:()]+(?=:)))?(?::(\d+))?(?:\(.*\))?")


@dataclass(frozen=True, slots=True)
class Node:
    """Node of the cluster. Memory is in MiB; GPUs and shards are counted by type."""

    name: str
    state: str
    cpus: int
    cpus_used: int
    threads_per_core: int
    memory: int
    memory_used: int
    gpus: Mapping[str, int]
    gpus_used: Mapping[str, int]
    shards: Mapping[str, int]
    shards_used: Mapping[str, int]
    features: tuple[str, ...]
    partitions: tuple[str, ...]
    reason: str

    @property
    def usable(self) -> bool:
        """Return True where new jobs may start, now or when others end."""
        return not set(self.state.lower().split("+")) & _UNUSABLE

    @property
    def gpu_count(self) -> int:
        return sum(self.gpus.values())


_UNUSABLE = {
    *("down", "drain", "drained", "draining", "fail", "failing", "inval", "invalid_reg", "not_responding", "future"),
    *("unknown", "error", "maint", "reboot_requested", "powering_down", "powered_down"),
}


def read_nodes(place: Place) -> list[Node]:
    """Return all nodes. Raises SlurmError."""
    return parse(place.read("scontrol", "-d", "-o", "show", "node"))


def parse(text: str) -> list[Node]:
    """Parse the lines of `scontrol -d -o show node`; others are left out. Raises SlurmError for a bad number."""
    return [_node(node) for line in text.splitlines() if "NodeName" in (node := fields(line))]


def _node(node: Mapping[str, str]) -> Node:
    def number(key: str) -> int:
        text = node.get(key, "0")
        try:
            return int(float(text)) if text not in ("N/A", "(null)", "") else 0
        except ValueError:
            raise SlurmError(f"scontrol says {key}={text} of a node\n    expected: a number") from None

    return Node(
        name=node["NodeName"],
        state=re.sub(r"[$~#!%@^-]", "", node.get("State", "UNKNOWN").replace("*", "+NOT_RESPONDING")),
        cpus=number("CPUEfctv") or number("CPUTot"),
        cpus_used=number("CPUAlloc"),
        threads_per_core=number("ThreadsPerCore") or 1,
        memory=number("RealMemory"),
        memory_used=number("AllocMem"),
        gpus=counted("gpu", entries(node.get("Gres", ""))),
        gpus_used=counted("gpu", entries(node.get("GresUsed", ""))),
        shards=counted("shard", entries(node.get("Gres", ""))),
        shards_used=counted("shard", entries(node.get("GresUsed", ""))),
        features=tuple(entries(node.get("ActiveFeatures", ""))),
        partitions=tuple(entries(node.get("Partitions", ""))),
        reason=re.sub(r"\s*\[.*\]$", "", node.get("Reason", "")),
    )


def counted(kind: str, resources: Iterable[str]) -> dict[str, int]:
    """Return the counts of `gpu` or `shard` by type; the type is empty where Slurm has none."""
    counts: Counter[str] = Counter()
    for resource in resources:
        match = _GRES.fullmatch(resource)
        if match and match[1] == kind:
            counts[match[2] or ""] += int(match[3] or 1)
    return dict(counts)


def node_gres(slurm_conf: str) -> str:
    """Return the value of `Gres=` of the node in slurm.conf; empty without."""
    match = re.search(r"^NodeName=.*?\bGres=(\S+)", slurm_conf, re.MULTILINE)
    return match[1] if match else ""


def gpu_count(gres: str) -> int:
    """Return the number of GPUs in a value of `Gres=`: 3 of `gpu:h100:2,gpu:1,shard:8`."""
    return sum(counted("gpu", entries(gres)).values())
