"""Resources become options of sbatch, and what no node has is refused before anything is submitted."""

from __future__ import annotations

from typing import Any

import pytest

from paddock.slurm.errors import SlurmInputError
from paddock.slurm.programs import nodes as programs
from paddock.slurm.programs.nodes import Node
from paddock.slurm.submit.method import Resources
from paddock.slurm.submit.resources import options


def node(name: str, gres: str, features: str = "gpu", cpus: int = 8, memory: int = 8000) -> Node:
    """Return a node as scontrol 22.05 describes one."""
    (parsed,) = programs.parse(
        f"NodeName={name} Arch=x86_64 CoresPerSocket=8  CPUAlloc=0 CPUEfctv={cpus} CPUTot={cpus} CPULoad=2.00"
        f" AvailableFeatures={features} ActiveFeatures={features} Gres={gres} GresDrain=N/A GresUsed=gpu:0"
        f" OS=Linux 6.18.44 #1 SMP PREEMPT_DYNAMIC @0  RealMemory={memory} AllocMem=0 FreeMem=N/A Sockets=1"
        " State=IDLE ThreadsPerCore=1 TmpDisk=0 Partitions=main "
    )
    return parsed


H100 = node("big", "gpu:h100:4,shard:h100:16", "gpu,gpu_memory_mib.h100.81559")
T4 = node("small", "gpu:t4:1(S:0)", "gpu,gpu_memory_mib.t4.15360", cpus=4, memory=64000)
CPU = node("plain", "(null)", "(null)", cpus=64)


def words(*nodes: Node, **resources: Any) -> str:
    return " ".join(options(Resources(**resources), nodes, "method.json").words)


def refusal(*nodes: Node, **resources: Any) -> str:
    with pytest.raises(SlurmInputError) as caught:
        words(*nodes, **resources)
    return str(caught.value)


def test_resources_become_options() -> None:
    assert words(H100, cpus=4, min_memory_mb=512, gpus=2, time="90m") == (
        "--cpus-per-task=4 --mem=512M --gres=gpu:2 --time=90"
    )
    assert words(H100, shared=2) == "--cpus-per-task=1 --gres=shard:2"
    assert words(CPU) == "--cpus-per-task=1"


def test_a_job_has_at_most_the_shards_of_one_gpu() -> None:
    assert "--gres=shard:4" in words(H100, shared=4)
    message = refusal(H100, shared=5)
    assert "5 shards of one GPU are more than any node has\n    expected: at most 4, which big has" in message


def test_a_shard_of_a_type_keeps_away_from_nodes_with_other_gpus() -> None:
    t4 = node("small", "gpu:t4:2,shard:8", "gpu,gpu_memory_mib.t4.15360")
    mixed = node("mixed", "gpu:t4:1,gpu:h100:1,shard:8")
    assert words(H100, shared=1, gpu_type="h100").endswith("--gres=shard:1")
    assert words(H100, t4, mixed, CPU, shared=1, gpu_type="h100").endswith("--gres=shard:1 --exclude=small,mixed")
    assert words(H100, t4, shared=2, gpu_memory_mb=20_000).endswith("--gres=shard:2 --exclude=small")
    assert words(H100, t4, mixed, shared=2, gpu_memory_mb=15_000).endswith("--gres=shard:2"), "all have that much"
    message = refusal(mixed, shared=1, gpu_type="t4")
    assert "resources.gpu_type: Slurm's shards have no type, and no node has t4 GPUs alone" in message
    assert "--shards" in refusal(T4, mixed, shared=1, gpu_type="t4"), "a node of that type could have shards"


def test_the_largest_available_is_named_for_each_resource() -> None:
    message = refusal(H100, T4, gpus=8, cpus=9, min_memory_mb=100_000)
    assert "resources.gpus: 8 GPUs are more than any node has\n    expected: at most 4, which big has" in message
    assert "at most 8, which big has" in message
    assert "at most 64000, which small has" in message
    assert "no node has GPUs\n    expected: no gpus" in refusal(CPU, gpus=1)
    assert "configure --shards N" in refusal(T4, shared=1)
    assert "at most 1, which small has" in refusal(H100, T4, gpus=2, gpu_type="t4")


def test_resources_that_no_single_node_has_together_are_refused() -> None:
    message = refusal(H100, T4, gpus=1, min_memory_mb=10_000, gpu_type="h100")
    assert "no node has all of it together" in message
    assert "big: 8 CPUs, 8000 MiB of memory, 4 h100 GPUs; small: 4 CPUs" in message


def test_a_type_is_known_by_part_of_its_name() -> None:
    a100 = node("a", "gpu:a100-sxm4-40gb:2")
    assert "--gres=gpu:a100-sxm4-40gb:1" in words(a100, gpus=1, gpu_type="A100")
    assert "one of h100, t4" in refusal(H100, T4, gpus=1, gpu_type="v100")
    pair = node("b", "gpu:a100-sxm4-40gb:1,gpu:a100-sxm4-80gb:1")
    assert "could be a100-sxm4-40gb or a100-sxm4-80gb" in refusal(pair, gpus=1, gpu_type="a100")


def test_memory_of_a_gpu_chooses_the_smallest_type_that_has_enough() -> None:
    assert words(H100, T4, gpus=1, gpu_memory_mb=15_000).endswith("--gres=gpu:1"), "all have that much"
    assert words(H100, T4, gpus=1, gpu_memory_mb=16_000).endswith("--gres=gpu:h100:1")
    a10g = node("middle", "gpu:a10g:1", "gpu,gpu_memory_mib.a10g.23028")
    assert words(H100, T4, a10g, gpus=1, gpu_memory_mb=16_000).endswith("--gres=gpu:a10g:1")
    assert words(H100, T4, a10g, gpus=2, gpu_memory_mb=16_000).endswith("--gres=gpu:h100:2"), "on one node"
    assert "no GPU here is known to have 90000 MiB\n    expected: at most 81559" in refusal(
        H100, T4, gpus=1, gpu_memory_mb=90_000
    )


def test_the_catalogue_knows_types_without_a_feature_and_others_are_called_unknown() -> None:
    bare, odd = node("bare", "gpu:l40s:1"), node("odd", "gpu:odd:1")
    assert words(T4, bare, gpus=1, gpu_memory_mb=40_000).endswith("--gres=gpu:l40s:1")
    (note,) = options(Resources(gpus=1, gpu_memory_mb=40_000), [bare, odd], "method.json").notes
    assert "the memory of odd is not known" in note
    assert "the memory of odd is not known" in refusal(odd, gpus=1, gpu_memory_mb=1000)
    v100 = node("v", "gpu:v100:1")
    assert "the memory of v100 is not known" in refusal(v100, gpus=1, gpu_memory_mb=20_000), "16 or 32 GB"
    assert words(v100, gpus=1, gpu_memory_mb=10_000).endswith("--gres=gpu:1")
