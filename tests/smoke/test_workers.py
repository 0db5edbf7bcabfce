"""The programs that work a device, with torch on the processor: they pass here, and see what is wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.packages import need

need("torch")

import torch
import torch.distributed as dist

from paddock.smoke.workers import allreduce, gemm, load, memory, operands, peers, transfer
from paddock.smoke.workers.device import Device, open_device
from paddock.smoke.workers.faults import Unusable, explained
from tests.support.torch_cuda import cuda_on_host

CPU = Device("cpu")
ON_CPU = torch.device("cpu")
MIB = 1 << 20
SIZE = 128


def test_memory_that_keeps_patterns_passes() -> None:
    result = memory.check(CPU, 1.0, 8 * MIB)
    assert (result["bytes"], result["wrong"], result["faults"]) == (8 * MIB, 0, {})
    assert result["total"] > result["bytes"]


def test_a_changed_word_is_counted_and_located(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CHUNK", 256)
    words = torch.full((1000,), 5, dtype=torch.int64)
    words[[17, 600]] = 4
    assert memory.compare(words, 5) == (2, [17, 600])
    addresses = torch.arange(1000)
    addresses[3] = 1003  # what an address line that is stuck does
    assert memory.compare(addresses, None) == (1, [3])


def test_comparing_memory_takes_little_of_its_own() -> None:
    assert memory._CHUNK * 9 < 200 * MIB  # a number and a comparison for each word


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_products_are_exact_in_every_format(precision: str) -> None:
    result = gemm.measure(CPU, precision, SIZE, warm_up=0, repeats=1)
    assert (result["wrong"], result["size"]) == (0, SIZE)
    assert result["tflops"] > 0
    assert result["checksum"] == result["right_checksum"]


def test_the_checksum_known_is_that_of_a_product() -> None:
    left, right = (operands.sparse(number, 1024, ON_CPU, torch.float32) for number in (0, 1))
    assert operands.CHECKSUMS[1024] == gemm.compare(left @ right, left, right)["checksum"]


@pytest.mark.parametrize("size", [1024, pytest.param(2048, marks=pytest.mark.explore)])
def test_known_checksums_follow_from_the_matrices(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known = operands.CHECKSUMS[size]
    monkeypatch.setattr(operands, "CHECKSUMS", {})
    assert operands.right_checksum(size) == known


def test_matrices_are_the_same_whatever_is_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = operands.dense(1, 96, ON_CPU, torch.bfloat16)
    monkeypatch.setattr(operands, "_AT_ONCE", 500)
    assert torch.equal(operands.dense(1, 96, ON_CPU, torch.bfloat16), whole)


def test_exact_sums_stay_below_what_bfloat16_holds() -> None:
    left, right = (operands.sparse(number, 1024, ON_CPU, torch.float32) for number in (0, 1))
    assert float((left[:64] @ right).abs().max()) < 256 / 10  # of 8192 terms a sum is thrice as large


@pytest.mark.parametrize("precision", ["fp16", "bf16"])
def test_dense_sums_are_exact_and_fit_their_format(precision: str) -> None:
    format = {"fp16": torch.float16, "bf16": torch.bfloat16}[precision]
    left, right = (operands.dense(number, 1024, ON_CPU, format) for number in (0, 1))
    assert float((left == 0).float().mean()) < 0.05
    # Of 8192 terms a sum is thrice as large as of 1024, and its largest of all little more.
    largest = float((left[:64].float() @ right.float()).abs().max())
    assert 4.3 * largest < min(2**24, torch.finfo(format).max)


@pytest.mark.parametrize("change", [1.0, 0.5, float("nan"), float("inf")])
def test_one_wrong_number_in_a_product_shows(change: float) -> None:
    left, right = (operands.sparse(number, SIZE, ON_CPU, torch.float32) for number in (0, 1))
    product = left @ right
    product[5, 9] += change
    assert gemm.compare(product, left, right)["wrong"] == 1


def test_two_wrong_numbers_that_cancel_each_other_show() -> None:
    left, right = (operands.sparse(number, SIZE, ON_CPU, torch.float32) for number in (0, 1))
    product = left @ right
    product[5, 9] += 1
    product[6, 9] -= 1
    assert gemm.compare(product, left, right)["wrong"] == 1


def test_a_device_that_makes_other_matrices_has_another_checksum() -> None:
    left, right = (operands.sparse(number, SIZE, ON_CPU, torch.float32) for number in (0, 1))
    left[3, 3] += 1  # consistent with itself, so that only the processor's checksum shows it
    result = gemm.compare(left @ right, left, right)
    assert (result["wrong"], result["checksum"] == result["right_checksum"]) == (0, False)


@dataclass(frozen=True, slots=True)
class Clock(Device):
    """A device whose every piece of work takes the same time."""

    each: float = 0.01

    def seconds(self, work: Any, *, warm_up: int, repeats: int) -> list[float]:
        work()
        return [self.each] * repeats


def test_bandwidth_counts_bytes_read_and_written() -> None:
    result = transfer.measure(Clock("cpu"), 8 * MIB, 3)
    assert result["memory_gbs"] == pytest.approx(2 * 8 * MIB / 0.01 / 1e9)


def test_a_slow_device_gets_a_smaller_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_PROBE", 64)
    # 512 times the time of the probe is 5 s at 512 rows, and 0.64 s at 256.
    assert gemm.fitting(Clock("cpu", 0.01), torch.float32, 512) == 256
    assert gemm.fitting(Clock("cpu", 0.001), torch.float32, 512) == 512


def test_a_slow_product_is_repeated_less_often() -> None:
    asked: list[int] = []

    class Counting(Clock):
        def seconds(self, work: Any, *, warm_up: int, repeats: int) -> list[float]:
            asked.append(warm_up + repeats)
            return super().seconds(work, warm_up=warm_up, repeats=repeats)

    gemm.dense_seconds(Counting("cpu", 2.0), torch.float32, 16, warm_up=20, repeats=30)
    assert asked == [2, 8]


def test_a_load_reports_its_speed_over_time() -> None:
    result = load.hold(CPU, "fp32", 64, 0.1)
    assert result["wrong"] == 0
    assert len(result["tflops"]) >= 1
    assert result["products"] >= len(result["tflops"])


def test_a_load_makes_its_matrices_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    dense = operands.dense

    def counting(number: int, *arguments: Any) -> Any:
        made.append(number)
        return dense(number, *arguments)

    monkeypatch.setattr(operands, "dense", counting)
    monkeypatch.setattr(load, "_BATCH", 0.01)
    load.hold(CPU, "fp32", 64, 0.3)
    assert made == [0, 0, 1]  # the probe, and the two


def test_an_all_reduce_of_two_processes_is_exact() -> None:
    result = allreduce.run("cpu", ranks=2, size=4 * MIB, repeats=2)
    assert (result["ranks"], result["bytes"], result["wrong"]) == (2, 4 * MIB, 0)
    assert result["busbw_gbs"] > 0


def test_a_rank_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_DEVICE_TRANSPORT", "UNKNOWN")  # the ranks' own environment
    document = allreduce.run("cpu", ranks=1, size=MIB, repeats=1)
    assert document["unusable"] == "makeDeviceForInterface(): unsupported gloo device"


# With a made-up CUDA: what only GPUs run.


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

    with cuda_on_host(spoil={torch.mm: flip}):
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
        result = allreduce.sum_up(0, "cuda", 1, 4 << 30, 2, 29_511)
    assert (backends, fake.current, os.environ["NCCL_SOCKET_IFNAME"]) == (["nccl"], [0], "lo")
    assert result["bytes"] == int(8 * MIB * 0.4) // 4 * 4  # what the smallest memory allows
    assert result["wrong"] == 0


def test_torch_without_cuda_is_no_fault_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(Unusable, match="is built for the processor alone"):
        open_device("cuda")


def test_a_worker_is_ready_and_prints_one_document() -> None:
    parameters = json.dumps({"device": "cpu", "part": 1.0, "at_most": MIB})
    command = [sys.executable, "-m", "paddock.smoke.workers", "memory", parameters]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert json.loads(worker.stdout.readline()) == {"ready": True}
        worker.stdin.write("go\n")
        worker.stdin.flush()
        assert json.loads(worker.stdout.readline())["bytes"] == MIB


def test_a_machine_without_gpus_is_no_fault_of_one() -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(RuntimeError) as refused:
        memory.run("cuda", 0.5, MIB)
    assert explained(refused.value).keys() == {"unusable", "fix"}


def test_a_worker_without_its_libraries_says_so() -> None:
    program = (
        "import sys; sys.modules['torch'] = None; from paddock.smoke.workers.__main__ import main; main('memory', '{}')"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["unusable"].startswith("torch cannot be loaded: ModuleNotFoundError")
