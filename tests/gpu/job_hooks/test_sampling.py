"""The sampler beside a job: a real process on a made-up driver library."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.gpu.job_hooks import record, sampling
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runners are Linux")
BUSY = 30.0
"""Seconds in which a process that yields to all others ends on a busy machine."""


@pytest.fixture
def sampler(tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a real one on a made-up driver library, whose runner is this test; its folder."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
    sampling.start(tmp_path, os.getpid())
    until(lambda: record.read(tmp_path) is not None)
    yield tmp_path
    sampling.stop(tmp_path, BUSY)


def begin(folder: Path) -> None:
    """Until the kernel has its command line, a moment after it was started."""
    sampling.start(folder, os.getpid())
    until(lambda: bool(sampling.running(folder)))


def pid_of(folder: Path) -> int:
    (sampler,) = sampling.running(folder)
    return sampler.pid


def test_it_yields_to_all_and_takes_a_last_sample_at_sigterm(sampler: Path) -> None:
    assert os.getpriority(os.PRIO_PROCESS, pid_of(sampler)) == 19
    stopped = sampling.stop(sampler, BUSY)
    assert not stopped.early
    recorded = record.read(sampler)
    assert recorded.summary.samples >= 2
    assert recorded.summary.gpus[0].memory_total == 81559


def test_a_killed_sampler_leaves_its_record(sampler: Path) -> None:
    os.kill(pid_of(sampler), signal.SIGKILL)
    until(lambda: not sampling.running(sampler))
    stopped = sampling.stop(sampler, BUSY)
    assert stopped.early
    recorded = record.read(sampler)
    assert recorded.summary.samples >= 1


def test_a_job_that_deletes_files_keeps_its_record(sampler: Path) -> None:
    for file in sampler.iterdir():
        file.unlink()
    sampler.rmdir()
    stopped = sampling.stop(sampler, BUSY)
    assert not stopped.early
    assert record.read(sampler) is not None
    assert not sampling.running(sampler)


def test_no_other_jobs_sampler_is_ended(sampler: Path) -> None:
    assert sampling.stop(sampler / "_temp") is None
    assert sampling.running(sampler)


def test_even_a_short_job_has_a_sample_of_its_own_gpus(
    tmp_path: Path, nvml_library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(nvml_library))
    monkeypatch.setenv("FAKE_NVML_COUNT", "2")
    for devices, count in (("all", 2), ("GPU-of-another", 0)):
        monkeypatch.setenv("NVIDIA_VISIBLE_DEVICES", devices)
        begin(tmp_path)
        stopped = sampling.stop(tmp_path, BUSY)
        assert not stopped.early
        recorded = record.read(tmp_path)
        assert recorded.summary.samples >= 1
        assert len(recorded.summary.gpus) == count


def test_it_ends_with_its_runner(tmp_path: Path, nvml_library: Path) -> None:
    runner = textwrap.dedent("""
        import os, sys
        from pathlib import Path
        from paddock.gpu.job_hooks import record, sampling
        sampling.start(Path(sys.argv[1]), os.getpid())
        while record.read(Path(sys.argv[1])) is None: pass
    """)
    environ = {**os.environ, "LD_LIBRARY_PATH": str(nvml_library)}
    subprocess.run([sys.executable, "-c", runner, str(tmp_path)], check=True, env=environ)
    until(lambda: not sampling.running(tmp_path))


@pytest.mark.explore
def test_it_costs_next_to_nothing(sampler: Path) -> None:
    """Measured as 0.06 % of a core; loose, since other tests keep the machine busy."""

    def ticks() -> int:
        fields = Path(f"/proc/{pid_of(sampler)}/stat").read_text().rpartition(")")[2].split()
        return int(fields[11]) + int(fields[12])

    before, start = ticks(), time.monotonic()
    time.sleep(2)
    assert (ticks() - before) / os.sysconf("SC_CLK_TCK") < 0.02 * (time.monotonic() - start)
