"""Jobs: those that the controller remembers, and those in its file of completed jobs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from paddock.slurm.errors import NoSuchJobError, SlurmError
from paddock.slurm.programs.place import Place
from paddock.slurm.programs.reasons import FINAL, ending, waiting_for
from paddock.slurm.programs.text import fields

_NAME = re.compile(r"\b(?:JobName=(.*) (?=UserId=\S+\(\d+\) GroupId=)|Name=(.*) (?=JobState=))")
"""A user may call a job anything, other fields too."""
_NEVER = ("Unknown", "None", "N/A", "")
_TAIL = 4096
_MEMORY = re.compile(r"exceeded memory limit|Exceeded job memory limit|oom[-_]kill", re.IGNORECASE)
_RECORDS = 2000
"""Lines of the file of completed jobs that are read."""
_BY = "cancelled by "


@dataclass(frozen=True, slots=True)
class SlurmJob:
    """Job, or one task of an array. Times are those of the machine with Slurm, in ISO's form without a zone."""

    id: str
    """Number, or for a task of an array `ARRAY_TASK`."""
    array: str
    """Number of the whole array; the job's own where there is none."""
    name: str
    user: str
    state: str
    reason: str
    submitted: str | None
    started: str | None
    ended: str | None
    nodes: str
    gpus: str
    exit_code: int | None
    signal: int | None
    log: str
    """Path on the node; empty where Slurm has forgotten it."""
    folder: str
    comment: str = ""
    out_of_memory: bool = False

    @property
    def final(self) -> bool:
        """Return True where the job has ended for good."""
        return self.state in FINAL

    @property
    def succeeded(self) -> bool:
        return self.state == "COMPLETED"

    @property
    def seconds(self) -> float | None:
        """Return how long it ran; None where it has not ended."""
        if not self.started or not self.ended:
            return None
        return (datetime.fromisoformat(self.ended) - datetime.fromisoformat(self.started)).total_seconds()

    @property
    def words(self) -> str:
        """Return its state in plain words."""
        if self.state == "PENDING":
            return self.waiting if self.waiting.startswith(("held", "queued")) else f"waits for {self.waiting}"
        if self.state == "CANCELLED" and self.comment.startswith(_BY):
            return self.comment
        if not self.final:
            return self.state.lower()
        return ending("OUT_OF_MEMORY" if self.out_of_memory else self.state, self.exit_code, self.signal)

    @property
    def waiting(self) -> str:
        return waiting_for(self.reason) if self.state == "PENDING" else ""


def remembered(place: Place, *ids: str) -> list[SlurmJob]:
    """Return the jobs that the controller still has: all of them, or those of the ids. Raises SlurmError.

    Several ids are numbers of jobs and arrays; a single one may be of a task as well.
    """
    if len(ids) != 1:
        present = parse(place.read("scontrol", "-o", "show", "job"))
        return [job for job in present if not {job.id, job.array}.isdisjoint(ids)] if ids else present
    output = place.run("scontrol", "-o", "show", "job", *ids)
    if "error" in output.error and "Invalid job id" not in output.error:
        raise SlurmError(f"scontrol on {place.name} failed: {output.reason}")
    return parse(output.text)


def completed(place: Place) -> list[SlurmJob]:
    """Return the jobs in the file of completed jobs, oldest first; none where Slurm keeps no such file."""
    settings = dict(re.findall(r"^(\w+)\s*= (.*?)\s*$", place.read("scontrol", "show", "config"), re.MULTILINE))
    if settings.get("JobCompType") != "jobcomp/filetxt":
        return []
    output = place.run("tail", "-n", str(_RECORDS), settings.get("JobCompLoc", ""))
    return [] if output.code else [_with_log(job) for job in parse(output.text)]


def every(place: Place) -> list[SlurmJob]:
    """Return the jobs that the controller has and those of its file of completed ones, oldest first."""
    present = remembered(place)
    ids = {job.id for job in present}
    past = {job.id: job for job in completed(place) if job.id not in ids}
    return sorted([*past.values(), *present], key=lambda job: job.submitted or "")


