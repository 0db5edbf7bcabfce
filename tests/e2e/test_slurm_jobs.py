"""Methods on a real Slurm: what is submitted runs, what ended is explained, and what cannot run is refused."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.boxes import box, gpu
from tests.support.fleets import ROOT
from tests.support.slurm import RealSlurm, real_slurm
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("slurm")]


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    settings = {"JobAcctGatherFrequency": "task=1"}
    with real_slurm(box(gpu(index, minor=index) for index in range(4)), shards=4, settings=settings) as slurm:
        yield slurm


def write(slurm: RealSlurm, **values: Any) -> None:
    (slurm.folder / "method.json").write_text(json.dumps({"name": "train", **values}))


def submit(slurm: RealSlurm, *words: str, **values: Any) -> dict[str, Any]:
    """Submit a method, and return the document of its only job."""
    write(slurm, **values)
    process = slurm.paddock("slurm.submit", "method.json", "--json=-", *words)
    assert process.stdout, process.stderr
    (job,) = json.loads(process.stdout)["jobs"]
    assert process.returncode == (0 if job.get("state", "COMPLETED") == "COMPLETED" else 1)
    return dict(job)


@pytest.mark.door("slurm.submit", "the real Slurm of one node")
def test_a_method_runs_with_its_resources_variables_and_command(slurm: RealSlurm) -> None:
    job = submit(
        slurm, "--wait", command="echo $CUDA_VISIBLE_DEVICES/$SLURM_CPUS_ON_NODE/$NOTE",
        environment={"NOTE": "a, b", "PATH": "/bin", "LD_LIBRARY_PATH": "/nonexistent"},
        resources={"min_memory_mb": 100, "cpus": 2, "gpus": 2, "gpu_type": "H100", "time": "5m",
                   "gpu_memory_mb": 80_000},
    )  # fmt: skip
    assert (job["state"], job["exit_code"], job["gpus"]) == ("COMPLETED", 0, "gpu:h100:2")
    devices, cpus, note = Path(job["log"]).read_text().strip().split("/")
    assert len(set(devices.split(","))) == 2
    assert (cpus, note) == ("2", "a, b")
    assert slurm.job(int(job["id"]))["TimeLimit"] == "00:05:00"


@pytest.mark.parametrize(
    ("values", "state", "words"),
    [
        ({"command": "exit 3"}, "FAILED", "failed with exit code 3"),
        ({"command": "kill -9 $$"}, "FAILED", "failed: ended by signal 9"),
        (
            {"command": "true", "directory": "/proc"},
            "FAILED",
            "did not start: its folder or log cannot be written on the node",
        ),
        ({"command": "sh -c 'kill -9 $$'"}, "FAILED", "failed with exit code 137, a shell's for signal 9"),
        (
            {
                "command": [sys.executable, "-c", "x = b'1' * 300_000_000; import time; time.sleep(60)"],
                "resources": {"min_memory_mb": 50},
            },
            "FAILED",
            "ended: it used more memory than it asked for",
        ),
    ],
    ids=["exit-code", "signal", "folder", "signal-in-a-shell", "memory"],
)
def test_the_end_of_a_job_is_explained(slurm: RealSlurm, values: dict[str, Any], state: str, words: str) -> None:
    job = submit(slurm, "--wait", **values)
    assert (job["state"], job["words"]) == (state, words)
    status = slurm.paddock("slurm.status", "--job", job["id"])
    assert words in status.stdout
    assert "directory" in values or f"train-{job['id']}.out" in status.stdout


def test_a_script_of_python_has_the_variables_and_a_shard_of_the_type(slurm: RealSlurm) -> None:
    (slurm.folder / "job.py").write_text(
        f"#!{sys.executable}\n#SBATCH --comment=kept\n"
        "import os\nprint(os.environ['TOKEN'], os.environ['SLURM_JOB_GPUS'])\n"
    )
    job = submit(
        slurm, "--wait", script="job.py", environment={"TOKEN": "it's 'secret'"},
        resources={"shared": 2, "gpu_type": "h100"},
    )  # fmt: skip
    assert job["state"] == "COMPLETED"
    assert Path(job["log"]).read_text().startswith("it's 'secret' ")
    assert slurm.job(int(job["id"]))["Comment"] == "kept"


@pytest.mark.door("slurm.status", "the real Slurm of one node")
@pytest.mark.door("slurm.cancel", "the real Slurm of one node")
def test_a_cancelled_job_says_by_whom_and_a_waiting_one_why(slurm: RealSlurm) -> None:
    first = submit(slurm, command="sleep 100", resources={"gpus": 4})
    second = submit(slurm, command="sleep 100", resources={"gpus": 1})
    until(lambda: slurm.job(int(first["id"]))["JobState"] == "RUNNING")
    until(lambda: slurm.job(int(second["id"]))["Reason"] == "Resources")
    listing = slurm.paddock("slurm.status").stdout
    assert "waits for CPUs, memory or GPUs that other jobs use" in listing
    nodes = slurm.paddock("slurm.status", "--nodes")
    assert "4 of 4 h100" in nodes.stdout
    assert nodes.returncode == 0
    cancelled = slurm.paddock("slurm.cancel", f"{first['id']},{second['id']}", "--json=-")
    assert json.loads(cancelled.stdout)["cancelled"] == [first["id"], second["id"]]
    slurm.finished(int(second["id"]))
    assert "cancelled by root" in slurm.paddock("slurm.status", "--job", first["id"]).stdout
    again = slurm.paddock("slurm.cancel", first["id"])
    assert "had ended before" in again.stdout
    assert slurm.paddock("slurm.cancel", "99999").returncode == 2


def test_an_array_has_a_result_for_each_task(slurm: RealSlurm) -> None:
    write(slurm, command="exit $SLURM_ARRAY_TASK_ID", array="0-2%2")
    process = slurm.paddock("slurm.submit", "method.json", "--wait", "--json=-")
    results = {job["id"].partition("_")[2]: job["exit_code"] for job in json.loads(process.stdout)["jobs"]}
    assert results == {"0": 0, "1": 1, "2": 2}
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("resources", "message"),
    [
        ({"gpus": 8}, "resources.gpus: 8 GPUs are more than any node has\n    expected: at most 4"),
        ({"cpus": 100}, "resources.cpus: 100 CPUs are more than any node has\n    expected: at most 8"),
        ({"min_memory_mb": 100_000}, "resources.min_memory_mb: 100000 MiB of memory are more than any node has"),
        ({"gpus": 1, "gpu_memory_mb": 100_000}, "no GPU here is known to have 100000 MiB\n    expected: at most 81559"),
        ({"shared": 5}, "resources.shared: 5 shards of one GPU are more than any node has\n    expected: at most 4"),
    ],
)
def test_more_than_any_node_has_is_refused_and_nothing_submitted(
    slurm: RealSlurm, resources: dict[str, int], message: str
) -> None:
    before = slurm.run("squeue", "-h", "-t", "all", "-o", "%i")
    write(slurm, command="true", resources=resources)
    process = slurm.paddock("slurm.submit", "method.json")
    assert (process.returncode, process.stdout) == (2, "")
    assert message in process.stderr
    assert slurm.run("squeue", "-h", "-t", "all", "-o", "%i") == before


@pytest.mark.door("slurm.submit", "the real Slurm of one node", interrupted=True)
def test_ctrl_c_leaves_the_job_running_and_says_how_to_cancel_it(slurm: RealSlurm) -> None:
    write(slurm, command="sleep 100", resources={"shared": True})
    with slurm.start_paddock("slurm.submit", "method.json", "--wait") as process:
        assert process.stdout
        job = process.stdout.readline().split()[1]
        until(lambda: slurm.job(int(job))["JobState"] == "RUNNING")
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert f"slurm.cancel {job}` ends it" in error
    assert slurm.job(int(job))["JobState"] == "RUNNING"
    slurm.run("scancel", job)


def test_waiting_outlives_a_restart_of_the_controller(slurm: RealSlurm) -> None:
    go = slurm.folder / "go"
    write(slurm, command=f"until [ -e {go} ]; do sleep 0.1; done")
    with slurm.start_paddock("slurm.submit", "method.json", "--wait") as process:
        assert process.stdout
        job = process.stdout.readline().split()[1]
        until(lambda: slurm.job(int(job))["JobState"] == "RUNNING")
        slurm.end("slurmctld")
        slurm.start_controller()
        go.touch()
        output, error = process.communicate(timeout=100)
    assert process.returncode == 0, error
    assert f"job {job} completed" in output


def test_a_job_that_the_controller_forgot_is_read_from_its_file() -> None:
    with real_slurm(box([gpu(0, minor=0)]), settings={"MinJobAge": "2"}) as slurm:
        job = submit(slurm, "--wait", command="exit 5")["id"]
        array = submit(slurm, array="0-1", command="[ $SLURM_ARRAY_TASK_ID = 1 ] || exit 3; sleep 600")["id"]
        until(lambda: not slurm.run("scontrol", "show", "job", job, check=False), 120)
        (past,) = json.loads(slurm.paddock("slurm.status", "--job", job, "--json=-").stdout)["jobs"]
        assert (past["exit_code"], past["words"]) == (5, "failed with exit code 5")
        assert past["log"] == str(slurm.folder / f"train-{job}.out")
        until(lambda: "JobState=" not in slurm.run("scontrol", "show", "job", f"{array}_0", check=False), 120)
        tasks = json.loads(slurm.paddock("slurm.status", "--job", array, "--json=-").stdout)["jobs"]
        assert {task["id"]: task["words"] for task in tasks} == {
            f"{array}_0": "failed with exit code 3", f"{array}_1": "running",
        }  # fmt: skip
        slurm.run("scancel", array)


@pytest.mark.door("slurm.test", "the real Slurm of one node")
def test_every_gpu_and_a_job_without_are_tested_at_the_same_time(slurm: RealSlurm) -> None:
    process = slurm.paddock("slurm.test", "--json=-")
    document = json.loads(process.stdout)
    assert (process.returncode, document["verdict"]) == (0, "ok"), document
    alone, *jobs = document["jobs"]
    assert (alone["gpu"], alone["visible"]) == (None, [])
    assert sorted(file for job in jobs for file in job["devices"]) == [f"/dev/tty{number}" for number in range(4)]
    assert not slurm.run("squeue", "-h")


@pytest.mark.parametrize(("count", "verdict"), [(4, "ok"), (2, "failed")])
def test_the_driver_in_the_job_must_show_its_gpu_and_no_other(
    slurm: RealSlurm, nvml_library: Path, tmp_path: Path, count: int, verdict: str
) -> None:
    """The driver is a made-up library. With two cards it knows nothing of Slurm's third and fourth."""
    program = tmp_path / "paddock"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m paddock "$@"\n')
    program.chmod(0o755)
    process = slurm.paddock(
        "slurm.test", "--json=-", PATH=f"{tmp_path}:{slurm.environ['PATH']}", LD_LIBRARY_PATH=str(nvml_library),
        FAKE_NVML_COUNT=str(count),
    )  # fmt: skip
    document = json.loads(process.stdout)
    assert document["verdict"] == verdict, document
    jobs = [job for job in document["jobs"] if job["gpu"]]
    uuids = [uuid for job in jobs for uuid in job["uuids"]]
    assert len(set(uuids)) == len(uuids) == count
    failed = [job["problems"] for job in jobs if job["result"] == "failed"]
    assert failed == [["the driver shows it 0 GPUs in place of 1"]] * (4 - count)


@pytest.mark.door("slurm.test", "the real Slurm of one node", interrupted=True)
def test_a_gpu_in_use_is_unknown_and_ctrl_c_leaves_no_job(slurm: RealSlurm) -> None:
    busy = slurm.submit("sleep 100", "--gres=gpu:3")
    until(lambda: slurm.job(busy)["JobState"] == "RUNNING")
    process = slurm.paddock("slurm.test", "--wait", "3s")
    assert process.returncode == 1
    assert "2 ok, 3 unknown" in process.stdout
    assert "it did not start in time: others use the node" in process.stdout
    with slurm.start_paddock("slurm.test") as running:
        until(lambda: "paddock-test" in slurm.run("squeue", "-h", "-o", "%.40j %T"))
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 130
    until(lambda: "paddock-test" not in slurm.run("squeue", "-h", "-o", "%.40j"))
    slurm.run("scancel", str(busy))


def test_a_munge_that_has_ended_is_named() -> None:
    with real_slurm(box([gpu(0, minor=0)])) as slurm:
        slurm.end("munged")
        process = slurm.paddock("slurm.status")
        assert process.returncode == 1
        assert "this machine: the controller does not answer (" in process.stderr
        assert "munge" in process.stderr.lower()
