"""Resources of a job as options of sbatch, checked against what the nodes have."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from paddock.errors import Problem, did_you_mean
from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs.nodes import Node
from paddock.slurm.submit.gpu_memory import gpu_memories
from paddock.slurm.submit.method import Resources, minutes_of


@dataclass(frozen=True, slots=True)
class Options:
    """Options of sbatch. `notes` say what was decided for the user."""

    words: tuple[str, ...]
    notes: tuple[str, ...] = ()


def options(resources: Resources, nodes: Sequence[Node], file: str) -> Options:
    """Return the options for these resources. Raises SlurmInputError where no node has them."""
    notes: list[str] = []
    kinds = _gpu_types(resources, nodes, file, notes)
    _check(resources, kinds, nodes, file)
    words = [f"--cpus-per-task={resources.cpus}"]
    if resources.min_memory_mb:
        words.append(f"--mem={resources.min_memory_mb}M")
    if resources.shared:
        # Slurm's shards have no type, so that the job has to keep away from the nodes with GPUs of another.
        others = [node.name for node in nodes if node.shards and not _only(node, kinds)]
        words += [f"--gres=shard:{resources.shared}", *([f"--exclude={','.join(others)}"] if others else [])]
    elif resources.gpus:
        words.append(f"--gres={':'.join(['gpu', *kinds, str(resources.gpus)])}")
    if resources.time:
        words.append(f"--time={minutes_of(resources.time)}")
    return Options(tuple(words), tuple(notes))


def _only(node: Node, kinds: Collection[str]) -> bool:
    """Return True where all GPUs of a node are of these types; no types are any."""
    return not kinds or {kind for kind, count in node.gpus.items() if count} <= {*kinds}


def _gpu_types(resources: Resources, nodes: Sequence[Node], file: str, notes: list[str]) -> list[str]:
    """Return the type to ask for, empty for any; for a shard all types that have what it needs."""
    kinds = sorted({kind for node in nodes for kind in node.gpus if kind})
    chosen = []
    if resources.gpu_type:
        chosen = [_named(resources.gpu_type, kinds, file)]
        if chosen != [resources.gpu_type]:
            notes.append(f"gpu_type {resources.gpu_type} is {chosen[0]} here")
    if not resources.gpu_memory_mb:
        return chosen
    least, key = resources.gpu_memory_mb, ("resources", "gpu_memory_mb")
    memories = {kind: memory for kind, memory in gpu_memories(nodes).items() if not chosen or kind in chosen}
    enough = sorted((memory[0], kind) for kind, memory in memories.items() if memory and memory[0] >= least)
    unknown = [kind or "without a type" for kind, memory in memories.items() if _uncertain(memory, least)]
    doubt = f"; the memory of {', '.join(unknown)} is not known" if unknown else ""
    if not enough:
        largest = max((memory[1] for memory in memories.values() if memory), default=0)
        expected = f"at most {largest}" if largest else "a cluster with GPUs whose memory is known"
        raise _refused(key, f"no GPU here is known to have {least} MiB{doubt}", expected, file)
    if len(enough) == len(memories):
        return chosen
    if resources.shared:
        notes.append(f"gpu_memory_mb {least} takes {' or '.join(kind for _, kind in enough)}{doubt}")
        return [kind for _, kind in enough]
    usable = [kind for _, kind in enough if any(node.gpus.get(kind, 0) >= (resources.gpus or 1) for node in nodes)]
    kind = (usable or [enough[0][1]])[0]
    mib = next(mib for mib, name in enough if name == kind)
    notes.append(f"gpu_memory_mb {least} takes {kind} ({mib} MiB){doubt}")
    return [kind]


def _uncertain(memory: tuple[int, int] | None, least: int) -> bool:
    return memory is None or memory[0] < least <= memory[1]


def _named(text: str, kinds: Collection[str], file: str) -> str:
    """Return the type of that name, or of which it is part: `a100` of `a100-sxm4-40gb`."""
    word = text.lower()
    exact = [kind for kind in kinds if kind.lower() == word]
    matches = exact or [kind for kind in kinds if word in kind.lower()]
    if len(matches) == 1:
        return matches[0]
    key, expected = ("resources", "gpu_type"), f"one of {', '.join(kinds)}" if kinds else "nothing: no node has a GPU"
    if matches:
        raise _refused(key, f"{text} could be {' or '.join(matches)}", "one of them", file)
    raise _refused(key, f'no node has a GPU of the type "{text}"', expected, file, did_you_mean(word, kinds))


def _check(resources: Resources, kinds: Sequence[str], nodes: Sequence[Node], file: str) -> None:
    """Raise SlurmInputError where no node has all of it, naming each resource of which no node has enough."""
    if not nodes:
        raise SlurmInputError("Slurm has no nodes\n    fix: start slurmd; `sinfo` then shows its node")

    def gpus(node: Node) -> int:
        return sum(node.gpus.get(kind, 0) for kind in kinds) if kinds else node.gpu_count

    def shards(node: Node) -> int:
        # A job's shards are of one GPU, and Slurm divides a node's among its GPUs.
        return sum(node.shards.values()) // node.gpu_count if node.gpu_count and _only(node, kinds) else 0

    of_kind = f"{' or '.join(kinds)} " if kinds else ""
    if resources.shared and kinds and not any(node.gpu_count and _only(node, kinds) for node in nodes):
        raise _refused(
            ("resources", "gpu_type" if resources.gpu_type else "gpu_memory_mb"),
            f"Slurm's shards have no type, and no node has {of_kind}GPUs alone",
            "a node whose GPUs are all of that type", file, 'take a whole one, "gpus": 1, in place of shared',
        )  # fmt: skip
    needs: list[tuple[str, int, Callable[[Node], int], str]] = [
        ("cpus", resources.cpus, lambda node: node.cpus, "CPUs"),
        ("min_memory_mb", resources.min_memory_mb or 0, lambda node: node.memory, "MiB of memory"),
        ("gpus", 0 if resources.shared else resources.gpus, gpus, f"{of_kind}GPUs"),
        ("shared", resources.shared or 0, shards, f"shards of one {of_kind}GPU"),
    ]
    refusals = []
    for key, count, of, words in needs:
        largest = max(nodes, key=of)
        if count > of(largest):
            most = of(largest)
            message = f"{count} {words} are more than any node has" if most else f"no node has {words}"
            fix = _SHARDS if key == "shared" and not most else ""
            expected = f"at most {most}, which {largest.name} has" if most else f"no {key}"
            refusals.append(Problem(("resources", key), message, expected, fix, file))
    if refusals:
        raise SlurmInputError("\n".join(map(str, refusals)))
    if not any(all(of(node) >= count for _, count, of, _ in needs) for node in nodes):
        have = "; ".join(
            f"{node.name}: " + ", ".join(f"{of(node)} {words}" for _, count, of, words in needs if count)
            for node in nodes[:5]
        )
        raise _refused(("resources",), "no node has all of it together", have, file)


_SHARDS = "configure --shards N shares each GPU among N jobs"


def _refused(key: tuple[str, ...], message: str, expected: str, file: str, fix: str = "") -> SlurmInputError:
    return SlurmInputError(str(Problem(key, message, expected, fix, file)))
