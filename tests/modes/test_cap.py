"""Caps on a GPU: set, refused, and given back also after a kill. The driver is made up, the processes are real."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.modes import cap
from paddock.modes.cap import Applied, capped, recover
from paddock.modes.policy import GpuCap
from tests.support.waiting import until

UUID = "GPU-00000000-aaaa-bbbb-cccc-000000002330"
HELD = f"""
import sys
from paddock.modes.cap import capped
from paddock.modes.policy import GpuCap
with capped({UUID!r}, GpuCap(power_watts=300)) as cap:
    print(cap.applied, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def environ(nvml_library: Path, tmp_path: Path) -> dict[str, str]:
    state = tmp_path / "driver"
    state.mkdir()
    own = {"LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML_STATE": str(state), "XDG_STATE_HOME": str(tmp_path / "own")}
    return {**os.environ, **own}


def limit(environ: dict[str, str]) -> str:
    path = Path(environ["FAKE_NVML_STATE"], "limit-0")
    return path.read_text() if path.exists() else ""


def test_a_cap_holds_inside_the_block(environ: dict[str, str]) -> None:
    with capped(UUID, GpuCap(power_watts=300, clock_mhz=1200), environ) as applied:
        assert applied == Applied(True, before_watts=700)
        assert (limit(environ), Path(environ["FAKE_NVML_STATE"], "clock-0").read_text()) == ("300000", "1200")
        with capped(UUID, GpuCap(power_watts=400), environ) as second:
            assert second == Applied(False, "another benchmark caps this GPU")
    assert (limit(environ), Path(environ["FAKE_NVML_STATE"], "clock-0").read_text()) == ("700000", "0")


def test_a_cap_is_given_back_after_a_kill(environ: dict[str, str], root: Path) -> None:
    command = [sys.executable, "-c", HELD]
    with subprocess.Popen(
        command, cwd=root, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "True\n"
        assert limit(environ) == "300000"
        process.send_signal(signal.SIGKILL)
    until(lambda: limit(environ) == "700000")


def kill_the_guard(environ: dict[str, str], root: Path, cap: str) -> None:
    """Cap the GPU, and kill the benchmark and its guard at once: nobody gives anything back."""
    text = f"""
import os, signal, subprocess
from paddock.modes import cap
from paddock.modes.policy import GpuCap
started = []
popen = subprocess.Popen
subprocess.Popen = lambda *a, **o: started.append(popen(*a, **o)) or started[-1]
with cap.capped({UUID!r}, GpuCap({cap})) as applied:
    assert applied.applied, applied
    os.kill(started[0].pid, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)
"""
    subprocess.run([sys.executable, "-c", text], cwd=root, env=environ, check=False)


def test_all_that_a_killed_guard_left_is_given_back_before_the_next_run(environ: dict[str, str], root: Path) -> None:
    state = Path(environ["FAKE_NVML_STATE"])
    kill_the_guard(environ, root, "power_watts=300, clock_mhz=1200")
    assert (limit(environ), (state / "clock-0").read_text()) == ("300000", "1200")
    assert recover([UUID], environ) == [f"limits of {UUID} that an earlier benchmark had changed were given back"]
    assert (limit(environ), (state / "clock-0").read_text()) == ("700000", "0")
    assert recover([UUID], environ) == []


def test_the_next_cap_gives_back_what_a_killed_guard_left(environ: dict[str, str], root: Path) -> None:
    kill_the_guard(environ, root, "power_watts=400, clock_mhz=1200")
    with capped(UUID, GpuCap(power_watts=300), environ) as applied:
        assert applied == Applied(True, before_watts=700)
    assert (limit(environ), Path(environ["FAKE_NVML_STATE"], "clock-0").read_text()) == ("700000", "0")
    assert list(Path(environ["XDG_STATE_HOME"], "paddock/bench").glob("*.json")) == []


def test_limits_of_a_benchmark_that_runs_stay(environ: dict[str, str]) -> None:
    with capped(UUID, GpuCap(power_watts=300), environ):
        (note,) = recover([UUID], environ)
        assert "could not be given back: another benchmark caps this GPU" in note
        assert limit(environ) == "300000"


def test_a_driver_that_hangs_is_a_cap_that_does_not_hold(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cap, "ANSWERS_WITHIN", 0.5)
    monkeypatch.setattr(cap, "_ENDS_WITHIN", 0.5)
    monkeypatch.setattr(cap, "_START", "import time; time.sleep(2)")
    with capped(UUID, GpuCap(power_watts=300), environ) as applied:
        assert not applied.applied
        assert "did not answer within" in applied.reason


def test_a_refusal_says_why(environ: dict[str, str]) -> None:
    with capped(UUID, GpuCap(power_watts=900), environ) as applied:
        assert applied == Applied(False, "900 W is outside what this GPU takes: 200 to 700")
    del environ["FAKE_NVML_STATE"]
    with capped(UUID, GpuCap(power_watts=300), environ) as applied:
        assert not applied.applied
        assert applied.reason
