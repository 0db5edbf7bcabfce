"""The programs that work a device: on the processor they pass, by numpy and by torch, and see what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from paddock.smoke.stages import table
from paddock.smoke.stages.limits import Limits
from paddock.smoke.workers import allreduce, gemm, load, memory, operands, transfer
from paddock.smoke.workers.device import LIBRARIES, ArrayDevice, Processor, TorchDevice
from tests.support.packages import need

MIB = 1 << 20
SIZE = 128


@pytest.fixture(params=["numpy", "torch"])
def cpu(request: pytest.FixtureRequest) -> ArrayDevice:
    """Return the processor, by the library that works it in the smoke test and by that of GPUs."""
    need(request.param)
    return Processor() if request.param == "numpy" else TorchDevice("cpu")


def test_memory_that_keeps_patterns_passes(cpu: ArrayDevice) -> None:
    result = memory.check(cpu, 1.0, 8 * MIB)
    assert (result["bytes"], result["wrong"], result["faults"]) == (8 * MIB, 0, {})
    assert result["total"] > result["bytes"]


def test_a_changed_word_is_counted_and_located(cpu: ArrayDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_CHUNK", 256)
    words = cpu.xp.full((1000,), 5, dtype=cpu.xp.int64)
    words[[17, 600]] = 4
    assert memory.compare(cpu, words, 5) == (2, [17, 600])
    addresses = cpu.xp.arange(1000)
    addresses[3] = 1003  # what an address line that is stuck does
    assert memory.compare(cpu, addresses, None) == (1, [3])


def test_comparing_memory_takes_little_of_its_own() -> None:
    assert memory._CHUNK * 9 < 200 * MIB  # a number and a comparison for each word


def test_products_are_exact(cpu: ArrayDevice) -> None:
    result = gemm.measure(cpu, "fp32", SIZE, warm_up=0, repeats=1)
    assert (result["wrong"], result["size"]) == (0, SIZE)
    assert result["tflops"] > 0
    assert result["checksum"] == result["right_checksum"]


def test_the_checksum_known_is_that_of_a_product(cpu: ArrayDevice) -> None:
    left, right = (operands.sparse(number, 1024, cpu, "fp32") for number in (0, 1))
    assert operands.CHECKSUMS[1024] == gemm.compare(cpu, left @ right, left, right)["checksum"]


@pytest.mark.parametrize("size", [1024, pytest.param(2048, marks=pytest.mark.explore)])
def test_known_checksums_follow_from_the_matrices(cpu: ArrayDevice, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    known = operands.CHECKSUMS[size]
    monkeypatch.setattr(operands, "CHECKSUMS", {})
    assert operands.right_checksum(size, cpu) == known


def test_matrices_are_the_same_whatever_is_made_at_once(cpu: ArrayDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = operands.dense(1, 96, cpu, "fp16")
    monkeypatch.setattr(operands, "_AT_ONCE", 500)
    assert (operands.dense(1, 96, cpu, "fp16") == whole).all()


def test_exact_sums_stay_below_what_bfloat16_holds() -> None:
    need("numpy")
    left, right = (operands.sparse(number, 1024, Processor(), "fp32") for number in (0, 1))
    assert abs(left[:64] @ right).max() < 256 / 10  # of 8192 terms a sum is thrice as large


@pytest.mark.parametrize("change", [1.0, 0.5, float("nan"), float("inf")])
def test_one_wrong_number_in_a_product_shows(cpu: ArrayDevice, change: float) -> None:
    left, right = (operands.sparse(number, SIZE, cpu, "fp32") for number in (0, 1))
    product = left @ right
    product[5, 9] += change
    assert gemm.compare(cpu, product, left, right)["wrong"] == 1


def test_two_wrong_numbers_that_cancel_each_other_show(cpu: ArrayDevice) -> None:
    left, right = (operands.sparse(number, SIZE, cpu, "fp32") for number in (0, 1))
    product = left @ right
    product[5, 9] += 1
    product[6, 9] -= 1
    assert gemm.compare(cpu, product, left, right)["wrong"] == 1


def test_a_device_that_makes_other_matrices_has_another_checksum(cpu: ArrayDevice) -> None:
    left, right = (operands.sparse(number, SIZE, cpu, "fp32") for number in (0, 1))
    left[3, 3] += 1  # consistent with itself, so that only the processor's checksum shows it
    result = gemm.compare(cpu, left @ right, left, right)
    assert (result["wrong"], result["checksum"] == result["right_checksum"]) == (0, False)


class Clock(Processor):
    """A device whose every piece of work takes the same time."""

    def __init__(self, each: float = 0.01) -> None:
        need("numpy")
        super().__init__()
        self.each = each

    def seconds(self, work: Any, *, warm_up: int, repeats: int) -> list[float]:
        work()
        return [self.each] * repeats


def test_bandwidth_counts_bytes_read_and_written() -> None:
    result = transfer.measure(Clock(), 8 * MIB, 3)
    assert result["memory_gbs"] == pytest.approx(2 * 8 * MIB / 0.01 / 1e9)


def test_a_slow_device_gets_a_smaller_product(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gemm, "_PROBE", 64)
    # 512 times the time of the probe is 5 s at 512 rows, and 0.64 s at 256.
    assert gemm.fitting(Clock(0.01), "fp32", 512) == 256
    assert gemm.fitting(Clock(0.001), "fp32", 512) == 512


def test_a_slow_product_is_repeated_less_often() -> None:
    asked: list[int] = []

    class Counting(Clock):
        def seconds(self, work: Any, *, warm_up: int, repeats: int) -> list[float]:
            asked.append(warm_up + repeats)
            return super().seconds(work, warm_up=warm_up, repeats=repeats)

    gemm.dense_seconds(Counting(2.0), "fp32", 16, warm_up=20, repeats=30)
    assert asked == [2, 8]


def test_a_load_reports_its_speed_over_time(cpu: ArrayDevice) -> None:
    result = load.hold(cpu, "fp32", 64, 0.1)
    assert result["wrong"] == 0
    assert len(result["tflops"]) >= 1
    assert result["products"] >= len(result["tflops"])


def test_a_load_makes_its_matrices_once(cpu: ArrayDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []
    dense = operands.dense

    def counting(number: int, *arguments: Any) -> Any:
        made.append(number)
        return dense(number, *arguments)

    monkeypatch.setattr(operands, "dense", counting)
    monkeypatch.setattr(load, "_BATCH", 0.01)
    load.hold(cpu, "fp32", 64, 0.3)
    assert made == [0, 0, 1]  # the probe, and the two


@pytest.mark.parametrize("ranks", [2, 3])
def test_an_all_reduce_of_threads_is_exact(ranks: int) -> None:
    need("numpy")
    result = allreduce.run("cpu", ranks=ranks, size=4 * MIB, repeats=2)
    assert (result["ranks"], result["bytes"], result["wrong"]) == (ranks, 4 * MIB, 0)
    assert result["busbw_gbs"] > 0


@pytest.mark.parametrize("wrong", ["late", "absent"])
def test_a_sum_that_misses_an_array_shows(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    need("numpy")
    sum_ = allreduce.Thread.sum

    def spoiled(rank: allreduce.Thread, values: Any) -> None:
        if wrong == "absent" and rank.number == 1:
            values[7] = 0
        sum_(rank, values)
        if wrong == "late" and rank.number == 0:
            values[7] += 1

    monkeypatch.setattr(allreduce.Thread, "sum", spoiled)
    assert allreduce.run("cpu", ranks=2, size=MIB, repeats=1)["wrong"] > 0


def test_a_thread_that_fails_ends_the_others_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    need("numpy")
    least = allreduce.Thread.least

    def failing(rank: allreduce.Thread, value: int) -> int:
        if rank.number == 1:
            raise MemoryError("no more")
        return least(rank, value)

    monkeypatch.setattr(allreduce.Thread, "least", failing)
    with pytest.raises(MemoryError, match="no more"):
        allreduce.run("cpu", ranks=2, size=MIB, repeats=1)


def test_an_all_reduce_of_two_processes_is_exact() -> None:
    need("torch")
    from paddock.smoke.workers.torch_ranks import in_processes

    results = in_processes(allreduce.sum_up, "cpu", ranks=2, size=4 * MIB, repeats=2)
    assert [(result["bytes"], result["wrong"]) for result in results] == [(4 * MIB, 0)] * 2


def test_a_rank_that_fails_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    need("torch")
    from paddock.smoke.workers.torch_ranks import in_processes

    monkeypatch.setenv("GLOO_DEVICE_TRANSPORT", "UNKNOWN")  # the ranks' own environment
    (document,) = in_processes(allreduce.sum_up, "cpu", ranks=1, size=MIB, repeats=1)
    assert document["unusable"] == "makeDeviceForInterface(): unsupported gloo device"


def test_a_worker_is_ready_and_prints_one_document() -> None:
    need("numpy")
    parameters = json.dumps({"device": "cpu", "part": 1.0, "at_most": MIB})
    command = [sys.executable, "-m", "paddock.smoke.workers", "memory", parameters]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as worker:
        assert json.loads(worker.stdout.readline()) == {"ready": True}
        worker.stdin.write("go\n")
        worker.stdin.flush()
        assert json.loads(worker.stdout.readline())["bytes"] == MIB


@pytest.mark.parametrize(("device", "library"), LIBRARIES.items())
def test_a_worker_without_its_library_says_so(device: str, library: str) -> None:
    program = f"import sys; sys.modules[{library!r}] = None; from paddock.smoke.workers.__main__ import main"
    program += f"; main('memory', {json.dumps({'device': device})!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["unusable"].startswith(f"{library} cannot be loaded: ModuleNotFoundError")


def test_the_processor_is_worked_without_torch() -> None:
    need("numpy")
    stages = {stage.worker: {"device": "cpu", **stage.on_cpu} for stage in table.STAGES if stage.on_cpu}
    program = (
        "import json, sys; sys.modules['torch'] = None; from importlib import import_module as module\n"
        "for name, given in json.loads(sys.argv[1]).items():\n"
        "    small = {'seconds': 0.1, 'size': 64 if 'precision' in given else 1 << 20, 'at_most': 1 << 20}\n"
        "    given |= {key: small[key] for key in small.keys() & given.keys()}\n"
        "    print(name, module('paddock.smoke.workers.' + name).run(**given)['wrong'])"
    )
    for worker in ("gemm", "load"):
        stages[worker]["precision"] = Limits.of(None).precision
    command = [sys.executable, "-c", program, json.dumps(stages)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["memory", "0", "gemm", "0", "transfer", "0", "load", "0", "allreduce", "0"]
