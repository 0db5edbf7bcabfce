"""`inv gpu.*`: in this process on a simulated driver, and as programs on a made-up driver library (the doors)."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.errors import BUG
from paddock.gpu.leases.manager import Leases
from paddock.tasks.program import main
from tests.support.nvml import Card, Driver, box

Ran = subprocess.CompletedProcess[str]
Inv = Callable[..., Ran]

LOST = 2
EIGHT = {"FAKE_NVML_COUNT": "8", "FAKE_NVML_LOST": str(LOST)}
LIBRARY = "a made-up driver library of 8 H100s, one lost"
_REAL = any(Path(device).exists() for device in ("/dev/nvidiactl", "/dev/kfd", "/dev/dxg")) or sys.platform == "darwin"


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Inv:
    """Perform tasks in this process, in an empty folder of a machine without GPUs."""
    if _REAL:
        pytest.skip("this machine has a GPU, or its driver")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PADDOCK_GPU_LEASES", str(tmp_path / "leases"))
    for name in [name for name in os.environ if name.endswith("_VISIBLE_DEVICES")]:
        monkeypatch.delenv(name)

    def inv(*words: str, **variables: str) -> Ran:
        with pytest.MonkeyPatch.context() as more:
            for name, value in variables.items():
                more.setenv(name, value)
            code = main(["inv", *words])
        shown = capsys.readouterr()
        assert code != BUG, shown.err
        return Ran(words, code, shown.out, shown.err)

    return inv


@pytest.fixture
def eight(bare: Inv, driver: Any) -> Inv:
    """Perform them on 8 H100s, one of them lost."""
    driver("lost")
    return bare


@pytest.fixture
def door(root: Path, tmp_path: Path, nvml_library: Path) -> Inv:
    """Perform them as a user does, on a made-up driver library."""
    environ = {name: value for name, value in os.environ.items() if not name.endswith("_VISIBLE_DEVICES")}
    environ |= {"PADDOCK_GPU_LEASES": str(tmp_path / "leases"), "LD_LIBRARY_PATH": str(nvml_library), **EIGHT}

    def inv(*words: str) -> Ran:
        command = [sys.executable, str(root / "inv"), *words]
        completed = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, timeout=300)
        assert "Traceback" not in completed.stderr, completed.stderr
        return completed

    return inv


@pytest.fixture
def shells() -> Iterator[Callable[[], subprocess.Popen[bytes]]]:
    """Programs that live until they are ended, to own leases."""
    started: list[subprocess.Popen[bytes]] = []

    def start() -> subprocess.Popen[bytes]:
        started.append(subprocess.Popen(["sleep", "600"]))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("words", "code"), [
    (("gpu.list",), 0), (("gpu.list", "--details"), 0), (("gpu.list", "--topology"), 0), (("gpu.health",), 3),
])  # fmt: skip
def test_a_machine_without_gpus_says_so_and_why(bare: Inv, words: tuple[str, ...], code: int) -> None:
    plain, machine = bare(*words), bare(*words, "--json")
    assert (plain.returncode, machine.returncode) == (code, code)
    assert "This machine has no GPU: no NVIDIA driver" in plain.stdout
    report = json.loads(machine.stdout)
    assert report["schema"] == 1
    assert "no NVIDIA driver" in (report["findings"][0]["evidence"] if words == ("gpu.health",) else report["reason"])


@pytest.mark.parametrize("words", [
    ("gpu.list", "--details", "0"),
    ("gpu.monitor",),
    ("gpu.reset", "0"),
    ("gpu.render", "docker", "--gpus", "1"),
    ("gpu.ml-env", "--framework", "pytorch"),
])  # fmt: skip
def test_a_missing_gpu_is_reported_in_json_too(bare: Inv, words: tuple[str, ...]) -> None:
    completed = bare(*words, "--json")
    assert completed.returncode == 1
    assert "no NVIDIA driver" in json.loads(completed.stdout)["reason"]
    assert "This machine has no GPU" in completed.stderr


@pytest.mark.door("gpu.list", LIBRARY)
def test_no_view_forgets_the_lost_one(door: Inv, eight: Inv) -> None:
    for view in ((), ("--details",), ("--topology",), ("--memory",), ("--processes",), ("--columns", "index,uuid")):
        report = json.loads(door("gpu.list", *view, "--json").stdout)
        states = ["lost" if index == LOST else "ok" for index in range(8)]
        assert [gpu["state"] for gpu in report["gpus"]] == states, view
        assert "lost: the driver has lost it" in eight("gpu.list", *view).stdout, view


def test_the_usable_ones_are_counted_and_their_memory_is_shown(eight: Inv) -> None:
    shown = eight("gpu.list").stdout
    assert shown.startswith("8 GPUs, 1 of them not usable   driver 580.95.05   CUDA 13.0")
    assert shown.count("NVIDIA H100 80GB HBM3") == 7
    first, *rows = eight("gpu.list", "--memory").stdout.splitlines()[:8]
    assert first.split() == ["#", "GPU", "total", "used", "free", "reserved"]
    assert {tuple(row.split()[-4:]) for row in rows} == {("81559", "0", "81008", "551")}


def test_the_topology_is_a_matrix_and_a_picture(eight: Inv) -> None:
    lines = eight("gpu.list", "--topology").stdout.splitlines()
    assert lines[0].split()[:7] == [f"GPU{index}" for index in range(8) if index != LOST]
    assert lines[1].split()[:4] == ["GPU0", "X", "NV18", "NV18"]
    assert "NVLink island: GPU 0, 1, 3, 4, 5, 6, 7" in lines


@pytest.mark.door("gpu.health", LIBRARY)
def test_a_lost_gpu_makes_the_machine_unhealthy(door: Inv, eight: Inv) -> None:
    plain, machine = eight("gpu.health"), door("gpu.health", "--json")
    assert (plain.returncode, machine.returncode) == (2, 2)
    assert "is unhealthy: reboot" in plain.stdout
    report = json.loads(machine.stdout)
    assert (report["verdict"], report["action"]) == ("unhealthy", "reboot")
    assert [(finding["id"], finding["index"]) for finding in report["findings"]] == [("lost", LOST)]


class Hanging(Driver):
    """A driver whose calls for a GPU's utilisation do not return before its end."""

    def __init__(self) -> None:
        super().__init__(box("H100", 1))
        self.ended = threading.Event()

    def do_nvmlDeviceGetUtilizationRates(self, card: Card, out: Any) -> None:
        self.ended.wait()


