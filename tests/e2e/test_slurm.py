"""A real Slurm takes the files that are written for a node, whatever its GPUs are."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from paddock.gpu.model import Inventory
from tests.support.boxes import box, gpu
from tests.support.gpu_machines import NO_GPU
from tests.support.slurm import RealSlurm, real_slurm
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("slurm")]


def gpus(count: int, model: str = "h100") -> Inventory:
    return box(gpu(index, model, minor=index) for index in range(count))


@pytest.fixture(scope="module")
def slurm() -> Iterator[RealSlurm]:
    with real_slurm(gpus(4), shards=4) as slurm:
        yield slurm


def visible(slurm: RealSlurm, job: int) -> str:
    """Return CUDA_VISIBLE_DEVICES of a job that prints it."""
    return str(until(lambda: slurm.output(job))).strip()


def test_four_gpus_run_four_jobs_and_the_fifth_waits(slurm: RealSlurm) -> None:
    assert "gpu:h100:4" in slurm.run("sinfo", "-h", "-o", "%n %G")
    jobs = [slurm.submit("echo $CUDA_VISIBLE_DEVICES; sleep 60", "--gres=gpu:1") for _ in range(5)]
    assert sorted(visible(slurm, job) for job in jobs[:4]) == ["0", "1", "2", "3"]
    assert slurm.job(jobs[4])["JobState"] == "PENDING"
    slurm.run("scancel", str(jobs[0]))
    assert visible(slurm, jobs[4]) == "0"
    slurm.run("scancel", *map(str, jobs[1:]))
    assert slurm.finished(jobs[4]) == "CANCELLED"


def test_shards_share_one_gpu_that_no_exclusive_job_gets(slurm: RealSlurm) -> None:
    sharing = [slurm.submit("echo $CUDA_VISIBLE_DEVICES; sleep 60", "--gres=shard:1") for _ in range(2)]
    (shared,) = {visible(slurm, job) for job in sharing}
    alone = [slurm.submit("echo $CUDA_VISIBLE_DEVICES; sleep 60", "--gres=gpu:1") for _ in range(4)]
    seen = {visible(slurm, job) for job in alone[:3]}
    assert seen == {"0", "1", "2", "3"} - {shared}
    assert slurm.job(alone[3])["JobState"] == "PENDING"
    slurm.run("scancel", *map(str, [*sharing, *alone]))
    until(lambda: not slurm.run("squeue", "-h"))


def test_a_job_without_gpu_sees_none(slurm: RealSlurm) -> None:
    program = "echo $CUDA_VISIBLE_DEVICES $ROCR_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"
    job = slurm.submit(f"{program}; srun sh -c '{program}'")
    assert slurm.finished(job) == "COMPLETED"
    assert slurm.output(job).splitlines() == ["-1 -1 PCI_BUS_ID"] * 2
    assert slurm.run("env", "CUDA_VISIBLE_DEVICES=0", "srun", "sh", "-c", program) == "-1 -1 PCI_BUS_ID"
    assert slurm.run("srun", "--gres=gpu:2", "sh", "-c", program) == "0,1 PCI_BUS_ID"
    job = slurm.submit(f"srun --gres=none sh -c '{program}'", "--gres=gpu:1")
    assert slurm.finished(job) == "COMPLETED"
    assert slurm.output(job).strip() == "-1 -1 PCI_BUS_ID", "a step that asks for none"


@pytest.mark.parametrize(
    ("later", "shown"),
    [(gpus(2), "gpu:h100:2"), (NO_GPU, "(null)"), (gpus(3, "t4"), "gpu:t4:3"), (gpus(4), "gpu:h100:4")],
    ids=["fewer", "none", "another-model", "back"],
)
def test_other_gpus_at_the_next_start_leave_an_idle_node(slurm: RealSlurm, later: Inventory, shown: str) -> None:
    slurm.restart(later)
    assert slurm.run("sinfo", "-h", "-o", "%T %G %E").startswith(f"idle {shown}")
    job = slurm.submit("echo $CUDA_VISIBLE_DEVICES", *(["--gres=gpu:1"] if later.gpus else []))
    assert slurm.finished(job) == "COMPLETED", slurm.logs()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_queue_and_running_job_survive_the_end_of_the_controller(slurm: RealSlurm, number: signal.Signals) -> None:
    go = slurm.folder / f"go-{number}"
    running = slurm.submit(f"until [ -e {go} ]; do sleep 0.1; done", "--gres=gpu:4")
    waiting = slurm.submit("echo $CUDA_VISIBLE_DEVICES", "--gres=gpu:h100:2")
    until(lambda: slurm.job(running)["JobState"] == "RUNNING")
    if number == signal.SIGKILL:  # Slurm writes its queue every five seconds, and at its regular end
        slurm.save(running)
    slurm.end("slurmctld", number)
    slurm.start_controller()
    assert slurm.job(waiting)["JobState"] == "PENDING"
    go.touch()
    assert slurm.finished(running) == "COMPLETED"
    assert slurm.finished(waiting) == "COMPLETED"
    assert slurm.output(waiting).strip() == "0,1"


def test_a_job_too_large_for_the_gpus_left_is_held_until_they_return(slurm: RealSlurm) -> None:
    hold = slurm.submit("sleep 60", "--gres=gpu:4")
    fits, too_large = slurm.submit("echo ran", "--gres=gpu:1"), slurm.submit("echo ran", "--gres=gpu:3")
    until(lambda: slurm.job(hold)["JobState"] == "RUNNING")
    slurm.restart(gpus(2))
    slurm.run("scancel", str(hold))
    assert slurm.finished(fits) == "COMPLETED"
    assert until(lambda: slurm.job(too_large)["Reason"] == "BadConstraints")
    slurm.restart(gpus(4))
    assert slurm.job(too_large)["Reason"] == "BadConstraints", "Slurm does not look at it again by itself"
    slurm.run("scontrol", "release", str(too_large))
    assert slurm.finished(too_large) == "COMPLETED"
