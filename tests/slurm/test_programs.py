"""Output of Slurm's programs, and the place where they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.slurm.errors import SlurmError
from paddock.slurm.programs import jobs, nodes
from paddock.slurm.programs.place import find

# As slurmctld 22.05 prints and writes them.
JOB = (
    "JobId=6 ArrayJobId=4 ArrayTaskId=2 ArrayTaskThrottle=2 JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A"
    " Priority=1 JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=3:0 RunTime=00:00:06"
    " TimeLimit=UNLIMITED SubmitTime=2026-11-23T20:06:04 StartTime=2026-11-23T20:06:07 EndTime=2026-11-23T20:06:13"
    " NodeList=vm WorkDir=/work StdOut=/work/a b.out Power= TresPerNode=gres:gpu:1 "
)
RECORD = (
    "JobId=2 UserId=root(0) GroupId=root(0) Name={name} JobState=TIMEOUT Partition=main TimeLimit=1"
    " StartTime=2026-11-23T20:06:07 EndTime=2026-11-23T20:07:12 NodeList=vm NodeCnt=1 ProcCnt=1 WorkDir=/work"
    " SubmitTime=2026-11-23T20:06:04 DerivedExitCode=0:0 ExitCode=0:15 "
)


@pytest.mark.parametrize("name", ["train", "two words", "x JobState=COMPLETED ExitCode=0:0", "a UserId=5 b", ""])
def test_a_job_is_read_whatever_its_name(name: str) -> None:
    (job,) = jobs.parse(JOB.format(name=name))
    assert (job.id, job.array, job.name, job.state, job.exit_code) == ("4_2", "4", name, "FAILED", 3)
    assert (job.log, job.seconds, job.gpus, job.words) == ("/work/a b.out", 6.0, "gpu:1", "failed with exit code 3")
    (record,) = jobs.parse(RECORD.format(name=name))
    assert (record.name, record.state, record.words) == (name, "TIMEOUT", "ended at its time limit")


def test_a_broken_line_is_left_out() -> None:
    assert jobs.parse("JobId=\n\nJobId=7 JobNa\nNo jobs in the system") == []


def test_a_node_without_gpus_and_one_that_does_not_answer() -> None:
    (node,) = nodes.parse(
        "NodeName=a CPUAlloc=0 CPUTot=2 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) GresUsed=gpu:0"
        " OS=Linux 5 RealMemory=100 AllocMem=0 State=IDLE* ThreadsPerCore=1 "
        "Reason=no more GPUs [root@2026-11-23T20:06:04]"
    )
    assert (node.gpus, node.cpus, node.usable, node.reason) == ({}, 2, False, "no more GPUs")


def test_a_running_container_is_used_where_no_slurm_answers_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A made-up docker stands in for the engine: it says what it is asked, and answers as slurmctld does."""
    docker = tmp_path / "docker"
    docker.write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
case "$*" in
*inspect*absent-slurm) echo "Error: No such container: absent-slurm" >&2; exit 1;;
*inspect*stopped-slurm) echo '{{"running": false, "mounts": []}}';;
*inspect*) echo '{{"running": true, "mounts": [{{"Destination": "/work", "Source": "/srv/jobs"}}]}}';;
*ping*) echo "Slurmctld(primary) at vm is UP";;
*) cat;;
esac
"""
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/nonexistent")
    place = find("lab")
    output = place.run("sbatch", "--parsable", text="#!/bin/sh\n", environ={"A": "two words"})
    assert output.text == "#!/bin/sh\n"
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "exec -i -e A=two words lab-slurm sbatch --parsable"
    assert place.host_path("/work/runs/1.out") == "/srv/jobs/runs/1.out"
    assert place.host_path("/var/log/x") == ""
    with pytest.raises(SlurmError, match="container stopped-slurm: it has stopped; `docker logs"):
        find("stopped")
    with pytest.raises(SlurmError, match=r"No such container(.|\n)*fix: `.* configure`"):
        find("absent")
