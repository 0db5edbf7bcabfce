"""Slurm on one machine: its programs are stand-ins with recorded words; tests/e2e has the real ones."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import docker_program
from tests.support.door import Door, Here, real
from tests.support.slurm import free_ports, needs_slurm
from tests.support.waiting import until

NODE = (
    "NodeName=vm CPUAlloc=2 CPUTot=8 Gres=gpu:h100:4 GresUsed=gpu:h100:1 RealMemory=8000 AllocMem=100 State=MIXED"
    " ThreadsPerCore=1 Partitions=main "
)
JOB = (
    "JobId=7 JobName=train UserId=root(0) JobState={state} Reason=None ExitCode=0:0 SubmitTime=2026-11-23T20:06:04"
    " StartTime=2026-11-23T20:06:07 EndTime={end} NodeList=vm WorkDir=/jobs StdOut=/jobs/train-7.out"
)
RUNNING = JOB.format(state="RUNNING", end="Unknown")
COMPLETED = JOB.format(state="COMPLETED", end="2026-11-23T20:06:13")


@pytest.fixture
def slurm(inv: Door) -> Path:
    """Put Slurm's programs on PATH; they write down their calls, and the job 7 runs until the file `ended` is there."""
    calls, ended = inv.home / "calls", inv.home / "ended"
    head = f'#!/bin/sh\necho "${{0##*/}} $@" >> {calls}\n'
    inv.program(
        "scontrol",
        f"""{head}case "$*" in
*ping*) echo "Slurmctld(primary) at vm is UP" ;;
*node*) echo "{NODE}" ;;
*job*) if [ -e {ended} ]; then echo "{COMPLETED}"; else echo "{RUNNING}"; fi ;;
*config*) echo "JobCompType = jobcomp/none" ;;
esac
""",
    )
    inv.program("sbatch", f"{head}cat > {inv.home}/script\necho 7\n")
    inv.program("scancel", head)
    inv.program("squeue", head)
    inv.program("srun", f"{head}sleep 600\n")
    return calls


@pytest.fixture
def method(inv: Door) -> None:
    values = {"name": "train", "command": "echo trained", "resources": {"gpus": 2}}
    (inv.folder / "method.json").write_text(json.dumps(values))


@pytest.mark.door("slurm.submit", "stand-ins for Slurm's programs, with words of slurmctld 22.05")
def test_a_method_is_submitted_and_waited_for(inv: Door, slurm: Path, method: None) -> None:
    (inv.home / "ended").touch()
    submitted = inv("slurm.submit", "method.json", "--wait", "--json")
    assert submitted.returncode == 0, submitted.stderr
    (job,) = json.loads(submitted.stdout)["jobs"]
    assert (job["id"], job["state"]) == ("7", "COMPLETED")
    assert "echo trained" in (inv.home / "script").read_text()


@pytest.mark.door("slurm.submit", "stand-ins for Slurm's programs, with words of slurmctld 22.05", interrupted=True)
def test_ctrl_c_leaves_the_job_and_says_how_to_end_it(inv: Door, slurm: Path, method: None) -> None:
    waiting = inv.start("slurm.submit", "method.json", "--wait")
    until(lambda: slurm.exists() and "show job" in slurm.read_text(), seconds=120)
    _, errors = inv.interrupted(waiting)
    assert "job 7 goes on" in errors
    assert "slurm.cancel 7` ends it" in errors


@pytest.mark.door("slurm.status", "stand-ins for Slurm's programs, with words of slurmctld 22.05")
@pytest.mark.door("slurm.cancel", "stand-ins for Slurm's programs, with words of slurmctld 22.05")
def test_nodes_and_queue_are_shown_and_a_job_cancelled(inv: Door, slurm: Path) -> None:
    nodes = inv("slurm.status", "--nodes")
    assert (nodes.returncode, "1 of 4 h100" in nodes.stdout) == (0, True), nodes.stderr
    status = inv("slurm.status", "--json")
    assert [job["state"] for job in json.loads(status.stdout)["jobs"]] == ["RUNNING"]
    cancelled = inv("slurm.cancel", "7")
    assert (cancelled.returncode, cancelled.stdout) == (0, "job 7 cancelled\n"), cancelled.stderr
    assert "scancel -v 7" in slurm.read_text()


@pytest.mark.door("slurm.test", "stand-ins for Slurm's programs, with words of slurmctld 22.05", interrupted=True)
def test_ctrl_c_ends_the_test_and_its_jobs(inv: Door, slurm: Path) -> None:
    testing = inv.start("slurm.test")
    until(lambda: slurm.exists() and "srun" in slurm.read_text(), seconds=120)
    _, errors = inv.interrupted(testing)
    assert "interrupted; the jobs of the test were ended" in errors


