"""The smoke test of a machine without a GPU, and of one whose driver is made up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.door import Door

_HIDDEN = {"CUDA_VISIBLE_DEVICES": "", "PADDOCK_INSTANCE_TYPE": ""}


@pytest.mark.door("smoke", "a machine without a GPU")
def test_without_a_gpu_nothing_is_tested_and_nothing_fetched(inv: Door, nvml_library: Path) -> None:
    env = {**_HIDDEN, "LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML_COUNT": "0"}
    shown = inv("smoke", "--tier", "1", "--json", "verdict.json", env=env)
    assert shown.returncode == 5, shown.stderr
    assert "\nnot tested: no GPU (" in shown.stdout
    written = json.loads((inv.folder / "verdict.json").read_text())
    assert (written["verdict"], bool(written["no_gpu"])) == ("skip", True)


@pytest.mark.door("smoke", "a made-up driver library of 8 H100s, one lost")
def test_a_lost_gpu_fails_the_first_tier(inv: Door, nvml_library: Path) -> None:
    env = {**_HIDDEN, "LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML_COUNT": "8", "FAKE_NVML_LOST": "2"}
    failed = inv("smoke", "--tier", "1", env=env)
    assert failed.returncode == 1, failed.stderr
    assert "fail (tier 1" in failed.stdout
    passed = inv("smoke", "--tier", "1", "--gpus", "0,1", "--json", env={**env, "FAKE_NVML_LOST": "8"})
    assert (passed.returncode, json.loads(passed.stdout)["verdict"]) == (0, "pass"), passed.stdout


@pytest.mark.e2e
@pytest.mark.door("smoke", "this machine's processor", interrupted=True)
def test_the_processor_is_tested_and_ctrl_c_ends_it(inv: Door) -> None:
    process = inv.start("smoke", "--cpu")
    assert process.stdout
    assert "memory" in process.stdout.readline()
    code, out, err = inv.interrupt(process)
    assert (code, err) == (130, "")
    assert "interrupted; " in out
    assert inv("smoke", "--cpu").returncode == 0
