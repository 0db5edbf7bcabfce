"""The hooks as the runner starts them, on a made-up driver library: only a broken GPU may fail a job."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.gpu.host.machine import sees_host_processes
from tests.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runners are Linux")

HOOKS = ROOT / "runners/hooks"
SCRIPTS = sorted(HOOKS.glob("*.sh"))


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    seconds: float


BUSY = ("this hook was too slow to start", "ended with code 124")


@dataclass
class Runner:
    """Inputs of a hook from the runner: its own environment, and a folder for temporary files."""

    folder: Path
    environ: dict[str, str]

    def run(self, hook: str, shell: str = "bash", busy: Sequence[str] = BUSY, **more: str) -> Ended:
        """Again where this machine was too busy for the hook before a job to look at anything, or to be in time."""
        for _ in range(10):
            ended = self._run(hook, shell, more)
            in_time = ended.seconds < 5 and not any(text in ended.output for text in busy)
            if in_time or hook != "job-started.sh":
                break
        return ended

    def _run(self, hook: str, shell: str, more: dict[str, str]) -> Ended:
        start = time.monotonic()
        result = subprocess.run(
            [shell, "-e", str(HOOKS / hook)],
            env=self.environ | more,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ended(result.returncode, result.stdout + result.stderr, time.monotonic() - start)

    @property
    def summary(self) -> str:
        return (self.folder / "summary.md").read_text()


def runner_in(folder: Path, nvml_library: Path) -> Runner:
    (folder / "_temp").mkdir(parents=True)
    (folder / "summary.md").touch()
    environ = {
        "PATH": os.environ["PATH"],
        "LD_LIBRARY_PATH": str(nvml_library),
        "PADDOCK_PYTHON": sys.executable,
        "PADDOCK_GPUS": "1",
        "NODE_NAME": "ip-10-0-1-5",
        "RUNNER_TEMP": str(folder / "_temp"),
        "GITHUB_STEP_SUMMARY": str(folder / "summary.md"),
        "RUNNER_TRACKING_ID": f"github_{folder.name}",
    }
    return Runner(folder, environ)


@pytest.fixture
def runner(tmp_path: Path, nvml_library: Path) -> Iterator[Runner]:
    started = runner_in(tmp_path, nvml_library)
    yield started
    if (tmp_path / "_temp/_paddock").exists():  # a sampler that the end of a job ends
        started.run("job-completed.sh")


def program(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize("shell", ["bash", "dash"])
def test_a_job_on_a_healthy_gpu(runner: Runner, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} on PATH")
    started = runner.run("job-started.sh", shell)
    assert (started.code, started.output.count("::")) == (0, 0)
    assert "GPU check: 1 x NVIDIA H100 80GB HBM3, driver 580.95.05; healthy and free" in started.output
    assert started.seconds < 5
    (runner.folder / "_temp/left").write_text("x")
    completed = runner.run("job-completed.sh", shell)
    assert completed.code == 0
    assert "::warning" not in completed.output
    assert "| 0 NVIDIA H100 80GB HBM3 | 0 MiB of 79.6 GiB (0 %) |" in runner.summary
    assert [path.name for path in (runner.folder / "_temp").iterdir()] == ["_paddock"]


@pytest.mark.parametrize(("driver", "text"), [
    ({"FAKE_NVML_LOST": "0"}, "GPU 0: it is lost"),
    ({"FAKE_NVML_PROCESSES": "0:999999:3000"}, "GPU 0: still in use by"),
    ({"FAKE_NVML_INIT": "18"}, "The NVIDIA library and the loaded driver are of different versions"),
    ({"FAKE_NVML_COUNT": "2", "PADDOCK_GPUS": "4"}, "2 of the 4 GPUs of this job are here"),
])  # fmt: skip
def test_a_broken_gpu_fails_the_job_in_under_five_seconds(runner: Runner, driver: dict[str, str], text: str) -> None:
    _refused(runner, runner.run("job-started.sh", **driver), text)


def _refused(runner: Runner, ended: Ended, text: str) -> None:
    assert ended.code == 1
    assert ended.output.startswith("::error title=GPU not usable on node ip-10-0-1-5::")
    assert text in ended.output.splitlines()[0]
    assert ended.seconds < 5
    assert text in runner.summary
    assert not (runner.folder / "_temp/_paddock/sampler.log").exists()


FAULTS: dict[str, Callable[[Path], dict[str, str]]] = {
    "it cannot start": lambda folder: {"PADDOCK_PYTHON": program(folder, "python", "exit 127")},
    "it crashes": lambda folder: {"PADDOCK_PYTHON": program(folder, "python", "kill -SEGV $$")},
    "it ends with 1": lambda folder: {"PADDOCK_PYTHON": program(folder, "python", "exit 1")},
    "Paddock is not in it": lambda folder: {"PADDOCK_PYTHON": sys._base_executable},  # type: ignore[attr-defined]
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_hook_fails_no_job(runner: Runner, fault: str) -> None:
    more = FAULTS[fault](runner.folder)
    before = runner.run("job-started.sh", busy=(), **more)
    assert before.seconds < 5
    for ended in (before, runner.run("job-completed.sh", **more)):
        assert ended.code == 0
        assert "::warning title=Job hook failed::" in ended.output


@pytest.mark.parametrize("code", [2, 9, 10, 11, 124])
def test_one_exit_code_refuses(runner: Runner, code: int) -> None:
    python = program(runner.folder, "python", f"exit {code}")
    assert runner.run("job-started.sh", busy=(), PADDOCK_PYTHON=python).code == (code == 10)
    assert runner.run("job-completed.sh", PADDOCK_PYTHON=python).code == 0


@pytest.mark.parametrize("more", [
    {"GITHUB_STEP_SUMMARY": "/proc/none/summary", "NODE_NAME": "", "RUNNER_TRACKING_ID": ""},
    {"RUNNER_TEMP": "/proc/none", "PYTHONPATH": "/proc/none", "PYTHONHOME": "/proc/none"},
])  # fmt: skip
def test_what_cannot_be_written_or_is_odd_fails_nothing(runner: Runner, more: dict[str, str]) -> None:
    for hook in ("job-started.sh", "job-completed.sh"):
        ended = runner.run(hook, **more)
        assert ended.code == 0
        assert "Job hook failed" not in ended.output
        assert "Traceback" not in ended.output


@pytest.mark.parametrize("environ", [
    {"PADDOCK_GPUS": "0"}, {"PADDOCK_GPUS": ""}, {"PADDOCK_GPUS": "all"}, {"PADDOCK_HOOKS": "off"},
])  # fmt: skip
def test_switched_off_hooks_read_nothing(runner: Runner, environ: dict[str, str]) -> None:
    for hook in SCRIPTS:
        ended = runner.run(hook.name, PADDOCK_PYTHON=program(runner.folder, "python", "exit 10"), **environ)
        assert (ended.code, ended.output) == (0, "")


@pytest.mark.skipif(not sees_host_processes(), reason="the driver's pids are another namespace's here")
def test_a_leftover_gpu_process_is_ended(runner: Runner) -> None:
    leftover = subprocess.Popen(["sleep", "60"], env=runner.environ)
    ended = runner.run("job-completed.sh", FAKE_NVML_PROCESSES=f"0:{leftover.pid}:2048")
    assert leftover.wait(timeout=10) == -15
    assert ended.code == 0
    assert f"sleep (pid {leftover.pid}, 2.0 GiB of GPU memory) was ended" in ended.output


# --- an image without Paddock

SMI: dict[str, tuple[str, str, int, str]] = {
    "as many as given": ("echo 'GPU 0: Tesla T4 (UUID: GPU-a)'; echo 'GPU 1: Tesla T4 (UUID: GPU-b)'", "2", 0, "GPU 1"),
    "one missing": ("echo 'GPU 0: Tesla T4 (UUID: GPU-a)'", "2", 1, "given 1 of 2 GPUs on ip-10-0-1-5"),
    "parts": ("echo 'GPU 0: A100'; echo '  MIG 1g.5gb Device 0:'; echo '  MIG 1g.5gb Device 1:'", "2", 0, "Device 1"),
    "none": ("exit 0", "1", 1, "given 0 of 1 GPUs"),
    "mismatch": ("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18", "1", 1, "mismatch"),
}


@pytest.mark.parametrize("smi", SMI)
def test_without_paddock_nvidia_smi_is_run(runner: Runner, smi: str) -> None:
    """A script takes nvidia-smi's place."""
    text, gpus, code, expected = SMI[smi]
    program(runner.folder, "nvidia-smi", text)
    path = f"{runner.folder}:{os.environ['PATH']}"
    ended = runner.run("job-started.sh", PADDOCK_PYTHON="/proc/none", PATH=path, PADDOCK_GPUS=gpus)
    assert ended.code == code
    assert expected in ended.output
    assert ended.output.startswith("::error") == bool(code)
    assert ended.seconds < 5