@pytest.fixture
def hanging(bare: Inv, driver: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Inv]:
    simulated = driver(Hanging())
    monkeypatch.setenv("PADDOCK_GPU_DEADLINE", "3")
    yield bare
    simulated.ended.set()


@pytest.mark.parametrize("words", [
    ("gpu.list",),
    ("gpu.allocate", "--ttl", "60"),
    ("gpu.run", "--", "true"),
    ("gpu.render", "docker"),
    ("gpu.monitor", "--duration", "1"),
    ("gpu.reset", "0"),
])  # fmt: skip
def test_a_driver_that_hangs_is_reported_with_its_call(hanging: Inv, words: tuple[str, ...]) -> None:
    completed = hanging(*words)
    assert completed.returncode == 1
    assert re.search(r"hangs: nvmlDeviceGetUtilizationRates has not returned for \d+ s", completed.stderr)
    assert "PADDOCK_GPU_DEADLINE" in completed.stderr


def test_a_driver_that_hangs_is_a_verdict_of_health(hanging: Inv) -> None:
    report = json.loads((completed := hanging("gpu.health", "--json")).stdout)
    assert (completed.returncode, report["verdict"], report["action"]) == (2, "unhealthy", "reboot")
    assert report["findings"][0]["id"] == "driver-hangs"
    assert "nvmlDeviceGetUtilizationRates has not returned" in report["findings"][0]["evidence"]