@pytest.mark.door("slurm.health", "a machine whose node does not run")
def test_a_node_that_does_not_run_is_not_healthy(inv: Door) -> None:
    health = inv("slurm.health", "--json")
    assert health.returncode == 1, health.stderr
    assert json.loads(health.stdout)["healthy"] is False


FOLDERS = ("/etc/slurm", "/etc/munge", "/var/spool/slurmctld", "/var/spool/slurmd", "/var/log/slurm", "/run/munge")


@pytest.mark.e2e
@pytest.mark.xdist_group("slurm")
@pytest.mark.door("slurm.start", "the real Slurm, in mounts of its own")
@pytest.mark.door("slurm.start", "the real Slurm, in mounts of its own", interrupted=True)
@pytest.mark.door("slurm.health", "the real Slurm, in mounts of its own")
def test_a_node_starts_is_healthy_and_ends_at_ctrl_c(inv: Door) -> None:
    needs_slurm()
    if subprocess.run([real("unshare"), "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("slurmd is not started here: no right to make mounts of its own")
    controller, daemon = free_ports(2)
    task = f"{inv.root}/inv slurm.start --controller-port {controller} --daemon-port {daemon}"
    mounts = "; ".join(f"mkdir -p {folder}; mount -t tmpfs tmpfs {folder}" for folder in FOLDERS)
    environ = inv.environment({"PADDOCK_GPU_TYPE": "none"})  # as the image says, where the engine marks no container
    node = subprocess.Popen(
        ["unshare", "--mount", "sh", "-c", f"set -e; {mounts}; exec {sys.executable} {task}"],
        cwd=inv.folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    assert node.stdout
    for line in node.stdout:
        if line.startswith("ready "):
            break
    inside = ["nsenter", "--mount", f"--target={node.pid}", sys.executable, str(inv.root / "inv"), "slurm.health"]
    health = subprocess.run(inside, cwd=inv.root, env=environ, capture_output=True, text=True, check=False)
    code, output, errors = inv.interrupt(node)
    assert (health.returncode, "ok   slurmctld: up" in health.stdout) == (0, True), health.stdout + errors
    assert (code, "the queue stays in /var/spool/slurmctld" in output) == (130, True), errors


@pytest.mark.door("slurm.configure", "a docker program that keeps images in a file")
def test_a_machine_without_gpus_is_configured_where_the_user_stands(inv: Door, project: Path) -> None:
    docker_program.install(inv)
    configured = inv("slurm.configure", "--gpu-type", "none", env={"PADDOCK_ROOT": str(project)})
    assert configured.returncode == 0, configured.stderr
    assert "Slurm is configured" in configured.stdout
    service = yaml.safe_load((inv.folder / "paddock-slurm" / "compose.yaml").read_text())["services"]["paddock-slurm"]
    assert service["image"] == "paddock/slurm:none"


@pytest.mark.door("slurm.configure", "a docker program that keeps images in a file", interrupted=True)
def test_ctrl_c_during_the_build_writes_no_files(inv: Door, project: Path) -> None:
    state = docker_program.install(inv, hang="buildx build")
    configuring = inv.start("slurm.configure", "--gpu-type", "none", env={"PADDOCK_ROOT": str(project)})
    until((state / "hanging").exists, seconds=120)
    _, errors = inv.interrupted(configuring)
    assert "the same command continues there" in errors
    assert list(inv.folder.iterdir()) == []


@pytest.mark.door("slurm.cloud", "a checkout in git")
def test_what_is_written_into_a_checkout_is_ignored_by_git(inv: Door, root: Path, project: Path) -> None:
    shutil.copy(root / ".gitignore", project)
    (project / "cluster.yaml").write_text("name: of somebody\n")
    tasks = [
        ("slurm.configure", "--files-only", "--gpu-type", "none", "--prefix", "lab"),
        ("slurm.cloud", "--instances", "g5.xlarge", "--subnets", "subnet-0123456789abcdef0"),
        ("images.build", "wheel"),
    ]
    for words in tasks:
        done = inv(*words, cwd=project, env={"PADDOCK_ROOT": str(project)})
        assert done.returncode == 0, done.stderr
    (project / "train-7.out").touch()
    for name in ("lab-slurm", "cluster.yaml", "dist"):
        assert (project / name).exists()
    listed = ["git", "-C", str(project), "status", "--porcelain", "--untracked-files=all"]
    assert subprocess.run(listed, capture_output=True, text=True, check=True).stdout == "?? .gitignore\n"


def test_an_error_of_configure_is_json_too(here: Here) -> None:
    for words in (("slurm.configure", "--shards", "1"), ("slurm.cloud", "--instances", "x9.none", "--subnets", "s")):
        code, shown, _ = here(*words, "--json")
        assert code == 2
        assert json.loads(shown)["error"]