def find(place: Place, ids: Iterable[str]) -> list[SlurmJob]:
    """Return the jobs of these ids, and the tasks of an array. Raises NoSuchJobError for one that Slurm has not."""
    ids = list(ids)
    present = _by_id(remembered(place)) if len(ids) > 1 else {}
    past: dict[str, list[SlurmJob]] | None = None
    result: list[SlurmJob] = []
    for id in ids:
        matches = present.get(id, []) or (remembered(place, id) if len(ids) == 1 or "_" in id else [])
        # The controller forgets the tasks of an array one by one.
        if not matches or any(job.array == id != job.id for job in matches):
            past = _by_id(completed(place)) if past is None else past
            matches = list({job.id: job for job in [*past.get(id, []), *matches]}.values())
        if not matches and len(ids) > 1:
            matches = remembered(place, id)  # the number that a task has next to the array's
        if not matches:
            raise NoSuchJobError(id)
        result += matches
    return result


def _by_id(jobs: Iterable[SlurmJob]) -> dict[str, list[SlurmJob]]:
    """Return the jobs by their own id, and by their array's."""
    result: dict[str, list[SlurmJob]] = {}
    for job in jobs:
        for id in {job.id, job.array}:
            result.setdefault(id, []).append(job)
    return result


def explained(place: Place, ended: Iterable[SlurmJob]) -> list[SlurmJob]:
    """Return ended jobs with the logs that are there, and out of memory where only the log says so.

    Slurm without cgroups ends such a job as any other that fails.
    """
    ended = list(ended)
    paths = sorted({job.log for job in ended if job.log})
    present = set(place.run("ls", "-d", "--", *paths).text.splitlines()) if paths else set()
    return [_explained(place, job) if job.log in present else replace(job, log="") for job in ended]


def _explained(place: Place, job: SlurmJob) -> SlurmJob:
    if job.state not in ("FAILED", "CANCELLED") or job.comment:
        return job
    output = place.run("tail", "-c", str(_TAIL), job.log)
    return replace(job, out_of_memory=bool(_MEMORY.search(output.text)) and output.code == 0)


def parse(text: str) -> list[SlurmJob]:
    """Parse lines of `scontrol -o show job`, or of the file of completed jobs. Other lines are left out."""
    return [job for line in text.splitlines() if (job := _job(line)) is not None]


def _job(line: str) -> SlurmJob | None:
    match = _NAME.search(line)
    about = fields(line.replace(match[0], "", 1) if match else line)
    if not {"JobId", "JobState"} <= about.keys():
        return None
    number, array, task = about["JobId"], about.get("ArrayJobId", ""), about.get("ArrayTaskId", "")
    code, _, signal = about.get("ExitCode", "").partition(":")
    state = (about["JobState"].split() or ["UNKNOWN"])[0]
    final = state in FINAL
    return SlurmJob(
        id=f"{array}_{task}" if array and task not in ("", "N/A") else number,
        array=array or number,
        name=(match[1] or match[2] or "") if match else "",
        user=about.get("UserId", "").partition("(")[0],
        state=state,
        reason=about.get("Reason", "None"),
        submitted=_time(about.get("SubmitTime", "")),
        started=_time(about.get("StartTime", "")) if state != "PENDING" else None,
        ended=_time(about.get("EndTime", "")) if final else None,
        nodes=_value(about, "NodeList"),
        gpus=_value(about, "TresPerNode").replace("gres:", ""),
        exit_code=int(code) if final and code.isdecimal() else None,
        signal=int(signal) if final and signal.isdecimal() and signal != "0" else None,
        log=_value(about, "StdOut"),
        folder=_value(about, "WorkDir"),
        comment=_value(about, "Comment"),
    )


def _with_log(job: SlurmJob) -> SlurmJob:
    """Return a job of the file of completed jobs with the path of its log, as `submit` names it."""
    return replace(job, log=f"{job.folder}/{log_name(job.name, job.id)}") if job.folder and not job.log else job


def log_name(name: str, id: str) -> str:
    """Return the name of a job's log."""
    return f"{name}-{id}.out"


def _value(about: Mapping[str, str], key: str) -> str:
    value = about.get(key, "")
    return "" if value in ("(null)", "N/A") else value


def _time(text: str) -> str | None:
    return None if text in _NEVER else text


def cancel(place: Place, id: str, user: str) -> None:
    """Cancel a job, and keep by whom where Slurm can. Raises SlurmError where Slurm refuses.

    scancel ends with 0 whatever happens, and says why it failed where it is asked to talk.
    """
    place.run("scontrol", "update", f"JobId={id}", f"Comment={_BY}{user}")
    output = place.run("scancel", "-v", id)
    if output.code or "error:" in output.error:
        raise SlurmError(f"scancel on {place.name} failed: {output.reason}")
