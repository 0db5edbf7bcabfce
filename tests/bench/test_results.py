"""Numbers of a result follow from its samples, and what is printed from those numbers."""

from __future__ import annotations

import math
from typing import Any

import pytest

from paddock.bench.report.text import lines
from paddock.bench.runner import results
from paddock.catalog.gpus import gpus
from paddock.catalog.instances import instances
from paddock.models.presets import preset
from tests.bench.cells import cell, document, result


def printed(*measured: Any, **changes: Any) -> list[str]:
    return list(lines(document(*measured, **changes)))


def test_the_fraction_follows_from_the_printed_numbers() -> None:
    first, second = result(bandwidth=[8.0, 10.0, 10.0, 12.0]), result("int8", bandwidth=[18.0, 20.0, 22.0])
    roof = first.roofline
    assert (roof.measured_low_gbs, roof.measured_gbs, roof.measured_high_gbs) == (8, 10, 12)
    assert roof.bound == "memory"
    assert roof.of_measured == pytest.approx(roof.achieved_gbs / 10)
    rows = {line.partition(" ")[0]: line for line in printed(first, second)}
    assert f"{roof.achieved_gbs:.1f} of 10.0 GB/s" in rows["bf16"]
    assert "of 20.0 GB/s" in rows["int8"], "each row has its own roof"


def test_a_roof_that_could_not_be_read_is_unknown() -> None:
    assert result(bandwidth=[]).roofline.of_measured is None
    assert any("of unknown GB/s  unknown" in line for line in printed(result(bandwidth=[])))


def test_the_ridge_is_that_of_the_bits_that_are_read() -> None:
    model = preset("tiny")
    parameters = model.body.active + model.output_parameters
    ridge = result("int4", weight_bytes=parameters * 6 // 8, tflops=1.0).roofline.ridge_batch
    assert ridge == pytest.approx(1e12 * 0.75 / (2 * 10e9), rel=0.01), "six bits a weight, as some GGUF files have"


def test_energy_is_reported_gross_net_and_by_power() -> None:
    gpu: dict[str, Any] = {"gpu": gpus()["h100"], "gpus": 1, "idle_watts": 70.0}
    agreeing = result(joules=400.0, sampled_joules=410.0, seconds=4.0, **gpu)
    energy = agreeing.energy
    tokens = 4 * 8
    assert energy.joules_per_token == pytest.approx(400 / tokens)
    assert energy.net_joules_per_token == pytest.approx((400 - 280) / tokens)
    (line,) = (line for line in printed(agreeing) if line.startswith("energy"))
    assert "12.50 J a token, 3.75 above idle (NVML" in line
    (line,) = (line for line in printed(result(joules=400.0, sampled_joules=500.0, **gpu)) if line.startswith("energy"))
    assert "the sum of power readings says 15.62" in line
    unknown = result(joules=None, sampled_joules=500.0, **gpu)
    assert unknown.energy is None
    assert any("energy: unknown" in line for line in printed(unknown))


def test_a_median_of_five_runs_has_no_interval() -> None:
    five, six = result(runs=5).ttft.percentiles[0], result(runs=6).ttft.percentiles[0]
    assert (five.low, five.high) == (None, None)
    assert (six.low, six.high) == pytest.approx((100, 100))


def test_every_gpu_of_an_instance_serves_what_it_costs() -> None:
    here: dict[str, Any] = {"gpu": gpus()["h100"], "gpus": 1, "environment": {"instance": "p5.48xlarge"}}
    own = result(**here).cost[0]
    assert (own.instance, own.copies, own.measured) == ("p5.48xlarge", 8, True)
    request = 8 / 0.17
    assert own.tokens_per_s == pytest.approx(8 * request)
    assert own.usd_per_million == pytest.approx(own.usd_per_hour / (8 * request * 3600) * 1e6)
    small = next(
        cost for cost in result(**here).cost if cost.instance == "g5.xlarge" or cost.instance.startswith("g5.")
    )
    assert small.copies == instances()[small.instance].gpu_count


def test_a_gpu_that_the_catalogue_lacks_has_no_assumed_costs() -> None:
    assert result(gpu=None, gpus=1).cost == ()


def test_the_knee_is_in_the_document() -> None:
    fast, flat = result(batch=1), result(batch=2, step=0.0195)
    (knee,) = document(fast, flat).knees
    assert (knee.dtype, knee.mode, knee.prompt, knee.batch) == ("bf16", None, 16, 1)
    assert document(fast, result(batch=2)).knees == ()
    assert "knee of bf16 at prompt 16: batch 1" in printed(fast, flat)


def test_modes_have_their_tail_memory_and_share_of_the_time() -> None:
    fast = result(mode="aggressive", batch=16, runs=500, memory=2 * 10**9)
    slow = result(mode="conservative", batch=2, paused=[0.17] * 3)
    printing = printed(fast, slow)
    start = next(number for number, line in enumerate(printing) if line.startswith("mode and dtype"))
    table = printing[start : start + 3]
    assert "170 ms" in table[1]
    assert "170.0 ms" in table[1], "p99 of 500 requests"
    assert "2.00 GB" in table[1]
    assert "n 3 too small" in table[2]
    assert "small ms" not in table[2]
    assert "50%" in table[2].split("1.00 GB")[1], "half of the memory of the most, and busy for half of the time"


@pytest.mark.parametrize(("reported", "doubted"), [([0.072] * 3, False), ([0.060] * 3, True), ([], False)])
def test_two_clocks_that_disagree_are_a_doubt(reported: list[float], doubted: bool) -> None:
    measured = result(reported=reported)
    assert measured.clocks == (pytest.approx(0.07 / reported[0]) if reported else None)
    assert any("by this clock as by the engine's own" in doubt for doubt in measured.doubts) == doubted


def test_sessions_are_merged_with_all_of_their_samples() -> None:
    first, second = (
        cell(joules=10.0, sampled_joules=11.0, reported=[1.0] * 3),
        cell(joules=5.0, sampled_joules=None, compile_s=3.0, reported=[2.0] * 3),
    )
    merged = results.merged(first, second)
    assert (merged["joules"], merged["sampled_joules"], merged["compile_s"]) == (15.0, None, 3.0)
    assert (len(merged["engine"]), merged["reported"]) == (6, [1.0] * 3 + [2.0] * 3)
    assert math.isclose(merged["seconds"], 8.0)


def test_on_a_gpus_machine_the_processor_serves_one_copy() -> None:
    environment = {"instance": "p5.48xlarge", "gpus": [{"name": "H100"}], "vcpus": 192}
    measured = result(environment=environment)
    assert (measured.cost[0].instance, measured.cost[0].copies) == ("p5.48xlarge", 1)
    assert measured.key["gpu"] == "a processor", "no baseline of the GPU's is its own"


def test_what_nothing_measures_bounds_nothing() -> None:
    unknown = result(tflops=None)
    assert (unknown.roofline.bound, unknown.roofline.prefill_of_measured) == (None, None)
    text = "\n".join(printed(unknown))
    assert "bound by" not in text
    assert "of roof: of the reads alone" in text


def test_what_others_took_is_a_reason_for_doubt() -> None:
    doubt = "other programs took 30% of this machine's CPUs during the run"
    assert doubt in result(others=0.3).doubts
    assert not any("CPUs" in item for item in (*result(others=0.05).doubts, *result(others=None).doubts))