def test_what_hangs_holds_no_job_longer_than_five_seconds(tmp_path: Path, nvml_library: Path) -> None:
    """At once, as each takes its time: the driver, the hook itself, and nvidia-smi in an image without Paddock."""
    driver, hook, smi = (runner_in(tmp_path / name, nvml_library) for name in ("driver", "hook", "smi"))
    program(smi.folder, "nvidia-smi", "trap '' TERM INT; sleep 60")
    smi.environ |= {"PADDOCK_PYTHON": "/proc/none", "PATH": f"{smi.folder}:{os.environ['PATH']}"}
    python = program(hook.folder, "python", "exec sleep 60")
    with ThreadPoolExecutor() as pool:
        of_driver = pool.submit(driver.run, "job-started.sh", FAKE_NVML_HANG="60")
        of_hook = pool.submit(hook.run, "job-started.sh", busy=(), PADDOCK_PYTHON=python)
        of_smi = pool.submit(smi.run, "job-started.sh")
    _refused(driver, of_driver.result(), "the GPU driver does not answer")
    assert of_hook.result().code == 0
    assert "::warning title=Job hook failed::" in of_hook.result().output
    assert of_smi.result().code == 1
    assert "it does not answer" in of_smi.result().output
    assert of_smi.result().output.startswith("::error")
    assert max(ended.result().seconds for ended in (of_driver, of_hook, of_smi)) < 5
    for started in (driver, hook):
        started.run("job-completed.sh")


