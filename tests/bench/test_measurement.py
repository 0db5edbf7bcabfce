"""Formulae against cases worked by hand, and an engine of known speed that gives back its own numbers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest

from paddock.bench.engines import door
from paddock.bench.engines.door import BenchJob, Timer
from paddock.bench.measurement import cost, energy
from paddock.bench.measurement.roofline import ModelWork, Work, least_seconds, ridge_batch
from paddock.bench.measurement.statistics import summarise
from paddock.bench.measurement.watch import Sample
from paddock.bench.runner import loop, results
from paddock.bench.runner.results import Context, doubts_of_clocks
from paddock.models.errors import ModelError
from paddock.models.model import tensor_parallel
from paddock.models.presets import preset
from paddock.models.shapes import Shape, shape
from tests.bench.engines.cuda_stand_in import Stream
from tests.support.packages import need


def test_percentiles_have_intervals_and_refuse_too_few_samples() -> None:
    summary = summarise([float(value) for value in range(1, 101)])
    assert summary.median == pytest.approx(50.5)
    p95 = summary.percentile(95)
    # 100 x 0.95 -+ 1.96 sqrt(4.75): the ranks 90 and 100, counted from 0 and the last one at most.
    assert p95 is not None
    assert (p95.value, p95.low, p95.high) == (pytest.approx(95.05), 91.0, 100.0)
    assert summary.percentile(99) is None
    assert summarise([1.0] * 500).percentile(99) is not None


@pytest.mark.parametrize(("name", "linear", "total", "cache"), [
    ("llama-3.2-1b", 1.236e9, 1.236e9, 32),
    ("llama-3.1-8b", 7.505e9, 8.030e9, 128),
    ("qwen3-0.6b", 0.596e9, 0.596e9, 112),
    ("qwen3-8b", 7.568e9, 8.191e9, 144),
])  # fmt: skip
def test_shapes_weigh_what_the_models_do(name: str, linear: float, total: float, cache: int) -> None:
    model = preset(name)
    assert model.body.active + model.output_parameters == pytest.approx(linear, rel=1e-3)
    assert model.parameters == pytest.approx(total, rel=1e-3)
    assert model.cache_bytes(1, 2) == cache * 1024


def test_decode_roof_of_8b_at_three_terabytes() -> None:
    model = preset("llama-3.1-8b")
    work = ModelWork(
        model.weight_bytes("bf16"),
        model.body.active + model.output_parameters,
        model.output_parameters,
        model.cache_bytes(1, 2),
        32,
        32,
        128,
    )
    seconds = least_seconds(work.decode(1, 0), 3000.0, 989.0)
    assert 1 / seconds == pytest.approx(200, rel=0.01)
    # 2 x 128 x 6.98e9 for the body, twice the head, and 2 x 32 x 32 x 128 x 128^2 for the causal half of attention.
    body = 2 * 128 * model.body.active
    assert work.prefill(1, 128).flop == body + 2 * model.output_parameters + 2 * 32 * 32 * 128 * 128**2


def test_roof_is_the_slower_of_memory_and_arithmetic() -> None:
    assert least_seconds(Work(2e9, 1e12), 1.0, 1.0) == 2.0
    assert least_seconds(Work(2e9, 8e12), 1.0, 1.0) == 8.0
    assert least_seconds(Work(1.0, 1.0), None, None) is None
    assert ridge_batch(989.0, 3350.0, 16) == pytest.approx(295, rel=0.01)


def test_cost_is_the_hour_over_its_tokens() -> None:
    assert cost.usd_per_million(3.6, 1000.0) == pytest.approx(1.0)
    assert cost.usd_per_million(3.6, 1000.0, utilisation=0.5) == pytest.approx(2.0)
    here = cost.on_instance("g5.xlarge", "us-east-1", 100.0)
    assert here.usd_per_million == pytest.approx(here.usd_per_hour / 0.36)
    assert cost.on_instance("g5.xlarge", "nowhere-1", 100.0) is None


def test_other_instances_follow_bandwidth_and_can_run_the_model() -> None:
    def others(gpu: str, weight_bytes: int = 16_000_000_000, number: str = "int8") -> list[str]:
        costs = cost.elsewhere(
            100.0, "us-east-1", gpu=gpu, devices=1, weight_bytes=weight_bytes, vcpus=4, number=number
        )
        assert costs[0].instance.startswith({"a10g": "g5", "h200": "p5en"}[gpu]), "this GPU's own comes first"
        assert [item.usd_per_million for item in costs[1:]] == sorted(item.usd_per_million for item in costs[1:])
        assert not any(item.measured for item in costs)
        return [item.instance.partition(".")[0] for item in costs]

    assert "g4dn" not in others("a10g"), "16 GiB hold no model of 16 GB"
    assert "g4dn" in others("h200", weight_bytes=10**9)
    assert not {"g4dn", "p3"} & set(others("h200", weight_bytes=10**9, number="bf16")), "they have no bf16"


def test_a_processor_is_as_fast_as_another_with_its_vcpus() -> None:
    (cheapest,) = cost.elsewhere(10.0, "us-east-1", gpu=None, devices=1, weight_bytes=1, vcpus=2, number="bf16")
    assert cheapest.tokens_per_s == 10.0


def test_energy_that_cannot_be_known_is_none() -> None:
    assert energy.spent(10.0, 40.0, 3.0) == 30.0
    assert energy.spent(None, 40.0, 3.0) is None
    assert energy.spent(40.0, 10.0, 3.0) is None, "a counter that went back"
    assert energy.spent(10.0, 40.0, 0.5) is None, "a window that the counter is too coarse for"


def test_low_clocks_are_a_reason_for_doubt() -> None:
    samples = [Sample(float(at), "GPU-0", 1000, 1000, 90, 300.0, ("hardware-thermal",) * (at < 3)) for at in range(10)]
    assert doubts_of_clocks(samples) == ["clocks were held low in 30% of the run: hardware-thermal"]


@pytest.mark.parametrize(("devices", "degree"), [(1, 1), (2, 2), (3, 2), (8, 8), (12, 8)])
def test_tensor_parallelism_takes_the_largest_degree_that_divides(devices: int, degree: int) -> None:
    assert tensor_parallel(preset("llama-3.1-8b"), devices) == degree


def test_unknown_model_gets_the_nearest_name() -> None:
    with pytest.raises(ModelError, match=r"llama-3.1-8b"):
        shape("llama-3.1-8")
    tiny = shape("tiny")
    assert Shape.of(tiny.model) == tiny


class _Clock:
    """A processor's clock, beside one of the day that steps back."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def time(self) -> float:
        return 1e9 - self.now


