"""Hook after a job: its processes end, and its use of the GPUs is reported."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu import serialization
from paddock.gpu.host import bounded
from paddock.gpu.job_hooks import ccache, completed, files, leftovers, record
from paddock.gpu.job_hooks.ccache import Compilations
from paddock.gpu.job_hooks.record import Record
from paddock.gpu.job_hooks.report import JobUsage, markdown
from paddock.gpu.monitoring.insights import Insight
from paddock.gpu.monitoring.summary import GpuSummary, Slowed, Spread, Summary
from tests.support.golden import same_as_golden
from tests.support.job_machine import HOSTS, OWN, machine
from tests.support.nvml import Driver, Fault, card
from tests.support.waiting import until

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runners are Linux")

GOLDEN = Path(__file__).parent / "golden"
TRACKING = "github_0123"
WORKER = "import time; print('up', flush=True); time.sleep(60)"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + WORKER

Install = Callable[[str | Driver], Driver]


@pytest.fixture
def work() -> Iterator[Callable[..., int]]:
    """Start a real process of this test, with a runner's mark."""
    children: list[subprocess.Popen[str]] = []

    def go(program: str = WORKER, tracking: str = TRACKING) -> int:
        environ = {"RUNNER_TRACKING_ID": tracking, "PATH": os.environ["PATH"]}
        child = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environ)
        children.append(child)
        assert child.stdout.readline() == "up\n"
        return child.pid

    yield go
    for child in children:
        child.kill()
        child.communicate()


