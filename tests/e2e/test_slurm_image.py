"""Image of a Slurm node, built by the real engine on a real Debian: the GPUs of each start are what Slurm has.

The fake driver library stands for NVIDIA's, and terminals for the device files.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu import serialization
from paddock.images import slurm as slurm_image
from tests.support import docker_engine, nvml
from tests.support.boxes import box, gpu
from tests.support.fleets import ROOT
from tests.support.slurm_container import NODE, NODE_STATE, Container, container

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("slurm-image")]

UNTIL_GO = "until [ -e /jobs/go ]; do sleep 0.1; done"
PLUGINS = "/usr/lib/x86_64-linux-gnu/slurm-wlm"


@pytest.fixture(scope="module")
def image(root: Path) -> Iterator[str]:
    """The image's name in the engine, which no other build takes."""
    docker, name = docker_engine.engine(), f"paddock-test/slurm:{uuid.uuid4().hex[:8]}"
    slurm_image.build(docker, root, "none", base=docker_engine.debian_base(), tag=name, progress="quiet")
    yield name
    docker.remove(name)


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the fake driver library."""
    if not Path("/dev/tty3").exists():
        pytest.skip("slurmd is not given devices here: no /dev/tty3 to stand for a GPU")
    folder = tmp_path_factory.mktemp("driver")
    nvml.library(folder)
    folder.chmod(0o755)
    return folder


@pytest.fixture
def slurm(image: str, driver: Path) -> Iterator[Container]:
    with container(docker_engine.engine().client.path, image, driver) as slurm:
        yield slurm


@pytest.fixture
def configured(tmp_path: Path) -> Path:
    """The host's folder of a node that was configured with four H100s."""
    folder = tmp_path / "configured"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "inventory.json").write_text(serialization.dumps(box(gpu(index, minor=index) for index in range(4))))
    return folder


@pytest.mark.door("slurm.start", "the real Slurm in the image's container, whose first program it is")
@pytest.mark.door("slurm.health", "the real Slurm in the image's container")
def test_a_machine_without_gpus_starts_in_seconds_and_runs_a_job(slurm: Container) -> None:
    assert slurm.start() < 60
    assert slurm.node() == "idle (null)"
    job = slurm.submit("echo ran as $(id -un)")
    assert slurm.finished(job) == "COMPLETED"
    assert slurm.output(job) == "ran as root"
    assert f"ok   node: {NODE} is idle" in slurm.run("paddock", "slurm.health")
    assert "no GPUs: " in slurm.logs(), "with the reason"


@pytest.mark.door("slurm.start", "the real Slurm in the image's container", interrupted=True)
def test_ctrl_c_ends_the_daemons_and_keeps_the_queue(slurm: Container) -> None:
    slurm.start()
    slurm.interrupt()
    assert slurm.ended() == 130
    assert "; the queue stays in /var/spool/slurmctld" in slurm.logs()


