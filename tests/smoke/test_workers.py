"""The programs that work a device, with torch on the processor: they pass here, and see what is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch in this environment")

from paddock.smoke.workers import allreduce, gemm, load, memory, transfer  # noqa: E402
from paddock.smoke.workers.device import Device, open_device  # noqa: E402

CPU = Device("cpu")
MIB = 1 << 20


def test_memory_that_keeps_patterns_passes() -> None:
    assert memory.check(CPU, 1.0, 8 * MIB) == {"bytes": 8 * MIB, "wrong": 0, "faults": {}}


def test_a_changed_word_is_counted_and_located() -> None:
    words = torch.full((1000,), 5, dtype=torch.int64)
    words[[17, 600]] = 4
    assert memory.compare(words, 5) == (2, [17, 600])
    addresses = torch.arange(1000)
    addresses[3] = 1003  # what an address line that is stuck does
    assert memory.compare(addresses, None) == (1, [3])


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_products_are_exact_in_every_format(precision: str) -> None:
    result = gemm.measure(CPU, precision, 128, warm_up=0, repeats=1)
    assert result["wrong"] == 0
    assert result["tflops"] > 0
    left, right = gemm.operands(128)
    exact = (left.to(torch.int64) @ right.to(torch.int64)).to(torch.float32)
    assert result["checksum"] == gemm.checksum(exact)


def test_operands_of_the_largest_product_stay_below_what_bfloat16_holds() -> None:
    left, right = gemm.operands(4096)
    columns = left[:64] @ right
    assert float(columns.abs().max()) < 256 / 2


@pytest.mark.parametrize("wrong", [1.0, float("nan")])
def test_one_wrong_number_in_a_product_shows(wrong: float) -> None:
    left, right = gemm.operands(64)
    product = left @ right
    product[5, 9] += wrong
    assert gemm.wrong_columns(product, left, right) == 1


def test_bandwidth_counts_bytes_read_and_written() -> None:
    @dataclass(frozen=True, slots=True)
    class Clock(Device):
        """A device whose every copy takes 10 ms."""

        def seconds(self, work: Any, *, warm_up: int, repeats: int) -> list[float]:
            work()
            return [0.01] * repeats

    result = transfer.measure(Clock("cpu"), 8 * MIB, 3)
    assert result["memory_gbs"] == pytest.approx(2 * 8 * MIB / 0.01 / 1e9)


def test_a_load_reports_its_speed_over_time() -> None:
    result = load.hold(CPU, "fp32", 64, 0.5)
    assert result["wrong"] == 0
    assert len(result["tflops"]) >= 1


def test_an_all_reduce_of_two_processes_is_exact() -> None:
    result = allreduce.run("cpu", ranks=2, size=4 * MIB, repeats=2)
    assert (result["ranks"], result["wrong"]) == (2, 0)
    assert result["busbw_gbs"] > 0


def test_a_device_that_torch_lacks_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"torch .* sees no GPU"):
        open_device("cuda")


def test_a_worker_prints_one_document() -> None:
    command = [sys.executable, "-m", "paddock.smoke.workers", "memory"]
    parameters = {"device": "cpu", "part": 1.0, "at_most": MIB}
    done = subprocess.run([*command, json.dumps(parameters)], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["bytes"] == MIB
