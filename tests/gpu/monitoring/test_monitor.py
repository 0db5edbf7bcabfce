"""Samples at an even pace, and what is said of them at the end."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.gpu import serialization
from paddock.gpu.commands.monitor import drawn
from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.model import Ecc, Gpu, Inventory, Machine, Memory, NvLink, Pcie, Power, Temperature, Utilisation
from paddock.gpu.monitoring.sampling import METRICS, Sample, monitor, record, select_metrics
from paddock.gpu.monitoring.summary import Summary, Weights, watch
from tests.support.nvml import Driver, Fault, box


class Clock:
    """Time that passes only while somebody sleeps, or where a test says so."""

    def __init__(self, late: dict[int, float] | None = None) -> None:
        self.now, self.sleeps, self.late = 100.0, 0, late or {}

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds + self.late.get(self.sleeps, 0.0)
        self.sleeps += 1


@pytest.fixture
def eight(driver: Callable[[Driver], Driver]) -> Driver:
    return driver(Driver(box("H100", 8, utilisation=(90, 40))))


def test_one_sample_per_interval_up_to_the_duration(eight: Driver) -> None:
    clock = Clock()
    samples = list(monitor(0.5, 2.0, clock=clock, sleep=clock.sleep))
    assert [sample.at for sample in samples] == [0.0, 0.5, 1.0, 1.5, 2.0]
    assert {len(sample.gpus) for sample in samples} == {8}


def test_a_late_sample_does_not_shift_later_ones(eight: Driver) -> None:
    clock = Clock(late={1: 0.3, 3: 2.5})
    samples = list(monitor(1.0, 9.0, clock=clock, sleep=clock.sleep))
    assert [round(sample.at, 6) for sample in samples] == [0, 1, 2.3, 3, 6.5, 7, 8, 9]
    assert [sample.missed for sample in samples] == [0, 0, 0, 0, 0, 2, 0, 0]
    assert watch(samples, select_metrics(())).missed == 2


def test_samples_keep_the_interval_in_real_time(eight: Driver) -> None:
    start = time.monotonic()
    samples = list(monitor(0.1, 0.5))
    beats = list(accumulate((1 + sample.missed for sample in samples), initial=-1))[1:]
    assert all(sample.at >= beat * 0.1 - 1e-6 for beat, sample in zip(beats, samples, strict=True))
    assert 0 <= beats[-1] <= 5
    assert time.monotonic() - start >= 0.5


@pytest.mark.parametrize(("options", "message"), [
    ({"interval": 0.0}, "interval of 0 s"),
    ({"interval": -1.0}, "interval of -1 s"),
    ({"interval": math.nan}, "interval of nan s"),
    ({"interval": math.inf}, "interval of inf s"),
    ({"duration": -1.0}, "duration of -1 s"),
    ({"duration": math.nan}, "duration of nan s"),
    ({"metrics": ["utilizatoin"]}, r"unknown metric 'utilizatoin'(.|\n)*did you mean utilisation\?"),
    ({"metrics": ["x"]}, "one of utilisation, memory_activity"),
])  # fmt: skip
def test_bad_input_is_said_before_anything_is_sampled(eight: Driver, options: dict[str, Any], message: str) -> None:
    with pytest.raises(GpuInputError, match=message) as caught:
        monitor(**options)
    assert caught.value.exit_code == 2


def test_slow_metrics_are_read_only_when_asked_for(eight: Driver) -> None:
    (sample,) = monitor(1.0, 0.0)
    assert eight.calls["nvmlDeviceGetPcieThroughput"] == 0
    assert sample.gpus[0].pcie.sent is None
    (sample,) = monitor(1.0, 0.0, ["pcie_sent"])
    assert METRICS["pcie_sent"].of(sample.gpus[0]) == 250.0


def test_a_line_of_json_has_the_requested_metrics(eight: Driver) -> None:
    (sample,) = monitor(1.0, 0.0)
    document = json.loads(json.dumps(record(sample, select_metrics(["power", "utilisation", "power"]))))
    assert list(document) == ["schema", "taken_at", "at", "gpus"]
    assert list(document["gpus"][3]) == ["index", "uuid", "state", "power", "utilisation", "throttle"]
    assert (document["gpus"][3]["power"], document["gpus"][3]["utilisation"]) == (71.432, 90)


# --- the summary

GPU = Gpu(
    0, "GPU-0", "NVIDIA H100 80GB HBM3", "nvidia", memory=Memory(80_000, 40_000, 40_000), power=Power(300.0, 700.0),
    utilisation=Utilisation(90, 40), temperature=Temperature(60), throttle=(), pcie=Pcie(5, 16, 5, 16, 0),
    ecc=Ecc(True, 0, 0),
)  # fmt: skip


def series(*beats: tuple[float, *tuple[Gpu, ...]]) -> list[Sample]:
    return [Sample(at, f"2026-11-20T10:00:{at:06.3f}Z", gpus) for at, *gpus_ in beats for gpus in [tuple(gpus_)]]


def summed(*beats: tuple[float, *tuple[Gpu, ...]], job: tuple[str, ...] = ()) -> Summary:
    return watch(series(*beats), tuple(METRICS.values()), job=job)


def busy(percent: int, **changes: Any) -> Gpu:
    return replace(GPU, utilisation=Utilisation(percent, 0), **changes)


def texts(summary: Summary) -> dict[str, str]:
    return {insight.id: insight.text for insight in summary.insights}


def test_values_are_weighted_by_their_duration() -> None:
    summary = summed((0, busy(0)), (9, busy(100)), (10, busy(100)))
    spread = next(item for item in summary.gpus[0].metrics if item.metric == "utilisation")
    assert (spread.mean, spread.median, spread.p95, spread.max) == (10.0, 0, 100, 100)
    assert (summary.samples, summary.seconds) == (3, 10)


def test_one_sample_is_its_own_summary() -> None:
    summary = summed((0, busy(42)))
    spread = summary.gpus[0].metrics[0]
    assert (spread.mean, spread.median, spread.p95, spread.max) == (42, 42, 42, 42)
    assert (summary.gpus[0].energy, summary.insights) == (None, ())


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(1, 50)), min_size=1, max_size=40))
def test_the_spread_is_that_of_the_values_written_out(pairs: list[tuple[int, int]]) -> None:
    weights = Weights()
    for value, seconds in pairs:
        weights.add(value, float(seconds))
    every = sorted(value for value, seconds in pairs for _ in range(seconds))
    spread = weights.spread(METRICS["utilisation"])
    assert spread.mean == pytest.approx(sum(every) / len(every), abs=1e-3)
    assert spread.median == every[math.ceil(len(every) * 0.5) - 1]
    assert spread.p95 == every[math.ceil(len(every) * 0.95) - 1]
    assert spread.max == every[-1]


def test_energy_is_the_counter_or_power_over_time() -> None:
    def at(watt: float, joule: float | None) -> Gpu:
        return replace(GPU, power=Power(watt, 700.0, energy=joule))

    (counted,) = summed((0, at(300, 5000.0)), (1, at(500, 5390.0)), (3, at(500, 6395.5))).gpus
    assert (counted.energy, counted.energy_source) == (1395.5, "counter")
    (integrated,) = summed((0, at(300, None)), (1, at(500, None)), (3, at(500, None))).gpus
    assert (integrated.energy, integrated.energy_source) == (1400.0, "integrated")
    (reloaded,) = summed((0, at(300, 5000.0)), (1, at(500, 12.0)), (3, at(500, 900.0))).gpus
    assert (reloaded.energy, reloaded.energy_source) == (1400.0, "integrated")


@pytest.mark.parametrize(("gpu", "insight", "text"), [
    (busy(3), "idle", "GPU 0 was idle 90 % of the time"),
    (busy(90, throttle=("software-thermal",), temperature=Temperature(91)), "thermal-throttling",
     "slowed down by heat 90 % of the time"),
    (busy(90, throttle=("hardware-slowdown", "hardware-thermal")), "thermal-throttling", "heat 90 %"),
    (busy(90, throttle=("hardware-slowdown",)), "hardware-slowdown", "by its hardware 90 %"),
    (busy(90, throttle=("hardware-slowdown", "hardware-power-brake")), "power-brake", "brake pulled 90 %"),
    (busy(90, throttle=("software-power-cap",)), "power-limit", "limit of 700 W 90 % of the time, which is usual"),
    (busy(90, memory=Memory(80_000, 79_000, 1000)), "memory-pressure", "full 90 % of the time, at most 99 %"),
])  # fmt: skip
def test_each_insight_has_its_condition(gpu: Gpu, insight: str, text: str) -> None:
    insights = texts(summed((0, busy(90)), (10, gpu), (100, gpu)))
    assert list(insights) == [insight]
    assert text in insights[insight]


def test_what_was_short_or_usual_is_not() -> None:
    capped = busy(90, throttle=("software-power-cap", "application-clocks"))
    hot = busy(90, throttle=("software-thermal",))
    full = busy(90, memory=Memory(80_000, 75_000, 5000))
    assert summed((0, busy(3)), (40, capped), (80, hot), (84, full), (100, full)).insights == ()


def test_imbalance_compares_the_gpus_of_one_job() -> None:
    gpus = [busy(percent, index=n, uuid=f"GPU-{n}") for n, percent in enumerate((95, 60, 95, 0))]
    insights = texts(summed((0, *gpus), (60, *gpus)))
    assert "GPU 1 worked 60 % and GPU 0 95 %" in insights["imbalance"]
    assert list(texts(summed((0, *gpus), (60, *gpus), job=("GPU-0", "GPU-2")))) == ["idle"]
    assert "GPU 3 worked 0 %" in texts(summed((0, *gpus), (60, *gpus), job=("GPU-0", "GPU-3")))["imbalance"]


def test_a_lost_gpu_is_reported_and_keeps_its_samples() -> None:
    lost = Gpu(0, "GPU-0", GPU.name, "nvidia", "lost", "it fell off the bus")
    summary = summed((0, GPU), (10, GPU), (20, lost), (30, lost))
    assert "did not answer from 20 s on: it fell off the bus" in texts(summary)["lost"]
    assert summary.gpus[0].metrics[0].mean == 90
    back = summed((0, GPU), (10, lost), (20, GPU), (30, GPU))
    assert "came back after 20 s" in texts(back)["lost"]


def test_a_gpu_lost_while_sampling_is_a_warning(eight: Driver) -> None:
    clock = Clock()

    def losing() -> Iterator[Sample]:
        for sample in monitor(1.0, 5.0, clock=clock, sleep=clock.sleep):
            yield sample
            eight.cards[2].lost = sample.at >= 2

    summary = watch(losing(), select_metrics(()))
    assert summary.samples == 6
    assert [(item.id, item.gpu) for item in summary.insights if item.severity == "warning"] == [
        ("lost", summary.gpus[2].uuid)
    ]


def test_new_errors_are_reported() -> None:
    worse = replace(GPU, ecc=Ecc(True, 0, 2), pcie=Pcie(5, 16, 5, 16, 400))
    insights = texts(summed((0, GPU), (60, worse)))
    assert "2 uncorrectable memory errors" in insights["ecc"]
    assert "repeated 400 PCIe packets, more than 31 a minute" in insights["pcie-replays"]
    assert texts(summed((0, worse), (60, worse))) == {}


def test_nvlinks_are_compared_before_and_after() -> None:
    def links(*pairs: tuple[bool, int]) -> Inventory:
        document = tuple(NvLink(n, active, "switch", errors=errors) for n, (active, errors) in enumerate(pairs))
        return Inventory("", Machine("node", "linux", "x86_64"), "nvml", (replace(GPU, nvlinks=document),))

    looks = iter([links((True, 5), (True, 0), (False, 0)), links((True, 9), (False, 0), (False, 0))])
    insights = texts(watch(series((0, GPU), (60, GPU)), select_metrics(()), read_inventory=lambda: next(looks)))
    assert insights == {"nvlink-down": "GPU 0 lost NVLinks 1", "nvlink-errors": "GPU 0 had 4 errors on its NVLinks"}


def test_ctrl_c_ends_with_a_summary() -> None:
    def until_interrupted() -> Iterator[Sample]:
        yield from series((0, GPU), (1, GPU))
        raise KeyboardInterrupt

    summary = watch(until_interrupted(), select_metrics(()))
    assert (summary.samples, summary.ended) == (2, "interrupted")
    assert summary.gpus[0].metrics[0].mean == 90


def test_a_driver_that_fails_ends_with_a_summary(eight: Driver) -> None:
    clock = Clock()

    def vanishing() -> Iterator[Sample]:
        for sample in monitor(1.0, None, clock=clock, sleep=clock.sleep):
            yield sample
            if sample.at >= 3:
                raise GpuError("the driver is gone")

    summary = watch(vanishing(), select_metrics(()))
    assert (summary.samples, summary.ended) == (4, "the driver is gone")


def test_the_summary_is_json(eight: Driver) -> None:
    clock = Clock()
    summary = watch(monitor(1.0, 3.0, clock=clock, sleep=clock.sleep), select_metrics(()))
    document = json.loads(json.dumps(serialization.data(summary)))
    assert document["schema"] == 1
    assert [item["metric"] for item in document["gpus"][7]["metrics"]] == [item.name for item in select_metrics(())]


def test_a_failed_call_is_a_gap(eight: Driver) -> None:
    eight.cards[0].faults["nvmlDeviceGetUtilizationRates"] = Fault(3)
    (sample,) = monitor(1.0, 0.0)
    summary = watch([sample], select_metrics(()))
    assert "utilisation" not in [item.metric for item in summary.gpus[0].metrics]
    assert "utilisation" in [item.metric for item in summary.gpus[1].metrics]


# --- on a terminal


def test_the_table_shows_every_gpu_and_why_one_is_lost(eight: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    eight.cards[2].lost = True
    eight.cards[4].reasons = 0x48
    (sample,) = monitor(1.0, 0.0)
    head, *lines = list(drawn(sample, select_metrics(())))[1:]
    assert len(lines) == 8
    assert "hardware-slowdown, hardware-thermal" in lines[4]
    assert "lost: " in lines[2]
    assert "power W" in head
    assert lines[0].index("90") + 2 == head.index("utilisation %") + len("utilisation %")
    monkeypatch.setenv("COLUMNS", "80")
    narrow = list(drawn(sample, select_metrics(())))
    assert "hardware-slowdown, hardware-thermal" in narrow[6]
    assert narrow[-1].startswith("not shown for lack of width: name")


def test_sampling_eight_gpus_costs_under_half_a_percent_of_a_core(eight: Driver) -> None:
    clock = Clock()
    metrics = select_metrics(())
    samples = monitor(1.0, 400.0, clock=clock, sleep=clock.sleep)
    next(samples)
    start = time.process_time()
    summary = watch(samples, metrics, show=lambda sample: None)
    assert (time.process_time() - start) / summary.samples < 0.005


def test_utilization_is_another_spelling_of_utilisation() -> None:
    assert [metric.name for metric in select_metrics(("utilization", "power"))] == ["utilisation", "power"]
