"""The programs that work a device, under a made-up CUDA: what only GPUs run."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.support.packages import need

need("torch")

import torch
import torch.distributed as dist

from paddock.smoke.workers import allreduce, gemm, load, memory, operands, peers, torch_ranks, transfer
from paddock.smoke.workers.device import TorchDevice, open_device
from paddock.smoke.workers.faults import Unusable, explained
from tests.support.torch_cuda import cuda_on_host

MIB = 1 << 20


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_dense_sums_are_exact_and_fit_their_format(precision: str) -> None:
    left, right = (operands.dense(number, 1024, TorchDevice("cpu"), precision) for number in (0, 1))
    assert float((left == 0).float().mean()) < 0.05
    # Of 8192 terms a sum is thrice as large as of 1024, and its largest of all little more.
    largest = float((left[:64].float() @ right.float()).abs().max())
    assert 4.3 * largest < min(2**24, torch.finfo(left.dtype).max)


def test_programs_for_one_gpu_run_on_it() -> None:
    with cuda_on_host(free=16 * MIB) as fake:
        assert memory.run("cuda", 0.5, None) == {"bytes": 8 * MIB, "total": 32 * MIB, "wrong": 0, "faults": {}}
        assert gemm.run("cuda", "bf16", 64, 1, 3)["wrong"] == 0
        assert load.run("cuda", "fp16", 64, 0.1)["wrong"] == 0
        result = transfer.run("cuda", MIB, 3)
    assert {"memory_gbs", "to_device_gbs", "to_host_gbs"} < result.keys()
    assert result["wrong"] == 0
    assert fake.used == {"cuda"}


def test_results_that_change_under_load_are_counted() -> None:
    products = 0

    def flip(product: Any) -> Any:
        nonlocal products
        products += 1
        if products > 1:
            product[0, 0] += 1
        return product

    with cuda_on_host(spoil={torch.matmul: flip}):
        assert load.run("cuda", "fp32", 64, 0.2)["wrong"] > 0


def test_words_that_change_on_the_way_are_counted() -> None:
    def spoil(copied: Any) -> Any:
        copied[7] = -1
        return copied

    with cuda_on_host(spoil={torch.Tensor.copy_: spoil}):
        assert transfer.run("cuda", MIB, 2)["wrong"] == 1


def test_peers_copy_between_all_pairs_and_compare_at_the_target() -> None:
    with cuda_on_host(3, direct=lambda source, target: {source, target} != {0, 2}) as fake:
        pairs = peers.run("cuda", MIB, 2)["pairs"]
    assert [(pair["from"], pair["to"]) for pair in pairs] == [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)]
    assert [pair["direct"] for pair in pairs] == [True, False, True, True, False, True]
    assert all(pair["wrong"] == 0 for pair in pairs)
    assert fake.used == {"cuda:0", "cuda:1", "cuda:2"}


def test_a_rank_of_gpus_uses_nccl_and_its_own_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MASTER_ADDR", "MASTER_PORT", "GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv(name, "restored after the test")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME")
    backends: list[str] = []
    start = dist.init_process_group

    def with_gloo(backend: str, **arguments: Any) -> None:
        backends.append(backend)
        start("gloo", **arguments)

    monkeypatch.setattr(dist, "init_process_group", with_gloo)
    with cuda_on_host(free=8 * MIB) as fake:
        result = torch_ranks.joined(0, allreduce.sum_up, "cuda", 1, 4 << 30, 2, 29_511)
    assert (backends, fake.current, os.environ["NCCL_SOCKET_IFNAME"]) == (["nccl"], [0], "lo")
    assert result["bytes"] == int(8 * MIB * 0.4) // 4 * 4  # what the smallest memory allows
    assert result["wrong"] == 0


def test_torch_without_cuda_is_no_fault_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(Unusable, match="is built for the CPU alone"):
        open_device("cuda")


def test_a_machine_without_gpus_is_no_fault_of_one() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError) as refused:
        memory.run("cuda", 0.5, MIB)
    assert explained(refused.value).keys() == {"unusable", "fix"}
