"""Output of Slurm's programs, and the place where they run."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.slurm.commands import cancel as console
from paddock.slurm.errors import SlurmError, SlurmInputError
from paddock.slurm.programs import jobs, nodes
from paddock.slurm.programs.place import Place, find
from paddock.slurm.submit import waiting

# As slurmctld 22.05 prints and writes them.
JOB = (
    "JobId=6 ArrayJobId=4 ArrayTaskId=2 ArrayTaskThrottle=2 JobName={name} UserId=root(0) GroupId=root(0) MCS_label=N/A"
    " Priority=1 JobState=FAILED Reason=NonZeroExitCode Dependency=(null) ExitCode=3:0 RunTime=00:00:06"
    " TimeLimit=UNLIMITED SubmitTime=2026-11-23T20:06:04 StartTime=2026-11-23T20:06:07 EndTime=2026-11-23T20:06:13"
    " NodeList=vm WorkDir=/jobs StdOut=/jobs/a b.out Power= TresPerNode=gres:gpu:1 "
)
RECORD = (
    "JobId=2 UserId=root(0) GroupId=root(0) Name={name} JobState=TIMEOUT Partition=main TimeLimit=1"
    " StartTime=2026-11-23T20:06:07 EndTime=2026-11-23T20:07:12 NodeList=vm NodeCnt=1 ProcCnt=1 WorkDir=/jobs"
    " SubmitTime=2026-11-23T20:06:04 DerivedExitCode=0:0 ExitCode=0:15 "
)


@pytest.mark.parametrize("name", ["train", "two words", "x JobState=COMPLETED ExitCode=0:0", "a UserId=5 b", ""])
def test_a_job_is_read_whatever_its_name(name: str) -> None:
    (job,) = jobs.parse(JOB.format(name=name))
    assert (job.id, job.array, job.name, job.state, job.exit_code) == ("4_2", "4", name, "FAILED", 3)
    assert (job.log, job.seconds, job.gpus, job.words) == ("/jobs/a b.out", 6.0, "gpu:1", "failed with exit code 3")
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
*inspect*) echo '{{"running": true, "mounts": [{{"Destination": "/jobs", "Source": "/srv/jobs"}}]}}';;
*ping*) echo "Slurmctld(primary) at vm is UP";;
*) cat;;
esac
"""
    )
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/nonexistent")
    place = find("lab")
    output = place.run("sbatch", "--parsable", text="#!/bin/sh\n")
    assert output.text == "#!/bin/sh\n"
    assert (tmp_path / "calls").read_text().splitlines()[-1] == "exec -i lab-slurm sbatch --parsable"
    assert place.host_path("/jobs/runs/1.out") == "/srv/jobs/runs/1.out"
    assert place.host_path("/var/log/x") == ""
    with pytest.raises(SlurmError, match="container stopped-slurm: it has stopped; `docker logs"):
        find("stopped")
    with pytest.raises(SlurmError, match=r"No such container(.|\n)*fix: `.* slurm.configure`"):
        find("absent")


def test_a_prefix_that_docker_would_take_for_a_flag_is_refused() -> None:
    with pytest.raises(SlurmInputError, match="--prefix '-x'"):
        find("-x")


def test_a_job_that_slurmd_could_not_start_says_so() -> None:
    line = JOB.format(name="a").replace("ExitCode=3:0", "ExitCode=0:53")
    (job,) = jobs.parse(line.replace("NonZeroExitCode", "JobLaunchFailure"))
    assert job.words == "did not start: its folder or log cannot be written on the node"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a made-up scontrol, which prints the file `queue` and whose past is the file `past`."""
    (tmp_path / "scontrol").write_text(
        f"""#!/bin/sh
echo "$@" >> {tmp_path}/calls
case "$*" in
*config) printf 'JobCompType = jobcomp/filetxt\nJobCompLoc = {tmp_path}/past\n';;
*) cat {tmp_path}/queue;;
esac
"""
    )
    (tmp_path / "scontrol").chmod(0o755)
    (tmp_path / "sbatch").write_text("#!/bin/sh\nenv\n")
    (tmp_path / "sbatch").chmod(0o755)
    for name in ("queue", "past", "calls"):
        (tmp_path / name).write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


HERE = Place("here", "/")


def test_a_failed_task_that_the_controller_forgot_is_a_result_of_its_array(slurm: Path) -> None:
    task = (
        RECORD.format(name="a")
        .replace("JobId=2 ", "JobId=4 ")
        .replace("SubmitTime", "ArrayJobId=4 ArrayTaskId={} SubmitTime")
    )
    (slurm / "past").write_text("".join(task.format(number) + "\n" for number in (1, 2)))
    (slurm / "queue").write_text(JOB.format(name="a").replace("FAILED", "COMPLETED").replace("=3:0", "=0:0") + "\n")
    ended = waiting.wait(HERE, ["4"])
    assert {job.id: job.state for job in ended} == {"4_1": "TIMEOUT", "4_2": "COMPLETED"}


def test_many_jobs_are_one_question_to_slurm(slurm: Path) -> None:
    record = RECORD.format(name="a").replace("JobId=2", "JobId={}")
    (slurm / "queue").write_text("".join(record.format(id) + "\n" for id in range(20)))
    (slurm / "past").write_text("".join(record.format(id) + "\n" for id in range(20, 40)))
    assert len(waiting.wait(HERE, [str(id) for id in range(10, 30)])) == 20
    calls = (slurm / "calls").read_text().splitlines()
    assert calls == ["-o show job", "-o show job", "show config"], "a poll, and the results"


def test_a_job_that_slurm_has_lost_is_named_after_seconds(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "_LOST", 0.05)
    silent: list[str] = []
    with pytest.raises(SlurmError, match="Slurm has lost job 7"):
        waiting.wait(HERE, ["7"], silent=silent.append, interval=0.01)
    assert not silent


def test_the_callers_options_of_sbatch_stay_away_from_it(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_WAIT", "1")
    monkeypatch.setenv("SLURM_CONF", "/etc/other")
    output = HERE.run("sbatch").text
    assert "SLURM_CONF=/etc/other" in output
    assert "SBATCH" not in output


def test_a_user_without_a_name_cancels_by_number(slurm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr("getpass.getuser", nameless)
    monkeypatch.setattr("os.getuid", lambda: 4711)
    monkeypatch.setattr(console, "find", lambda prefix: HERE)
    (slurm / "scancel").write_text("#!/bin/sh\n")
    (slurm / "scancel").chmod(0o755)
    (slurm / "queue").write_text(JOB.format(name="a").replace("FAILED", "RUNNING") + "\n")
    assert console.cancel(console.Cancel(job=("4_2",))).cancelled == ["4_2"]
    assert "Comment=cancelled by 4711" in (slurm / "calls").read_text()
