"""The stand-in's REST API of runs and jobs, read and changed by the client that a command has for GitHub's own."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest

from paddock.lab.github.server import Server
from paddock.lab.github.service import Service
from paddock.operate.sources.github import GitHubReader
from paddock.operate.sources.github_actions import Actions
from paddock.operate.sources.unavailable import NotFound, Unavailable
from tests.support import lab_github

REPOSITORY = "acme/app"
HOUR = timedelta(hours=1)


@pytest.fixture
def server() -> Iterator[Server]:
    with lab_github.serving() as server:
        yield server


@pytest.fixture
def actions(server: Server) -> Actions:
    return Actions(GitHubReader(f"{server.url}/api/v3", "ghp_made-up"))


def run_one(service: Service, job: int, result: str, *, lost: bool = False) -> None:
    """Let a runner have a job, and end."""
    number = service.create_set({"name": f"set-{job}", "labels": [{"name": f"job-{job}"}]})["id"]
    service.acquire(number, [job])
    service.register(number, f"runner-{job}")
    service.online(f"runner-{job}")
    service.ended(f"runner-{job}", result, lost=lost)


def push(service: Service, number: int, **more: object) -> int:
    return int(
        service.push({"labels": [f"job-{number}"], "name": f"job-{number}", "repository": REPOSITORY, **more})["id"]
    )


def test_ends_of_jobs_are_distinguished(server: Server, actions: Actions) -> None:
    own, lost, person = (push(server.service, number) for number in (1, 2, 3))
    run_one(server.service, own, "failed")
    run_one(server.service, lost, "failed", lost=True)
    server.service.cancel(person)
    runs = {run["id"]: run for run in actions.runs(REPOSITORY, datetime.now(UTC) - HOUR)}
    assert {number: run["conclusion"] for number, run in runs.items()} == {1: "failure", 2: "failure", 3: "cancelled"}
    jobs = {number: actions.jobs(REPOSITORY, number)[0] for number in runs}
    assert {number: job["conclusion"] for number, job in jobs.items()} == {1: "failure", 2: "failure", 3: "cancelled"}
    assert jobs[1]["steps"][0]["conclusion"] == "failure"
    assert jobs[2]["steps"][0]["conclusion"] is None
    assert jobs[2]["runner_name"] == "runner-2"
    assert actions.messages(REPOSITORY, own) == ["Process completed with exit code 1."]
    assert "lost communication with the server" in actions.messages(REPOSITORY, lost)[0]
    assert actions.messages(REPOSITORY, person)[0] == "The run was canceled by @lab."
    with pytest.raises(NotFound):
        actions.log_end(REPOSITORY, own)


def test_job_that_is_run_again_has_a_new_number_and_attempt(server: Server, actions: Actions) -> None:
    first = push(server.service, 1)
    beside = push(server.service, 2, run=first)
    run_one(server.service, first, "failed", lost=True)
    assert actions.run(REPOSITORY, first)["status"] == "in_progress"
    with pytest.raises(Unavailable, match="already running"):
        actions.rerun_job(REPOSITORY, first)
    run_one(server.service, beside, "succeeded")
    actions.rerun_job(REPOSITORY, first)
    run = actions.run(REPOSITORY, first)
    assert (run["status"], run["run_attempt"]) == ("in_progress", 2)
    jobs = {job["name"]: job for job in actions.jobs(REPOSITORY, first)}
    assert jobs["job-1"]["id"] not in (first, beside)
    assert (jobs["job-1"]["status"], jobs["job-1"]["run_attempt"]) == ("queued", 2)
    assert (jobs["job-2"]["id"], jobs["job-2"]["conclusion"]) == (beside, "success")


def test_failed_jobs_of_a_run_share_an_attempt(server: Server, actions: Actions) -> None:
    first = push(server.service, 1)
    others = [push(server.service, number, run=first) for number in (2, 3)]
    for job, result in zip((first, *others), ("failed", "succeeded", "failed"), strict=True):
        run_one(server.service, job, result)
    actions.rerun_failed_jobs(REPOSITORY, first)
    again = [job.name for job in server.service.in_repository(REPOSITORY) if job.attempt == 2]
    assert again == ["job-1", "job-3"]


def test_state_of_attempts_is_kept_over_a_restart(tmp_path_factory: pytest.TempPathFactory) -> None:
    file = tmp_path_factory.mktemp("github") / "state.json"
    service = Service(file)
    job = push(service, 1, fails=True)
    run_one(service, job, "failed", lost=True)
    service.run_again([job])
    kept = Service(file).in_repository(REPOSITORY)
    assert [(one.run_id, one.attempt, one.fails, one.lost) for one in kept] == [(1, 1, True, True), (1, 2, True, False)]


def test_repositories_are_those_of_its_jobs(server: Server, actions: Actions) -> None:
    push(server.service, 1)
    push(server.service, 2, repository="acme/zoo")
    assert actions.repositories() == [REPOSITORY, "acme/zoo"]
    with pytest.raises(NotFound):
        actions.run("acme/zoo", 1)