def alive(pid: int) -> bool:
    """Ended children of a test stay as zombies until it looks after them."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"


def test_a_process_listed_by_the_driver_is_ended(
    driver: Install, work: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, foreign = work(), work(tracking="github_of_another_job")
    root = machine(tmp_path / "root", HOSTS, own, foreign)
    driver(Driver([card("H100", used_mib=900, processes=[(own, 512), (foreign, 388)])]))
    completed.run(environ={"PADDOCK_GPUS": "1", "RUNNER_TRACKING_ID": TRACKING}, root=root)
    output = capsys.readouterr().out
    assert (alive(own), alive(foreign)) == (False, True)
    assert f"(pid {own}, 512 MiB of GPU memory) was ended" in output
    assert str(foreign) not in output
    assert "GPU 0: 900 MiB of its memory is still in use" in output


def test_a_process_on_the_device_is_ended_in_a_container(
    driver: Install, work: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pid, idle = work(tracking=""), work()
    root = machine(tmp_path / "root", OWN, pid, device="/dev/nvidia0")
    machine(tmp_path / "more", OWN, idle)
    (root / "proc" / str(idle)).symlink_to(tmp_path / "more/proc" / str(idle))
    driver(Driver([card("H100", processes=[(idle, 512)])]))  # the host's pid, which is not this process
    completed.run(environ={"PADDOCK_GPUS": "1", "RUNNER_TRACKING_ID": TRACKING}, root=root)
    assert (alive(pid), alive(idle)) == (False, True)
    assert f"(pid {pid}, its GPU memory is not known) was ended" in capsys.readouterr().out


def test_all_of_many_processes_are_ended_and_some_are_listed(
    driver: Install, work: Callable[..., int], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pids = [work() for _ in range(11)]
    driver("h100")
    completed.run(environ={"PADDOCK_GPUS": "1"}, root=machine(tmp_path, OWN, *pids, device="/dev/nvidia0"))
    output = capsys.readouterr().out.splitlines()
    assert not any(map(alive, pids))
    assert len(output) == 10
    assert output[-1].endswith("::and 2 processes more")


def test_one_that_will_not_end_is_killed(work: Callable[..., int], tmp_path: Path) -> None:
    pid = work(STUBBORN)
    root = machine(tmp_path, OWN, pid, device="/dev/nvidia0")
    (ended,) = leftovers.end(leftovers.find({}, None, root), patience=0.3, root=root)
    assert not alive(pid)
    assert str(ended).endswith("had to be killed")


def test_neither_the_hook_nor_what_it_descends_from_is_a_leftover(tmp_path: Path) -> None:
    root = machine(tmp_path, OWN, os.getpid(), os.getppid(), device="/dev/nvidia0")
    assert leftovers.find({os.getpid(): 1, os.getppid(): 1}, None, root) == ()


def test_all_time_limits_together_fit_into_the_scripts_limit(root: Path) -> None:
    together, of = re.findall(r"together are ([\d.]+) of the (\d+)", Path(completed.__file__).read_text())[0]
    looks, wipes = 2 * (completed._READ_SECONDS + bounded._KILLED_WITHIN), 2 * completed._WIPE_SECONDS
    assert float(together) == pytest.approx(3.5 + 5.5 + 1 + looks + wipes)
    assert f"timeout -k 0.5 {of} " in (root / "runners/hooks/job-completed.sh").read_text()
    assert float(of) - float(together) > 1.5, "to start Python, and to be late"


def test_a_driver_that_failed_during_the_job_is_reported(
    driver: Install, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    driver("h100").faults["nvmlInitWithFlags"] = Fault(9)
    environ = {"PADDOCK_GPUS": "1", "RUNNER_TEMP": str(tmp_path / "_temp"), "GITHUB_STEP_SUMMARY": str(tmp_path / "s")}
    completed.run(environ=environ, root=machine(tmp_path, OWN))
    assert capsys.readouterr().out == ""  # the job was refused, and told why
    (tmp_path / "_temp/_paddock").mkdir(parents=True)
    (tmp_path / "_temp/_paddock/sampler.log").touch()
    record.write(tmp_path / "_temp/_paddock", summed(BUSY))
    completed.run(environ=environ, root=tmp_path)
    assert "::warning title=GPU after the job::the GPU driver does not answer any more" in capsys.readouterr().out
    assert "The GPU was idle 92 % of this job." in (tmp_path / "s").read_text()


# --- the summary


def spread(metric: str, mean: float, most: float) -> Spread:
    return Spread(metric, "", mean, mean, most, most)


BUSY = GpuSummary(
    0, "GPU-0", "Tesla T4", (spread("utilisation", 4.2, 99), spread("memory", 900, 3480)), 7560.0, "counter", 15360,
    0.9215, (Slowed("idle", 0.9), Slowed("software-power-cap", 0.06), Slowed("hardware-thermal", 0.011)),
)  # fmt: skip
PART = GpuSummary(
    0, "MIG-0", "NVIDIA H100 80GB HBM3 1g.10gb", (spread("memory", 12, 9000),), None, None, 9856, None, None
)
IDLE = Insight("idle", "info", "GPU 0 was idle 92 % of the time", "GPU-0")


def summed(*gpus: GpuSummary, **changes: Any) -> Record:
    summary = Summary("2026-11-20T10:00:00Z", 2460.0, 2461, 0, gpus, (IDLE,) if BUSY in gpus else ())
    return Record(replace(summary, **changes), 1.0, 5000.0)


STORIES = {
    "one GPU": JobUsage(summed(BUSY), compilations=Compilations(120, 20)),
    "two, by power, shared": JobUsage(
        summed(BUSY, replace(BUSY, index=1, energy=400.0, energy_source="integrated", slowed=()),), shared=True
    ),
    "a part, and a sampler that was killed": JobUsage(
        summed(PART), missing=600.0, why="the sampler had ended (it was killed)",
        notes=["evil|<b>`x`[y](z)\n::error::x (pid 7, its GPU memory is not known) was ended"],
    ),
    "a driver that went away": JobUsage(summed(BUSY, ended="The NVIDIA driver does not answer: nvmlInit.")),
    "nothing": JobUsage(None, why="Traceback: no module"),
}  # fmt: skip


def test_the_summary_matches_its_golden_file() -> None:
    text = "\n".join(f"<!-- {name} -->\n{markdown(usage)}" for name, usage in STORIES.items())
    same_as_golden(GOLDEN, "job-summary.md", text)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    original = summed(BUSY, PART)
    record.write(tmp_path, original)
    assert record.read(tmp_path) == original
    assert [path.name for path in tmp_path.iterdir()] == [record.NAME]


def altered(**changes: Any) -> str:
    """Return a record as JSON, with other values in its summary."""
    document = serialization.data(summed(BUSY))
    return json.dumps(document | {"summary": document["summary"] | changes})


@pytest.mark.parametrize("text", [
    "", "{", "[]", "null", "[" * 100_000, altered(seconds=1e400), altered(seconds="long"), altered(gpus=[3]),
    altered(insights=None), altered().replace('"schema": 1', '"schema": 2'), altered() + " " * files.MAX_BYTES,
], ids=lambda text: text[:20])  # fmt: skip
def test_a_record_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / record.NAME).write_text(altered(seconds=7))
    assert record.read(tmp_path) is not None
    (tmp_path / record.NAME).write_text(text)
    assert record.read(tmp_path) is None


@pytest.mark.parametrize("make", [
    os.mkfifo, Path.mkdir, lambda path: path.symlink_to("/dev/zero"), lambda path: path.symlink_to("kept"),
], ids=["pipe", "folder", "endless", "link"])  # fmt: skip
def test_a_pipe_or_link_in_place_of_a_file_is_refused(tmp_path: Path, make: Callable[[Path], None]) -> None:
    (tmp_path / "kept").write_text("x")
    make(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        files.read(tmp_path / "file")
    with pytest.raises(OSError, match="file"):
        files.append(tmp_path / "file", "y")
    assert (tmp_path / "kept").read_text() == "x"


# --- the compiler's cache


CCACHE = """#!/bin/sh
[ "$1" = --print-stats ] || exit 1
cat "{counters}"
"""


def test_compilations_since_the_job_began(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a script that prints recorded counters in ccache's place."""
    program, counters = tmp_path / "bin/ccache", tmp_path / "counters"
    program.parent.mkdir()
    program.write_text(CCACHE.format(counters=counters))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    assert ccache.since(tmp_path) is None

    def print_stats(direct: int, preprocessed: int, misses: int) -> None:
        answer = {"cache_miss": misses, "cache_size_kibibyte": 40, "direct_cache_hit": direct,
                "preprocessed_cache_hit": preprocessed}  # fmt: skip
        counters.write_text("".join(f"{name}\t{value}\n" for name, value in answer.items()))

    print_stats(1000, 10, 500)
    ccache.begin(tmp_path)
    until(lambda: "preprocessed" in (tmp_path / "ccache-before.txt").read_text())
    assert ccache.since(tmp_path) is None
    print_stats(1100, 30, 520)
    assert ccache.since(tmp_path, 60) == Compilations(120, 20)
    print_stats(5, 1, 2)
    assert ccache.since(tmp_path, 60) == Compilations(6, 2)