def test_without_paddock_and_without_nvidia_smi_the_job_goes_on(runner: Runner) -> None:
    if shutil.which("nvidia-smi"):
        pytest.skip("this machine has nvidia-smi")
    ended = runner.run("job-started.sh", PADDOCK_PYTHON="/proc/none")
    assert ended.code == 0
    assert ended.output.startswith("::warning title=GPU not checked::")


def test_programs_on_the_jobs_path_do_not_replace_the_systems(runner: Runner) -> None:
    (runner.folder / "bin").mkdir()
    program(runner.folder / "bin", "timeout", "echo taken")
    assert "taken" not in runner.run("job-completed.sh", PATH=f"{runner.folder}/bin:{os.environ['PATH']}").output


def test_without_paddock_leftover_processes_are_listed(runner: Runner) -> None:
    """A script takes nvidia-smi's place."""
    program(runner.folder, "nvidia-smi", "echo '71, python, 512 MiB'; echo '72, python, 9 MiB'")
    path = f"{runner.folder}:{os.environ['PATH']}"
    ended = runner.run("job-completed.sh", PADDOCK_PYTHON="/proc/none", PATH=path)
    assert ended.code == 0
    assert "::warning title=GPU still in use::" in ended.output
    assert "71, python, 512 MiB;72" in ended.output
    (runner.folder / "nvidia-smi").unlink()
    assert runner.run("job-completed.sh", PADDOCK_PYTHON="/proc/none").output == ""
