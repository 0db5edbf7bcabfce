"""GitHub's REST API as far as `inv doctor`, `inv why` and `inv runners.rerun` ask it.

What is known of the real one (docs.github.com/en/rest/actions, read 2026-11-25): a job that is run again gets a new
number in a new attempt of its run, and none is run again while the run is in progress.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from functools import partial

from paddock.lab.github import admission, model
from paddock.lab.github.model import Job, Object, Refused, page
from paddock.lab.github.service import Service

Answer = tuple[int, object]
_RUN = re.compile(r"/repos/([\w.-]+/[\w.-]+)/actions/(runs|jobs)(?:/(\d+))?(?:/(jobs|rerun|rerun-failed-jobs|logs))?")
_NOTES = re.compile(r"/repos/([\w.-]+/[\w.-]+)/check-runs/(\d+)/annotations")
_CONCLUSIONS = {"succeeded": "success", "failed": "failure", "canceled": "cancelled"}
_STATES = {model.RUNNING: "in_progress", model.COMPLETED: "completed"}


def answer(service: Service, method: str, path: str, query: Mapping[str, str], body: object = None) -> Answer:
    """Return status and body. Raises Refused."""
    asked = partial(admission.answer, method=method, path=path, query=query, body=body)
    if answered := service.using(asked, changes=method != "GET"):
        return answered
    if method == "GET" and path == "/installation/repositories":
        names = sorted({str(job["repository"]) for job in service.jobs()})
        return 200, page("repositories", [{"full_name": name, "archived": False} for name in names], query)
    if (notes := _NOTES.fullmatch(path)) and method == "GET":
        return 200, [{"message": text} for text in _notes(_find(service, notes[1], int(notes[2])))]
    match = _RUN.fullmatch(path)
    if match is None:
        raise Refused(404, "NotFound", f"no {method} {path}")
    repository, kind, number, action = match.groups()
    jobs = service.in_repository(repository)
    match method, kind, action:
        case "GET", "runs", None if number is None:
            runs = [_run(of_run) for of_run in _by_run(jobs)]
            return 200, page("workflow_runs", [run for run in reversed(runs) if _created(run, query)], query)
        case "GET", "runs", None:
            return 200, _run(_of_run(jobs, int(number)))
        case "GET", "runs", "jobs":
            return 200, page("jobs", [_job(job) for job in _latest(_of_run(jobs, int(number)))], query)
        case "GET", "jobs", None:
            return 200, _job(_find(service, repository, int(number)))
        case "POST", "jobs", "rerun":
            service.run_again([_find(service, repository, int(number)).id])
            return 201, {}
        case "POST", "runs", "rerun-failed-jobs":
            failed = [job.id for job in _latest(_of_run(jobs, int(number))) if job.result != "succeeded"]
            service.run_again(failed)
            return 201, {}
    raise Refused(404, "NotFound", f"no {method} {path}")


def _by_run(jobs: Sequence[Job]) -> list[list[Job]]:
    numbers = dict.fromkeys(job.run_id for job in jobs)
    return [[job for job in jobs if job.run_id == number] for number in numbers]


def _of_run(jobs: Sequence[Job], number: int) -> list[Job]:
    matches = [job for job in jobs if job.run_id == number]
    if not matches:
        raise Refused(404, "NotFound", f"no run {number}")
    return matches


def _find(service: Service, repository: str, number: int) -> Job:
    matches = [job for job in service.in_repository(repository) if job.id == number]
    if not matches:
        raise Refused(404, "NotFound", f"no job {number}")
    return matches[0]


def _latest(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs of the latest attempt: those that it did not run are carried over."""
    return list({job.name: job for job in sorted(jobs, key=lambda job: (job.attempt, job.id))}.values())


def _created(run: Object, query: Mapping[str, str]) -> bool:
    return str(run["created_at"]) >= query.get("created", "").removeprefix(">=")


def _run(jobs: Sequence[Job]) -> Object:
    latest = _latest(jobs)
    over = all(job.state == model.COMPLETED for job in latest)
    results = [job.result for job in latest]
    worst = next((result for result in ("failed", "canceled") if result in results), "succeeded")
    return {
        "id": jobs[0].run_id,
        "name": "lab",
        "path": ".github/workflows/lab.yml",
        "run_attempt": max(job.attempt for job in jobs),
        "status": "completed" if over else "in_progress",
        "conclusion": _CONCLUSIONS[worst] if over else None,
        "created_at": _time(dict(jobs[0].history)[model.QUEUED]),
    }


def _job(job: Job) -> Object:
    entered: dict[str, float] = dict(job.history)
    started, ended = entered.get(model.RUNNING), entered.get(model.COMPLETED)
    ends = {"succeeded": "success", "canceled": "cancelled", "failed": None if job.lost else "failure"}
    step = {"name": "Run", "conclusion": ends.get(job.result), "completed_at": _time(ended) if ended else None}
    return {
        "id": job.id,
        "run_id": job.run_id,
        "run_attempt": job.attempt,
        "name": job.name,
        "workflow_name": "lab",
        "status": _STATES.get(job.state, "queued"),
        "conclusion": _CONCLUSIONS.get(job.result) if ended else None,
        "created_at": _time(entered[model.QUEUED]),
        "started_at": _time(started) if started else None,
        "completed_at": _time(ended) if ended else None,
        "runner_name": job.runner or None,
        "labels": list(job.labels),
        "steps": [step] if started else [],
    }


def _notes(job: Job) -> list[str]:
    """Return a job's annotations."""
    if job.lost:
        return [
            f"The self-hosted runner: {job.runner} lost communication with the server. Verify the machine is running"
            " and has a healthy network connection."
        ]
    if job.result == "canceled":
        return ["The run was canceled by @lab.", "The operation was canceled."]
    return ["Process completed with exit code 1."] if job.result == "failed" else []


def _time(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