def test_each_start_has_the_gpus_of_its_machine(slurm: Container, configured: Path) -> None:
    mounted = ["--volume", f"{configured}:/etc/paddock-slurm:ro"]

    def start(gpus: int, model: str = "NVIDIA H100 80GB HBM3") -> str:
        slurm.start(gpus, model, options=mounted)
        assert slurm.run("srun", "echo", "ran") == "ran", "jobs without GPUs run everywhere"
        return slurm.node()

    assert start(4) == "idle gpu:h100:4"
    assert "\nchanged " not in slurm.logs()
    assert start(2) == "idle gpu:h100:2"
    assert "changed    2x NVIDIA H100 80GB HBM3 here, 2 fewer than when it was configured" in slurm.logs()
    assert slurm.run("srun", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES") == "0,1"
    assert start(0) == "idle (null)"
    assert "changed    no GPUs here, and 4x NVIDIA H100 80GB HBM3 when it was configured" in slurm.logs()
    assert start(3, "NVIDIA A10G") == "idle gpu:a10g:3"
    assert "changed    3x NVIDIA A10G here, another model than when it was configured" in slurm.logs()
    assert start(4) == "idle gpu:h100:4"


def test_a_job_for_gpus_that_are_gone_waits_until_they_return(slurm: Container) -> None:
    slurm.start(4)
    four, one = (slurm.submit("echo $CUDA_VISIBLE_DEVICES", "--hold", f"--gres={gres}") for gres in ("gpu:4", "gpu:1"))
    slurm.save(one)
    slurm.start(2)
    slurm.run("scontrol", "release", f"{four},{one}")
    assert slurm.finished(one) == "COMPLETED"
    slurm.until_job(four, "Reason=BadConstraints")
    assert slurm.job(four)["JobState"] == "PENDING"
    slurm.save(four)
    slurm.start(4)
    assert slurm.finished(four) == "COMPLETED"
    assert slurm.output(four) == "0,1,2,3"


def test_the_queue_survives_a_container_that_is_killed(slurm: Container) -> None:
    slurm.start(1)
    running = slurm.submit(f"echo began >> /jobs/began; {UNTIL_GO}", "--gres=gpu:1")
    waiting = slurm.submit("echo $CUDA_VISIBLE_DEVICES", "--gres=gpu:1")
    slurm.until_job(running, "JobState=RUNNING")
    slurm.save(running)
    slurm.start(1)
    slurm.run("touch", "/jobs/go")
    assert f"requeued   jobs that ended with the container: {running}" in slurm.logs()
    assert [slurm.finished(job) for job in (running, waiting)] == ["COMPLETED", "COMPLETED"]
    assert slurm.run("cat", "/jobs/began") == "began\nbegan", "it ran again, from its beginning"
    assert slurm.job(running)["Restarts"] == "1"


def test_an_end_in_order_lets_jobs_clean_up_and_queues_them_again(slurm: Container) -> None:
    slurm.start()
    job = slurm.submit("trap 'echo cleaned up >> /jobs/trace; exit' TERM; echo began >> /jobs/trace; sleep 60 & wait")
    slurm.until("began", "cat", "/jobs/trace")
    slurm.stop()
    assert slurm.ended() == 0
    assert "stopping   slurmctld, slurmd, munged" in slurm.logs()
    slurm.start()
    slurm.until("began,cleaned up,began", "paste", "--serial", "--delimiters=,", "/jobs/trace")
    slurm.run("scancel", str(job))


def test_a_node_that_slurm_drained_returns_and_one_of_a_person_does_not(slurm: Container) -> None:
    slurm.start(2)
    for reason, state in (
        ("gres/gpu count reported lower than configured (1 < 2)", "idle"),
        ("Low RealMemory (reported:1000 < 100.00% of configured:2000)", "idle"),
        ("new fans on Monday", "drained"),
    ):
        slurm.run("scontrol", "update", f"NodeName={NODE}", "State=DRAIN", f"Reason={reason}")
        slurm.until_saved(reason, "node_state")
        slurm.start(2)
        assert slurm.node() == f"{state} gpu:h100:2"
    assert "new fans on Monday" in slurm.logs()
    assert "State=RESUME" in slurm.logs()
    assert "FAIL node" in slurm.run("paddock", "slurm.health", check=False)


def test_a_sick_gpu_is_given_to_no_job(slurm: Container) -> None:
    slurm.start(4, options=["--env", "FAKE_NVML_LOST=2"])
    assert slurm.node() == "idle gpu:h100:3"
    assert "warning: GPU 2 is left out: it is lost" in slurm.logs()
    listed = json.loads(slurm.run("paddock", "gpu.list", "--json"))["gpus"]
    healthy = [gpu["uuid"] for gpu in listed if gpu["index"] != 2]
    assert slurm.run("srun", "--gres=gpu:3", "printenv", "CUDA_VISIBLE_DEVICES") == ",".join(healthy)
    job = slurm.submit("echo $CUDA_VISIBLE_DEVICES; srun printenv CUDA_VISIBLE_DEVICES", "--gres=gpu:3")
    assert slurm.finished(job) == "COMPLETED"
    assert slurm.output(job).splitlines() == [",".join(healthy)] * 2
    assert slurm.run("srun", "printenv", "CUDA_VISIBLE_DEVICES") == "-1", "for a job that asked for none"


def test_a_gpu_without_its_device_file_is_left_out(slurm: Container) -> None:
    slurm.start(3, devices=2)
    assert slurm.node() == "idle gpu:h100:2"
    assert "warning: GPU 2 (NVIDIA H100 80GB HBM3) is left out: this container has no /dev/nvidia2" in slurm.logs()


def test_an_autodetect_plugin_that_does_not_load_leaves_the_files_listed(slurm: Container, tmp_path: Path) -> None:
    plugin = tmp_path / "gpu_nvml.so"
    plugin.touch()
    slurm.start(2, options=["--volume", f"{plugin}:{PLUGINS}/gpu_nvml.so:ro"])
    assert slurm.node() == "idle gpu:h100:2"
    assert "slurmd -G finds 0 GPUs, and slurm.conf has 2" in slurm.logs()
    assert "AutoDetect" not in slurm.run("cat", "/etc/slurm/gres.conf")


def test_a_device_that_vanishes_takes_one_gpu_and_not_the_node(slurm: Container) -> None:
    slurm.start(3)
    slurm.run("rm", "/dev/nvidia2")
    slurm.run("pkill", "--exact", "slurmd")
    slurm.until("^idle gpu:h100:2$", *NODE_STATE)
    uuids = [gpu["uuid"] for gpu in json.loads(slurm.run("paddock", "gpu.list", "--json"))["gpus"]]
    assert slurm.run("srun", "--gres=gpu:2", "printenv", "CUDA_VISIBLE_DEVICES") == ",".join(uuids[:2])


def test_a_controller_killed_in_the_middle_of_a_job_recovers_it(slurm: Container) -> None:
    slurm.start()
    job = slurm.submit(f"{UNTIL_GO}; echo whole")
    slurm.until_job(job, "JobState=RUNNING")
    slurm.save(job)
    slurm.run("pkill", "--signal", "KILL", "--exact", "slurmctld")
    slurm.says("slurmctld starts again in 1 s (1 of 5)")
    slurm.run("touch", "/jobs/go")
    assert slurm.finished(job) == "COMPLETED"
    assert slurm.output(job) == "whole"
    assert slurm.job(job)["Restarts"] == "0"


def test_nodes_in_containers_of_their_own_join_with_the_gpus_they_have(slurm: Container, tmp_path: Path) -> None:
    flags = ["--role", "node", "--controller", NODE]
    other_key = tmp_path / "key"
    other_key.write_bytes(b"k" * 64)
    other_key.chmod(0o644)
    slurm.start(flags=["--role", "controller"])
    first, second = slurm.beside("first"), slurm.beside("second")
    try:
        first.start(2, flags=flags)
        second.start(flags=flags)
        assert sorted(slurm.node().splitlines()) == ["idle (null)", "idle gpu:h100:2"]
        job = slurm.submit("printenv CUDA_VISIBLE_DEVICES; sleep 60", "--gres=gpu:2", "--nodelist=first")
        slurm.until_job(job, "JobState=RUNNING")
        first.start(3, "NVIDIA A10G", flags=flags)
        assert f"requeued   jobs that ended with the container: {job}" in first.logs()
        assert sorted(slurm.node().splitlines())[-1].endswith("gpu:a10g:3"), "it joined anew"
        second.kill()
        second.launch(["--volume", f"{other_key}:/key:ro"], [*flags, "--munge-key", "/key"])
        second.says(f"error: {NODE}:6817 accepts connections, and no requests of this node")
        slurm.says("munge keys differ")
    finally:
        first.kill()
        second.kill()


def test_a_customised_file_is_used_as_it_is_with_a_warning(slurm: Container, configured: Path) -> None:
    slurm.start(2)
    generated = slurm.run("cat", "/etc/slurm/gres.conf")
    text = f"# USER_CUSTOMIZED=true\n{generated.replace('[0-1]', '0')}\n"
    (configured / "gres.conf").write_text(text)
    slurm.start(2, options=["--volume", f"{configured}:/etc/paddock-slurm:ro"])
    assert "gres.conf (customised) does not fit this machine" in slurm.logs()
    assert slurm.run("cat", "/etc/slurm/gres.conf") == text.strip()


def test_another_user_than_root_runs_all_of_it(slurm: Container) -> None:
    slurm.start(1, options=["--user", "1000"])
    assert slurm.node() == "idle gpu:h100:1"
    job = slurm.submit("id -u", "--gres=gpu:1")
    assert slurm.finished(job) == "COMPLETED"
    assert slurm.output(job) == "1000"
    slurm.start(1)
    assert slurm.node() == "idle gpu:h100:1", "root takes its volumes over"


def test_memory_and_processors_are_those_of_the_container(slurm: Container) -> None:
    slurm.start(options=["--memory", "1g", "--cpus", "1"])
    assert slurm.run("sinfo", "--noheader", "--format=%c %m") == "1 972"


def test_the_key_is_of_each_cluster_and_in_no_log(slurm: Container) -> None:
    slurm.start()
    assert slurm.run("stat", "--format=%a %U", "/etc/munge/munge.key") == "400 munge"
    key = slurm.run("base64", "--wrap=0", "/etc/munge/munge.key")
    assert key not in slurm.logs()
    slurm.start()
    assert slurm.run("base64", "--wrap=0", "/etc/munge/munge.key") == key


IMPOSSIBLE: list[tuple[list[str], list[str], str]] = [
    ([], ["--cluster", "other"], "the queue in /var/spool/slurmctld is that of the cluster paddock"),
    ([], ["--role", "boss"], '--role is "boss"\n    expected: one of all, controller, node'),
    (["--volume", "/usr/share:/etc/slurm:ro"], [], "cannot write /etc/slurm: Read-only file system"),
    (["--user", "4711"], [], "the user 4711 has no name in this container"),
    (["--volume", "/etc/hostname:/key:ro"], ["--munge-key", "/key"], "the munge key /key has"),
    (["--tmpfs", "/var/spool/slurmctld:size=1m"], [], "MiB left, and the queue is kept there"),
    (["--network", "none"], [], "this container has no network"),
]


def test_a_start_that_cannot_succeed_says_why(slurm: Container) -> None:
    slurm.start()
    for options, flags, message in IMPOSSIBLE:
        slurm.kill()
        slurm.launch(options, flags)
        assert slurm.ended() in (1, 2), message
        assert message in slurm.logs()
        assert "    expected: " in slurm.logs(), message


def test_tasks_of_this_machine_reach_the_slurm_of_the_container(slurm: Container, tmp_path: Path) -> None:
    """The GPUs are the fake driver's, and more than the machine may have cores."""
    slurm.start(4)
    prefix = slurm.id.removesuffix("-slurm")
    (tmp_path / "method.json").write_text('{"name": "train", "environment": {"WORD": "a b"}, "resources": {"gpus": 2}}')

    def task(*words: str) -> dict[str, Any]:
        done = subprocess.run(
            [sys.executable, "-m", "paddock", words[0], "--prefix", prefix, "--json=-", *words[1:]],
            capture_output=True, text=True, check=False, cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        return {"code": done.returncode, **json.loads(done.stdout or "{}"), "errors": done.stderr}

    tested = task("slurm.test")
    assert tested["code"] == 0, tested
    assert {file for job in tested["jobs"] for file in job["devices"]} == {
        f"/dev/nvidia{number}" for number in range(4)
    }
    assert len({uuid for job in tested["jobs"] if job["gpu"] for uuid in job["uuids"]}) == 4
    submitted = task("slurm.submit", "method.json", "--wait", "--", "sh", "-c", "echo $WORD; exit 4")
    (job,) = submitted["jobs"]
    assert (submitted["code"], job["exit_code"], job["log"]) == (1, 4, f"/jobs/train-{job['id']}.out")
    assert slurm.run("cat", job["log"]) == "a b"
    (node,) = task("slurm.status", "--nodes")["nodes"]
    assert [(gpu["type"], gpu["total"], gpu["memory_mib"]) for gpu in node["gpus"]] == [("h100", 4, 81559)]
