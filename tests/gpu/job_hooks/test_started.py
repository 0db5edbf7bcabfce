"""Hook before a job: which GPUs it accepts and refuses, on simulated drivers below the real nvidia-ml-py."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.host.bounded import Broken, NoAnswer, within
from paddock.gpu.job_hooks import log, sampling, started
from paddock.gpu.job_hooks.environment import PodJob
from paddock.gpu.job_hooks.started import REFUSED, check_gpus, run
from tests.support.nvml import PROFILES, Driver, Fault, Part, box, card

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runners are Linux")

Install = Callable[[str | Driver], Driver]
Start = Callable[..., tuple[int, str]]
NOT_MARKED = "node was not marked for replacement: KUBERNETES_SERVICE_HOST is not set"
"""What is told here, outside of a cluster, where a node would be marked."""


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """Return a root without a kernel log, so that this machine's own says nothing."""
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def start(tmp_path: Path, machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Start:
    """Run the hook as if the pod had `gpus` GPUs, and replace its sampler."""
    sampled: list[int] = []
    monkeypatch.setattr(sampling, "start", lambda folder, runner: sampled.append(runner))
    # As much time as a busy machine needs; what may pass is not waited for, but where a test says so.
    monkeypatch.setattr(started, "CHECK_UNTIL", 60)
    monkeypatch.setattr(started, "_RETRY_SECONDS", 30)
    monkeypatch.setattr(started, "_MIN_SECONDS", 0.1)

    def go(gpus: int = 1, **environ: str) -> tuple[int, str]:
        base = {"PADDOCK_GPUS": str(gpus), "RUNNER_TEMP": str(tmp_path / "_temp"), "NODE_NAME": "ip-10-0-1-5"}
        code = run(4242, environ=base | environ, root=machine)
        assert sampled == ([] if code else [4242])
        return code, capsys.readouterr().out

    return go


def held(**changes: Any) -> Driver:
    return Driver([card("H100", **changes)])


def test_half_of_the_checks_time_is_the_drivers_and_half_the_hooks_start() -> None:
    assert started.CHECK_UNTIL / 2 == started._MIN_SECONDS
    assert started.CHECK_UNTIL < started.MARK_UNTIL < 4.7


def test_no_gpus_nothing_done(driver: Install, start: Start, tmp_path: Path) -> None:
    assert run(1, environ={"PADDOCK_GPUS": "0", "RUNNER_TEMP": str(tmp_path / "_temp")}) == 0
    assert not (tmp_path / "_temp").exists()


def create_devices(root: Path, gpus: int, library: str = "580.95.05", mounted: str = "580.95.05") -> None:
    """Create the files of a container runtime in a pod: `library` is the one in the image, `mounted` the driver's."""
    for name in ("nvidiactl", *(f"nvidia{number}" for number in range(gpus))):
        (root / "dev").mkdir(exist_ok=True)
        (root / "dev" / name).touch()
    (root / "usr/lib64").mkdir(parents=True)
    (root / f"usr/lib64/libnvidia-ml.so.{library}").touch()
    (root / "proc/self").mkdir(parents=True)
    line = f"912 880 259:1 /usr/lib64/libnvidia-ml.so.{mounted} /usr/lib64/libnvidia-ml.so.{mounted} ro - xfs /dev/x rw"
    (root / "proc/self/mountinfo").write_text(f"{line}\n" if mounted else "")


REFUSALS: dict[str, tuple[Callable[[], Driver], int, str]] = {
    "others than given": (PROFILES["h100"], 1, "0 of the 1 GPUs of this job are here"),
    "fewer than given": (lambda: Driver(box("H100", 4)), 8, "4 of the 8 GPUs of this job are here"),
    "leftover": (lambda: held(processes=[(999_999, 0)]), 1, "GPU 0: still in use by"),
    "memory": (lambda: held(used_mib=3 * 1024), 1, "GPU 0: 3.0 GiB of its memory was in use before the job began"),
    "hot": (PROFILES["thermal"], 1, "GPU 0: it slows itself down because it is hot, 91 °C"),
    "slowed down": (lambda: held(reasons=0x8), 1, "GPU 0: its hardware slows it down"),
    "power brake": (lambda: held(reasons=0x88), 1, "GPU 0: the power brake is on"),
    "prohibited": (lambda: held(compute_mode=2), 1, "GPU 0: its compute mode lets no program use it"),
    "parts are gone": (PROFILES["mig"], 8, "7 of the 8 GPUs of this job are here"),
    "a part in use": (
        lambda: Driver([card("H100", mig=(1, 1), parts=[Part(7), Part(8, used_mib=5000)])]),
        2,
        "GPU 0, part 1g.10gb: 4.9 GiB of its memory was in use",
    ),
}
BROKEN: dict[str, tuple[Callable[[], Driver], int, str]] = {
    "lost": (PROFILES["lost"], 8, "GPU 2: it is lost"),
    "uncorrectable": (lambda: held(uncorrected=3), 1, "GPU 0: 3 uncorrectable memory errors"),
    "driver asks": (lambda: held(recovery=1), 1, "GPU 0: the driver asks for gpu-reset"),
    "no spare row": (lambda: held(remapped=(0, 9, 0, 1)), 1, "GPU 0: a faulty row of memory found no spare row"),
}
"""Of these the node is marked as well: only another mends them."""


@pytest.mark.parametrize("why", [*REFUSALS, *BROKEN])
def test_broken_gpus_refuse_a_job(why: str, driver: Install, start: Start, tmp_path: Path) -> None:
    driver_made, gpus, text = (REFUSALS | BROKEN)[why]
    driver(driver_made())
    summary = tmp_path / "summary.md"
    environ = {"NVIDIA_VISIBLE_DEVICES": "GPU-z"} if why == "others than given" else {}
    code, output = start(gpus, GITHUB_STEP_SUMMARY=str(summary), **environ)
    error = output.splitlines()[0]
    assert code == REFUSED
    assert error.startswith("::error title=GPU not usable on node ip-10-0-1-5::")
    assert text in error
    assert "It is not your code" in error
    assert "Re-run it" in error
    assert (NOT_MARKED in error) == (why in BROKEN)
    assert output.count("::group::") == output.count("::endgroup::") == 1
    assert text in summary.read_text()


MISSING_GPUS: dict[str, tuple[dict[str, Any], bool]] = {
    "as many as were handed in": ({"gpus": 4}, False),
    "fewer than were handed in": ({"gpus": 8}, True),
    "no GPU was handed in": ({"gpus": 0}, False),
    "no library was handed in": ({"gpus": 8, "mounted": ""}, False),
    "the image has a library of its own": ({"gpus": 8, "library": "550.54.14"}, False),
}


@pytest.mark.parametrize("why", MISSING_GPUS)
def test_missing_gpus_mark_the_node_if_the_runtime_assigned_them(
    why: str, driver: Install, start: Start, machine: Path
) -> None:
    files, node = MISSING_GPUS[why]
    driver(Driver(box("H100", 4)))
    create_devices(machine, **files)
    code, output = start(8)
    assert code == REFUSED
    assert "4 of the 8 GPUs of this job are here" in output
    assert (NOT_MARKED in output) == node


@pytest.mark.parametrize("error", [9, 18, 999])
def test_a_failing_driver_marks_the_node_if_gpus_were_assigned(
    error: int, driver: Install, start: Start, machine: Path
) -> None:
    driver("h100").faults["nvmlInitWithFlags"] = Fault(error)
    code, output = start()
    assert (code, NOT_MARKED in output) == (REFUSED, False)
    create_devices(machine, 1)
    code, output = start()
    assert (code, NOT_MARKED in output) == (REFUSED, True)


@pytest.mark.parametrize(("daemon", "stuck"), [(True, True), (True, False), (False, True)])
def test_a_started_driver_that_hangs_marks_the_node(
    daemon: bool, stuck: bool, driver: Install, start: Start, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`stuck` is made up: SIGKILL does not end a call inside such a kernel. One that is busy only may be slow."""
    driver("h100")
    monkeypatch.setattr("paddock.gpu.inventory.inventory", lambda **_: time.sleep(5))
    monkeypatch.setattr("paddock.gpu.host.bounded._KILLED_WITHIN", 30)
    monkeypatch.setattr(started, "CHECK_UNTIL", 0.2)
    monkeypatch.setattr(started, "_MIN_SECONDS", -60)
    if stuck:
        monkeypatch.setattr("paddock.gpu.host.bounded._Child.end", lambda child: False)
    create_devices(machine, 1)
    if daemon:
        (machine / "run/nvidia-persistenced").mkdir(parents=True)
        (machine / "run/nvidia-persistenced/socket").touch()
    code, output = start()
    assert code == REFUSED
    assert "the GPU driver does not answer" in output
    assert (NOT_MARKED in output) == (daemon and stuck)


def test_a_hook_that_started_late_does_not_blame_the_driver(
    driver: Install, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver("h100")
    monkeypatch.setattr("paddock.gpu.inventory.inventory", lambda **_: time.sleep(60))
    monkeypatch.setattr(started, "_MIN_SECONDS", 61)
    code, output = start()
    assert code == 0
    assert output.startswith("::warning title=GPU not checked::")


def test_a_driver_and_library_mismatch_is_one_sentence(driver: Install, start: Start) -> None:
    driver("h100").faults["nvmlInitWithFlags"] = Fault(18)
    code, output = start()
    assert code == REFUSED
    error, *details = output.splitlines()
    assert "The NVIDIA library and the loaded driver are of different versions" in error
    assert "modprobe" not in error
    assert "modprobe" in "\n".join(details)


def test_a_container_that_lost_its_gpus_does_not_blame_the_node(
    driver: Install, start: Start, machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (machine / ".dockerenv").touch()
    create_devices(machine, 1)
    driver("h100").faults["nvmlInitWithFlags"] = Fault(999)
    opened = os.open

    def denied(path: Any, *more: Any, **options: Any) -> int:
        if "dev/nvidia" in str(path):
            raise PermissionError(1, "Operation not permitted", str(path))
        return opened(path, *more, **options)

    monkeypatch.setattr(os, "open", denied)
    code, output = start()
    assert code == REFUSED
    assert "This container has lost its GPUs" in output
    assert NOT_MARKED not in output


ADMITTED: dict[str, tuple[Callable[[], Driver], int, dict[str, str], str]] = {
    "power limit": (lambda: held(reasons=0x4), 1, {}, "it is at its power limit of 700 W"),
    "still warm": (lambda: held(reasons=0x20), 1, {}, "hot"),
    "some memory": (lambda: held(used_mib=300), 1, {}, "GPU 0: 300 MiB of its memory is in use"),
    "few lanes": (lambda: held(pcie=(5, 8, 5, 16)), 1, {}, "8 of 16 lanes"),
    "more than given": (lambda: Driver(box("H100", 4)), 1, {}, "4 GPUs are visible, and this job was given 1"),
    "eight": (PROFILES["8xh100"], 8, {}, ""),
    "all the parts": (PROFILES["mig"], 7, {}, ""),
    "its own parts": (
        PROFILES["mig"],
        1,
        {"NVIDIA_VISIBLE_DEVICES": "MIG-00000000-aaaa-bbbb-cccc-000000000009"},
        "",
    ),
    "its own GPU, beside a lost one": (
        lambda: Driver([card("H100", uuid="GPU-a"), card("H100", uuid="GPU-b", bus=12, uncorrected=4)]),
        1,
        {"NVIDIA_VISIBLE_DEVICES": "GPU-a"},
        "",
    ),
    "in turns": (lambda: held(used_mib=60_000, processes=[(7, 60_000)]), 1, {"PADDOCK_GPU_SHARING": "timeSlicing"}, ""),
    "by MPS": (lambda: held(used_mib=60_000, reasons=0x20), 1, {"CUDA_MPS_PIPE_DIRECTORY": "/mps"}, "hot"),
    "a little memory": (lambda: held(used_mib=20), 1, {}, ""),
    "names of CDI": (PROFILES["h100"], 1, {"NVIDIA_VISIBLE_DEVICES": "nvidia.com/gpu=GPU-z"}, ""),
    "a folder of names": (PROFILES["h100"], 1, {"NVIDIA_VISIBLE_DEVICES": "/var/run/nvidia-container-devices"}, ""),
    "numbers": (PROFILES["h100"], 1, {"NVIDIA_VISIBLE_DEVICES": "3"}, ""),
    "an old driver's own memory": (PROFILES["535"], 2, {}, ""),
}


@pytest.mark.parametrize("why", ADMITTED)
def test_usable_gpus_admit_a_job(why: str, driver: Install, start: Start) -> None:
    driver_made, gpus, environ, text = ADMITTED[why]
    driver(driver_made())
    code, output = start(gpus, **environ)
    assert code == 0
    assert [text in line for line in output.splitlines() if line.startswith("::warning")] == [True] * bool(text)
    assert NOT_MARKED not in output


def test_a_shared_gpu_at_its_hardware_limit_refuses(driver: Install, start: Start) -> None:
    driver("thermal")
    assert start(PADDOCK_GPU_SHARING="mps")[0] == REFUSED


def test_a_slow_hook_is_not_a_slow_driver(driver: Install, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    driver("lost")
    monkeypatch.setattr(started, "CHECK_UNTIL", 0.05)
    code, output = start(8)
    assert code == 0
    assert output.startswith("::warning title=GPU not checked::")


def test_a_degraded_node_is_marked_while_the_job_continues(driver: Install, start: Start) -> None:
    driver("remap-pending")
    code, output = start(2)
    assert code == 0
    assert (
        "::warning title=GPU::On node ip-10-0-1-5: GPU 0: a faulty row of memory is replaced at the next reset"
        in output
    )
    assert f"This job continues: the {NOT_MARKED}" in output


def test_memory_of_the_last_job_is_waited_for(driver: Install, machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    driver_made = driver(held(used_mib=3000))
    job = PodJob.from_environ({"PADDOCK_GPUS": "1"})
    assert check_gpus(job, 0.5, machine).refused
    monkeypatch.setattr(time, "sleep", lambda _: setattr(driver_made.cards[0], "used_mib", 0))
    assert check_gpus(job, 60, machine).refused is None


def test_a_fault_of_the_check_is_no_verdict(driver: Install, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    driver("h100")
    monkeypatch.setattr("paddock.gpu.inventory.inventory", lambda **_: 1 / 0)
    with pytest.raises(Broken, match="ZeroDivisionError"):
        start()


def test_an_answer_within_its_time_or_none() -> None:
    assert within(5, lambda: ["x" * 200_000, None]) == ["x" * 200_000, None]
    begun = time.monotonic()
    with pytest.raises(NoAnswer):
        within(0.2, lambda: time.sleep(60))
    assert time.monotonic() - begun < 30
    with pytest.raises(Broken, match="without an answer"):
        within(5, lambda: os._exit(3))


def test_a_job_that_names_itself_a_command_gives_none(capsys: pytest.CaptureFixture[str]) -> None:
    log.error("a:b,c", "50 %\n::x")
    log.info("::set-env name=A::b\n##[error]x\x1b[0m\udcff")
    log.group("all", [": ::error::x", "\xa0::add-mask::x"])
    assert capsys.readouterr().out.splitlines() == [
        "::error title=a%3Ab%2Cc::50 %25%0A::x",
        "set-env name=A::b # [error]x [0m?",
        "::group::all",
        "  error::x",
        "  add-mask::x",
        "::endgroup::",
    ]


def test_files_of_an_earlier_job_are_removed(driver: Install, start: Start, tmp_path: Path) -> None:
    leftovers = [tmp_path / "_temp/_paddock" / name for name in ("sampler.log", "gpu-use.json")]
    leftovers[0].parent.mkdir(parents=True)
    for file in leftovers:
        file.write_text("{}")
    driver("h100")
    start()
    assert not any(file.exists() for file in leftovers)
