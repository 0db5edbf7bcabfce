"""The third tier on simulated GPUs: what they do together."""

from __future__ import annotations

import pytest

from paddock.smoke.stages import table
from paddock.smoke.verdict.model import StageResult
from tests.smoke.machines import GPU_0, GPU_1, results, verdict
from tests.support.nvml import Driver, box


@pytest.mark.parametrize("fault", ["wrong-product", "hangs"])
def test_a_gpu_that_failed_is_not_worked_with_the_others(fault: str) -> None:
    report = verdict(Driver(box("H100", 3)), tier=3, soak=1.0, faults={GPU_1: fault})
    together = [stage for stage in report.stages if stage.stage == "all-reduce"]
    assert [(stage.status, stage.measurements[0].name) for stage in together] == [("pass", "all-reduce of 2")]
    pairs = next(stage.pairs for stage in report.stages if stage.stage == "peers")
    assert {(pair.source, pair.target) for pair in pairs} == {(0, 2), (2, 0)}


def test_a_sum_that_is_wrong_or_slow_is_seen() -> None:
    wrong = verdict(Driver(box("H100", 2)), tier=3, soak=1.0, faults={GPU_0: "bad-sum"})
    assert results(wrong, "fail") == [("all-reduce", None, "reset")]
    slow = verdict(Driver(box("H100", 8)), tier=3, soak=1.0, faults={GPU_0: "slow-sum"})
    assert results(slow, "warn") == [("all-reduce", None, "none")]


@pytest.mark.parametrize(("fault", "evidence"), [
    ("slow-pair", "slow for their connection: 0 to 1 (150 GB/s)"),
    ("detour", "NVLinks join them, and copies go through the host: 0 to 1 (350 GB/s)"),
])  # fmt: skip
def test_a_pair_that_differs_from_its_like_is_a_warning(fault: str, evidence: str) -> None:
    report = verdict(Driver(box("H100", 4)), tier=3, soak=1.0, faults={GPU_0: fault})
    assert results(report, "warn") == [("peers", None, "none")]
    stage = next(stage for stage in report.stages if stage.stage == "peers")
    assert (stage.evidence, len(stage.pairs)) == (evidence, 12)


def test_nvlinks_that_suffer_under_load_are_seen() -> None:
    driver = Driver(box("H100", 2))

    def break_links(result: StageResult) -> None:
        if result.stage == "all-reduce":
            driver.cards[0].dead_links = frozenset({4})
            driver.cards[1].link_errors = {2: 7}

    report = verdict(driver, tier=3, soak=1.0, notify=break_links)
    seen = {stage.index: stage.evidence for stage in report.stages if stage.stage == "nvlink"}
    assert seen == {
        0: "GPU 0: 1 NVLinks went down under load (4)",
        1: "GPU 1: NVLink errors under load (link 2: 7)",
    }


def test_one_gpu_has_nothing_to_test_together() -> None:
    report = verdict(Driver(box("T4", 1)), tier=3, soak=1.0)
    skipped = [stage for stage in report.stages if stage.tier == 3 and stage.status == "skip"]
    assert [stage.stage for stage in skipped] == ["peers", "all-reduce", "nvlink"]
    assert (report.untested, report.exit_code(must_run=True)) == ((), 0)


def test_the_third_tier_tests_most_of_the_memory() -> None:
    second, third = (next(s for s in table.stages(tier, 60) if s.name == "memory") for tier in (2, 3))
    assert (second.on_gpu["at_most"], third.on_gpu) == (8 << 30, {"part": 0.8, "at_most": None})
    memory = next(stage for stage in verdict(Driver(box("H100", 1)), tier=2).stages if stage.stage == "memory")
    assert memory.evidence == "8.0 of 80.0 GiB (10%) kept five patterns"
