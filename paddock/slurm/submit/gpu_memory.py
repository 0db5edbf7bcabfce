"""Memory of the GPUs of nodes, by their type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from paddock.catalog.gpus import gpus as catalogue
from paddock.gpu.render.slurm.gres import MEMORY_FEATURE, detected_name
from paddock.slurm.programs.nodes import Node


def gpu_memories(nodes: Iterable[Node]) -> dict[str, tuple[int, int] | None]:
    """Return the least and most MiB that a GPU of each type of the nodes has; None for a type that nobody knows.

    A node's features say it where Paddock wrote them, else the catalogue does for the types it has.
    """
    memories: dict[str, list[int]] = defaultdict(list)
    for node in nodes:
        featured = {kind: int(mib) for kind, mib in map(_feature, node.features) if mib.isdecimal()}
        for kind in node.gpus:
            memories[kind] += [featured[kind]] if kind in featured else _catalogued(kind)
    return {kind: (min(values), max(values)) if values else None for kind, values in memories.items()}


def _feature(text: str) -> tuple[str, str]:
    kind, _, mib = text.removeprefix(f"{MEMORY_FEATURE}.").rpartition(".")
    return (kind, mib) if text.startswith(f"{MEMORY_FEATURE}.") else ("", "")


def _catalogued(kind: str) -> list[int]:
    """Return the memories of the catalogue's GPUs that Slurm would call so; it takes a part of the name."""
    products = [gpu for gpu in catalogue().values() if gpu.product and kind and kind in detected_name(gpu.product)]
    return [gpu.memory_mib for gpu in products]
