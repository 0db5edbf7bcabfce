"""Giving way to others, priorities of the process, and metrics."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddock.gpu.inventory import inventory
from paddock.modes import metrics, priority
from paddock.modes.adaptive import ForeignLoad, Throttle, adapting, foreign_load
from paddock.modes.config import PRESETS
from paddock.modes.limiter import Limiter, Statistics
from paddock.modes.policy import Adaptive, of_mode
from tests.support.nvml import Driver, box, installed
from tests.support.packages import need
from tests.support.waiting import until


def test_others_load_halves_the_compute_and_comes_back_slowly() -> None:
    throttle = Throttle(Adaptive())
    loads = [ForeignLoad(0.5), ForeignLoad(0.0, (7,)), ForeignLoad(0.05), ForeignLoad()]
    assert [throttle.adapt(load) for load in loads] == pytest.approx([0.5, 0.25, 0.35, 0.45])
    assert throttle.apply(PRESETS["default"]).max_compute_usage_percent == pytest.approx(0.36)
    assert throttle.apply(PRESETS["aggressive"]) == PRESETS["aggressive"]


def test_what_is_left_never_falls_below_the_least() -> None:
    throttle = Throttle(Adaptive(least_compute=0.2))
    for _ in range(10):
        throttle.adapt(ForeignLoad(1.0))
    assert throttle.apply(PRESETS["default"]).max_compute_usage_percent == pytest.approx(0.2)


def test_a_desktop_counts_by_its_load_and_a_program_by_being_there() -> None:
    cards = box("H100", 1, utilisation=(70, 0), processes=((40, 500), (41, 500)), graphics=((50, 100),))
    with installed(Driver(cards)):
        (gpu,) = inventory(processes=True).gpus
    assert foreign_load(gpu, {40}, 0.5) == ForeignLoad(pytest.approx(0.2), (41,))
    assert foreign_load(gpu, {40, 41}, 0.9) == ForeignLoad(0.0, ())


def test_a_limiter_gives_way_while_others_compute() -> None:
    throttle = Throttle(Adaptive())
    policy = of_mode("default")
    limiter = Limiter(policy, current=lambda: throttle.apply(policy.resources))
    with installed(Driver(box("H100", 1, processes=((41, 500),)))):
        uuid = inventory().gpus[0].uuid or ""
        with adapting(throttle, lambda: inventory(processes=True), uuid, lambda: ((), 0.0), 0.01):
            until(lambda: throttle.factor <= 0.25)
    assert limiter.current is not None
    assert limiter.current().max_compute_usage_percent <= 0.2


class Fake:
    """psutil as a system has it: records what is set, and refuses what it is told to."""

    AccessDenied, Error = PermissionError, RuntimeError
    IDLE_PRIORITY_CLASS, BELOW_NORMAL_PRIORITY_CLASS, NORMAL_PRIORITY_CLASS = 64, 16384, 32
    IOPRIO_VERYLOW, IOPRIO_NORMAL = 0, 2

    def __init__(self, *, windows: bool = False, ionice: bool = True, denied: bool = False) -> None:
        self.WINDOWS = windows
        self.calls: list[tuple[Any, ...]] = []
        self._ionice, self._denied = ionice, denied

    def Process(self) -> Any:
        def record(name: str) -> Any:
            def call(*values: int) -> None:
                if self._denied:
                    raise PermissionError
                self.calls.append((name, *values))

            return call

        names = ["nice", *(["ionice"] if self._ionice else [])]
        return SimpleNamespace(**{name: record(name) for name in names})


@pytest.mark.parametrize(("mode", "system", "calls"), [
    ("conservative", {}, [("nice", 15), ("ionice", 3)]),
    ("aggressive", {}, [("nice", 0), ("ionice", 2, 4)]),
    ("conservative", {"ionice": False}, [("nice", 15)]),
    ("conservative", {"windows": True}, [("nice", 64), ("ionice", 0)]),
    ("default", {"windows": True}, [("nice", 16384), ("ionice", 0)]),
])  # fmt: skip
def test_priorities_are_set_in_each_systems_way(mode: Any, system: dict[str, bool], calls: list[Any]) -> None:
    psutil = Fake(**system)
    settings = priority.apply(of_mode(mode).resources, psutil)
    assert psutil.calls == calls
    assert [setting.applied for setting in settings] == [True, len(calls) == 2]


def test_a_refused_priority_says_why() -> None:
    settings = priority.apply(PRESETS["default"], Fake(denied=True))
    assert {setting.reason for setting in settings} == {"only root may raise a priority"}


def test_the_real_psutil_takes_every_mode(root: Path) -> None:
    need("psutil")
    program = (
        "from paddock.modes import config, priority\n"
        "for mode in ('aggressive', 'default', 'conservative'):\n"
        "    print([s.applied for s in priority.apply(config.PRESETS[mode])])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout == "[True, True]\n" * 3


def test_metrics_have_the_guides_names() -> None:
    statistics = Statistics(8, 2, vram_limit_errors=1)
    assert metrics.values(statistics)["inference.throttle_rate"] == 0.25
    need("prometheus_client")
    import prometheus_client as prometheus

    registry = prometheus.CollectorRegistry()
    registry.register(metrics.Collector(lambda: statistics))
    text = prometheus.generate_latest(registry).decode()
    for line in ("inference_requests_total 8.0", "inference_requests_throttled 2.0", "inference_throttle_rate 0.25",
                 "inference_vram_limit_errors_total 1.0"):  # fmt: skip
        assert f"\n{line}\n" in text