@pytest.mark.door("gpu.reset", "a made-up driver library; only shown what it would do")
def test_a_reset_has_one_document_for_console_and_agents(door: Inv, root: Path, nvml_library: Path) -> None:
    printed = json.loads(door("gpu.reset", "0", "--soft", "--json").stdout)
    completed = subprocess.run(
        [sys.executable, "-m", "paddock.gpu.actions", "reset"],
        input='{"gpu": "0", "kind": "soft", "dry_run": true}',
        env={**os.environ, **EIGHT, "LD_LIBRARY_PATH": str(nvml_library)},
        cwd=root, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert json.loads(completed.stdout) == printed
    assert printed["done"] is False


def test_a_lost_gpu_cannot_be_reset_and_the_message_says_why(eight: Inv) -> None:
    completed = eight("gpu.reset", str(LOST))
    assert completed.returncode == 1
    assert f"GPU {LOST} cannot be reset: it is lost" in completed.stderr


def test_leases_of_three_processes_of_which_one_is_killed(
    eight: Inv, shells: Callable[[], subprocess.Popen[bytes]]
) -> None:
    first, second, third = shells(), shells(), shells()

    def allocate(owner: int, count: int) -> Ran:
        request = ("--gpus", str(count), "--min-memory", "20", "--owner", str(owner))
        return eight("gpu.allocate", *request, "--json")

    def leased_uuids(completed: Ran) -> set[str]:
        assert completed.returncode == 0, completed.stderr
        return {device["uuid"] for device in json.loads(completed.stdout)["lease"]["devices"]}

    first_uuids, second_uuids = leased_uuids(allocate(first.pid, 2)), leased_uuids(allocate(second.pid, 2))
    assert (len(first_uuids), len(second_uuids), first_uuids & second_uuids) == (2, 2, set())

    refused = allocate(third.pid, 5)
    assert refused.returncode == 1
    report = json.loads(refused.stdout)
    assert (report["lease"], report["why"]) == (None, "5 GPUs requested, and 3 available.")
    reasons = {gpu["uuid"]: gpu["reason"] for gpu in report["refused"]}
    assert all(f"(pid {first.pid})" in reasons[uuid] for uuid in first_uuids)
    assert all(f"(pid {second.pid})" in reasons[uuid] for uuid in second_uuids)
    assert "it is lost" in reasons[None]

    first.send_signal(signal.SIGKILL)
    first.wait()
    assert first_uuids < leased_uuids(allocate(third.pid, 5))
    states = {lease["state"] for lease in json.loads(eight("gpu.list", "--leases", "--json").stdout)["leases"]}
    assert states == {"held"}


@pytest.mark.door("gpu.allocate", LIBRARY)
@pytest.mark.door("gpu.renew", LIBRARY)
@pytest.mark.door("gpu.deallocate", LIBRARY)
def test_a_lease_is_taken_listed_renewed_and_given_back(door: Inv) -> None:
    lease = json.loads(door("gpu.allocate", "--ttl", "600", "--json").stdout)["lease"]
    assert [held["id"] for held in json.loads(door("gpu.list", "--leases", "--json").stdout)["leases"]] == [lease["id"]]
    assert door("gpu.renew", "--ttl", "60", lease["id"]).stdout == f"{lease['id']} is renewed\n"
    assert door("gpu.deallocate", lease["id"]).stdout == f"{lease['id']} is given back\n"


def test_a_lease_is_renewed_by_its_id_a_uuid_or_the_environment(eight: Inv) -> None:
    lease = json.loads(eight("gpu.allocate", "--ttl", "600", "--json").stdout)["lease"]
    report = json.loads(eight("gpu.renew", "--ttl", "900", "--json", PADDOCK_GPU_LEASE=lease["id"]).stdout)
    assert [(renewed["id"], renewed["ttl"]) for renewed in report["renewed"]] == [(lease["id"], 900)]
    assert report["renewed"][0]["renewed"] > lease["renewed"]
    assert eight("gpu.renew", lease["devices"][0]["uuid"]).stdout == f"{lease['id']} is renewed\n"
    assert eight("gpu.renew", "nobody's").returncode == 2
    assert eight("gpu.deallocate", lease["id"]).returncode == 0
    assert eight("gpu.deallocate", lease["id"], "--json").returncode == 2


@pytest.mark.door("gpu.run", "a made-up driver library, a real program")
def test_run_hands_words_and_the_exit_status_on(door: Inv, tmp_path: Path) -> None:
    program = "import os, sys; print(sys.argv[1:], os.environ['CUDA_VISIBLE_DEVICES']); sys.exit(7)"
    completed = door("gpu.run", "--gpus", "2", "--", sys.executable, "-c", program, "two words", "", "--gpus", "it's")
    assert completed.returncode == 7
    words, _, uuids = completed.stdout.strip().rpartition(" ")
    assert words == str(["two words", "", "--gpus", "it's"])
    assert len(set(uuids.split(","))) == 2
    assert Leases(tmp_path / "leases").all() == ()


def test_a_lease_of_ones_own_is_no_obstacle_to_its_configuration(
    eight: Inv, shells: Callable[[], subprocess.Popen[bytes]]
) -> None:
    report = json.loads(eight("gpu.allocate", "--gpus", "2", "--owner", str(os.getpid()), "--json").stdout)
    uuids = [device["uuid"] for device in report["lease"]["devices"]]
    named = ("gpu.render", "docker", "--gpus", "2", "--uuids", ",".join(uuids))
    assert eight(*named, PADDOCK_GPU_LEASE=report["lease"]["id"]).returncode == 0

    stranger = shells()
    words = ("gpu.allocate", "--gpus", "1", "--owner", str(stranger.pid), "--json")
    other = json.loads(eight(*words).stdout)["lease"]["devices"][0]["uuid"]
    refused = eight("gpu.render", "docker", "--gpus", "1", "--uuids", other)
    assert refused.returncode == 1
    assert f"(pid {stranger.pid})" in refused.stderr


@pytest.mark.door("gpu.render", "an inventory saved of a made-up driver library")
def test_everything_that_reads_runs_on_a_saved_inventory(door: Inv, bare: Inv, tmp_path: Path) -> None:
    (tmp_path / "node.json").write_text(door("gpu.list", "--json").stdout)
    saved = ("--from", "node.json")
    assert bare("gpu.list", *saved).stdout.startswith("8 GPUs, 1 of them not usable")
    for view in ("details", "memory", "processes", "topology"):
        assert len(json.loads(bare("gpu.list", *saved, f"--{view}", "--json").stdout)["gpus"]) == 8, view
    assert json.loads(bare("gpu.list", "--cuda", "--toolkit", "12.8", *saved, "--json").stdout)["verdict"] == "ok"
    health = bare("gpu.health", *saved, "--json")
    assert (health.returncode, json.loads(health.stdout)["verdict"]) == (2, "unhealthy")
    chosen = json.loads(bare("gpu.allocate", "--gpus", "2", *saved, "--json").stdout)
    assert (chosen["lease"], len(chosen["taken"])) == (None, 2)
    assert "Gres=gpu" in door("gpu.render", "slurm", *saved).stdout
    assert json.loads(bare("gpu.list", "--leases", "--json").stdout)["leases"] == []


@pytest.mark.parametrize(("words", "message"), [
    (("gpu.list", "--from", "nowhere.json"), "cannot read"),
    (("gpu.list", "--from", ""), "--from is empty"),
    (("gpu.list", "--leases", "--from", "nowhere.json"), "--from holds no leases"),
    (("gpu.list", "--form", "x"), "did you mean --from?"),
    (("gpu.lst",), "did you mean gpu.list?"),
    (("gpu.list", "--details", "99"), "no GPU is '99'"),
    (("gpu.health", "--since-hours", "nan"), "expected: 30s, 20m or 2h"),
    (("gpu.health", "--since-hours", "inf"), "expected: 0 to"),
    (("gpu.monitor", "--metrics", "heat"), "unknown metric 'heat'"),
    (("gpu.allocate", "--share", "2"), "--share is 2.0\n    expected: a part of the memory, above 0 and at most 1"),
    (("gpu.allocate", "--share", "0"), "above 0 and at most 1"),
    (("gpu.allocate", "--gpus", "x"), "--gpus: 'x' is not a number"),
    (("gpu.render", "dokcer"), "did you mean docker?"),
    (("gpu.run",), "expected: one after `--`"),
    (("gpu.list", "--toolkit", "new"), "not a CUDA version"),
    (("gpu.monitor", "--export", "--file", "metrics.txt"), "ends in .prom"),
    (("gpu.ml-env", "--framework", "pytroch"), "pytorch"),
    (("gpu.workflow", "nowhere.yaml"), "cannot be read"),
])  # fmt: skip
def test_bad_input_is_refused_in_words_and_changes_nothing(eight: Inv, words: tuple[str, ...], message: str) -> None:
    completed = eight(*words)
    assert (completed.returncode, completed.stdout) == (2, "")
    assert message in completed.stderr


def test_a_relative_folder_of_leases_is_refused(eight: Inv) -> None:
    completed = eight("gpu.list", "--leases", PADDOCK_GPU_LEASES="leases")
    assert (completed.returncode, completed.stdout) == (2, "")
    assert "PADDOCK_GPU_LEASES is 'leases'" in completed.stderr


@pytest.mark.door("gpu.monitor", "a made-up driver library", interrupted=True)
def test_ctrl_c_ends_a_monitor_with_its_summary(root: Path, nvml_library: Path) -> None:
    environ = {**os.environ, **EIGHT, "LD_LIBRARY_PATH": str(nvml_library)}
    command = [sys.executable, str(root / "inv"), "gpu.monitor", "--interval", "0.1"]
    with subprocess.Popen(
        command, cwd=root, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as monitor:
        monitor.stdout.readline()
        monitor.send_signal(signal.SIGINT)
        out, err = monitor.communicate(timeout=30)
    assert (monitor.returncode, err) == (0, "")
    assert json.loads(out.splitlines()[-1])["summary"]["ended"] == "interrupted"


def test_the_list_starts_without_pydantic() -> None:
    called = "from paddock.tasks.program import main; main(['paddock', 'gpu.list', '--json'])"
    source = f"import sys; {called}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=True)
    assert not {"invoke", "pydantic", "rich", "yaml"} & set(done.stdout.splitlines()[-1].split())