class _Known:
    """Engine whose calls take known times of a clock."""

    def __init__(self, spend: Callable[[float], None], prefill: float, steps: list[float]) -> None:
        self._spend, self._prefill, self._steps = spend, prefill, steps

    def prefill(self, ids: object) -> str:
        self._spend(self._prefill)
        self._left = list(self._steps)
        return "token"

    def decode(self, token: object) -> str:
        self._spend(self._left.pop(0))
        return "token"

    def finish(self) -> dict[str, float]:
        return {"decode_s": sum(self._steps)}


def _measured(engine: _Known, timer: Timer, runs: int = 3, **more: Any) -> loop.Samples:
    return loop.measure(engine, lambda _: None, timer, new=len(engine._steps) + 1, runs=runs, warm_up=2, **more)


def _clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    for module in (door, loop):
        monkeypatch.setattr(module, "time", clock)
    return clock


def _spend(clock: _Clock) -> Callable[[float], None]:
    def spend(seconds: float) -> None:
        clock.now += seconds

    return spend


def test_an_engine_of_known_speed_gives_back_its_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _clock(monkeypatch)
    steps = [0.5, *[0.02] * 10, *[0.03] * 9]
    samples = _measured(_Known(_spend(clock), 0.25, steps), Timer(), turn=lambda: nullcontext(0.5))
    assert samples.prefill == pytest.approx((0.25,) * 3)
    assert len(samples.runs) == 3
    assert samples.runs[0] == pytest.approx(steps)
    assert samples.steps == pytest.approx([step for _ in range(3) for step in steps[2:]]), "the first tenth is dropped"
    assert samples.overhead == pytest.approx(0.0)
    assert samples.paused == (0.5,) * 3
    assert samples.clocks == pytest.approx(1.0)
    assert samples.drift == pytest.approx(0.5), "the second half takes half as long again"


def test_time_that_is_not_the_engines_is_the_harnesss(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _clock(monkeypatch)

    class Slow(Timer):
        def mark(self) -> None:
            clock.now += 0.01
            super().mark()

    samples = _measured(_Known(_spend(clock), 0.25, [0.03] * 8), Slow())
    assert samples.overhead == pytest.approx(0.25)
    doubts = _doubts(BenchJob(shape("tiny"), "bf16", "cpu", (1,), (16,), 9, 3, 2, "torch"), samples)
    assert "the harness took 25.0% of the time" in doubts


def test_waiting_for_a_device_is_the_engines_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = _clock(monkeypatch)
    waiting = Timer(synchronise=partial(_spend(clock), 0.02))  # as Metal has it
    samples = _measured(_Known(_spend(clock), 0.25, [0.01] * 8), waiting)
    assert samples.runs[0] == pytest.approx((0.03,) * 8)
    assert samples.overhead == pytest.approx(0.0)


@pytest.mark.parametrize(("processor", "gpu", "bound"), [(0.002, 0.0005, True), (0.0002, 0.002, False)])
def test_a_gpu_that_waits_for_launches_is_seen(
    processor: float, gpu: float, bound: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    need("torch")
    import torch

    from paddock.bench.engines.torch_roof import CudaTimer

    stream = Stream()
    monkeypatch.setattr(loop, "time", stream)
    monkeypatch.setattr(torch, "cuda", stream.cuda)
    samples = _measured(_Known(lambda _: stream.launch(processor, gpu), 0, [0] * 20), CudaTimer())
    assert samples.steps == pytest.approx([max(processor, gpu)] * 54)
    assert samples.overhead == pytest.approx(0.0)
    doubts = _doubts(BenchJob(shape("tiny"), "bf16", "cuda", (1,), (16,), 21, 3, 2, "torch"), samples)
    assert any(doubt.startswith("bound by launching") for doubt in doubts) == bound


def _doubts(job: BenchJob, samples: loop.Samples) -> list[str]:
    context = Context({}, None, 0, "us-east-1")
    return list(results._doubts(job, samples, {"bandwidth": [10.0] * 8, "others": None}, context))
