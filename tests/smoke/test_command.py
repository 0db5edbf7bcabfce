"""The smoke test on the console, where there is no GPU."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as xml

import pytest

from paddock.console.command import perform
from paddock.console.output import PRINTED_JSON
from paddock.gpu.host import imds
from paddock.smoke.command import Smoke, smoke
from paddock.smoke.errors import SmokeInputError
from paddock.smoke.runner import worker
from paddock.smoke.stages import table
from paddock.smoke.verdict.documents import document, junit
from paddock.smoke.verdict.model import MachineVerdict, Measurement, PairSpeed, SmokeDevice, StageResult
from paddock.smoke.verdict.text import summary
from paddock.tasks.program import main
from tests.support.nvml import Driver, installed
from tests.support.packages import need

GPU = SmokeDevice("GPU-0", "Tesla T4", 0, "t4")
REPORT = MachineVerdict(
    "2026-11-23T08:00:00Z", "node-7", 2, (GPU,),
    (
        StageResult("driver", 1, "pass", "driver 580.95.05"),
        StageResult("memory", 2, "fail", "3 words\x1b[31m", "GPU-0", 0, "reset", "reset it", seconds=2.5),
        StageResult("compute", 2, "warn", "slow", "GPU-0", 0,
            measurements=(Measurement("fp16 products", 12.0, "TFLOP/s", 14, 9, "a source"),)),
        StageResult("peers", 3, "skip", "it takes two GPUs"),
    ),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _no_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(imds, "_FIRMWARE", ())  # whatever machine runs the tests
    with installed(Driver([])) as driver:
        yield driver


def test_without_numpy_the_processors_test_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "find_spec", lambda _: None)
    assert perform(smoke.command, Smoke(cpu=True)) == 0
    output = capsys.readouterr().out
    assert "skip  memory     CPU    numpy is not installed here" in output
    assert "not tested: memory, compute, bandwidth, throttling" in output
    assert "fix: `./inv smoke --cpu` in a checkout installs it" in output
    assert smoke(Smoke(cpu=True, strict=True)).exit_code == 1
    assert smoke(Smoke(cpu=True, must_run=True)).exit_code == 1


@pytest.mark.parametrize("flags", [{"tier": 1}, {"tier": 2}, {"tier": 3, "strict": True, "must_run": True}])
def test_a_machine_without_a_gpu_is_not_tested(
    flags: dict[str, Any], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "find_spec", lambda _: pytest.fail("torch takes gigabytes, and nothing needs it"))
    assert perform(smoke.command, Smoke(**flags)) == 5
    assert "\nnot tested: no GPU (" in capsys.readouterr().out


def test_a_gpu_that_should_be_there_and_is_absent_fails(capsys: pytest.CaptureFixture[str]) -> None:
    assert smoke(Smoke(tier=1, expect="1")).exit_code == 1
    assert capsys.readouterr().out.startswith("fail  inventory")


@pytest.mark.e2e
def test_the_processor_passes_where_it_is_to_be_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    need("numpy")
    small: dict[str, dict[str, object]] = {
        "memory": {"at_most": 8 << 20}, "compute": {"size": 128}, "bandwidth": {"size": 8 << 20},
        "throttling": {"size": 128, "seconds": 0.3},
    }  # fmt: skip
    stages = [replace(stage, on_cpu={**(stage.on_cpu or {}), **small.get(stage.name, {})}) for stage in table.STAGES]
    monkeypatch.setattr(table, "STAGES", tuple(stages))
    assert perform(smoke.command, Smoke(cpu=True)) == 0
    output = capsys.readouterr().out
    assert "pass (tier 2" in output
    assert "the stages ran on the CPU" in output


def test_json_is_all_that_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert perform(smoke.command, Smoke(tier=1, json=PRINTED_JSON)) == 5
    printed = json.loads(capsys.readouterr().out)
    assert (printed["schema"], printed["verdict"], printed["tier"]) == (1, "skip", 1)
    assert "has no GPU" in printed["no_gpu"]


@pytest.mark.parametrize(("flags", "message"), [
    ({"tier": 4}, "--tier is 4"),
    ({"tier": 3, "soak": 0.0}, "--soak is 0 s"),
    ({"cpu": True, "python": "/no/python"}, "--python: cannot run /no/python: No such file"),
    ({"cpu": True, "tier": 1}, "--cpu: tier 1 reads what GPUs report"),
    ({"cpu": True, "gpus": ("0",)}, "--gpus is about GPUs, and --cpu tests none"),
    ({"tier": 1, "gpus": ("0",)}, "there are none: this machine has no GPU"),
])  # fmt: skip
def test_a_wrong_flag_is_explained(flags: dict[str, Any], message: str) -> None:
    with pytest.raises(SmokeInputError, match=message) as error:
        smoke(Smoke(**flags))
    assert error.value.exit_code == 2


@pytest.mark.parametrize("flag", ["--json", "--junit"])
def test_a_result_that_cannot_be_written_is_said_before_the_test(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inv", "smoke", "--tier", "1", flag, str(tmp_path / "missing" / "verdict")]) == 2
    out, err = capsys.readouterr()
    assert (out, "there is no folder" in err) == ("", True)


def test_junit_has_a_case_for_each_stage() -> None:
    suite = xml.fromstring(junit(REPORT)).find("testsuite")
    assert (suite.get("tests"), suite.get("failures"), suite.get("skipped")) == ("4", "1", "1")
    failure = suite.find("testcase[@name='memory GPU-0']/failure")
    assert (failure.get("message"), failure.text) == ("3 words\\x1b[31m", "reset it")


def test_the_document_begins_with_the_verdict() -> None:
    assert list(document(REPORT))[:3] == ["schema", "verdict", "action"]
    assert document(REPORT)["stages"][2]["measurements"][0]["fail"] == 9


def test_the_document_has_every_pair_and_what_was_not_tested() -> None:
    pairs = (PairSpeed(0, 1, 350.0, direct=True, floor=210.0), PairSpeed(1, 0, 348.0, direct=True, floor=210.0))
    stages = (
        StageResult("peers", 3, "pass", "", "all", pairs=pairs),
        StageResult("compute", 2, "skip", "torch is not installed here", "GPU-0", 0),
        StageResult("nvlink", 3, "skip", "no NVLink is active", "all", inapplicable=True),
    )
    written = document(replace(REPORT, tier=3, stages=stages))
    assert [(pair["source"], pair["target"], pair["gbs"]) for pair in written["stages"][0]["pairs"]] == [
        (0, 1, 350.0),
        (1, 0, 348.0),
    ]
    assert written["untested"] == ["compute"]


def test_the_summary_counts_devices_that_a_stage_missed() -> None:
    stages = (
        StageResult("compute", 2, "pass", "", "GPU-0", 0),
        StageResult("compute", 2, "skip", "in use", "GPU-1", 1),
        StageResult("soak", 3, "skip", "torch is not installed here", "GPU-0", 0),
    )
    assert "not tested: compute (1 of 2), soak" in list(summary(replace(REPORT, stages=stages)))
