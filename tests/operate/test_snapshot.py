"""Reading of a snapshot: times of whoever answered, and a job's log; GitHub is a stand-in on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from paddock.operate.snapshot.model import Reading, changed
from paddock.operate.snapshot.read import Sources, read
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.github import GitHubReader
from tests.operate.conftest import AT
from tests.support.aws_account import REGION, Account
from tests.support.chain_world import World, variant
from tests.support.http_server import Handler, serving

JOB = {"id": 42, "status": "completed", "conclusion": "failure", "labels": ["gpu"], "runner_name": "gpu-x"}
FLEET = variant("repository").fleet


class StandInForGitHub:
    """Answers of a repository's jobs; the log lies at another address, as GitHub keeps it."""

    def __init__(self) -> None:
        self.job: dict[str, Any] = dict(JOB)
        self.log = b"line\n" * 100_000 + b"\xff\xfe RuntimeError: CUDA out of memory\n"
        self.log_status = 302
        self.seen: list[tuple[str, str]] = []

    def answer(self, path: str) -> tuple[Any, ...]:
        if path == "/repos/acme/app/actions/jobs/42":
            return 200, self.job
        if path == "/repos/acme/app/actions/jobs/42/logs":
            return self.log_status, {"message": "no"}, {"Location": f"{self.address}/blob?sig=secret"}
        if path.startswith("/blob"):
            return 200, self.log
        if path.startswith("/repos/acme/app/actions/runners"):
            return 200, {"runners": []}
        return 404, {}

    address = ""


@contextmanager
def served(stand_in: StandInForGitHub, date: datetime) -> Iterator[GitHubReader]:
    class Requests(Handler):
        def do_GET(self) -> None:
            stand_in.seen.append((self.path, self.headers.get("Authorization", "")))
            self.send(*stand_in.answer(self.path))

        def date_time_string(self, timestamp: float | None = None) -> str:
            return f"{date:%a, %d %b %Y %H:%M:%S} GMT"

    with serving(Requests) as stand_in.address:
        yield GitHubReader(stand_in.address, "token")


def test_the_end_of_a_failed_jobs_log_is_read_without_the_credential() -> None:
    github = StandInForGitHub()
    with served(github, AT) as reader:
        snapshot = read(FLEET, Sources(github=reader, job="acme/app/42"))
    (log,) = snapshot.job_log
    assert log["text"].endswith("\ufffd\ufffd RuntimeError: CUDA out of memory\n")
    assert len(log["text"]) <= 256 * 1024
    assert [credential for path, credential in github.seen if path.startswith("/blob")] == [""]


@pytest.mark.parametrize("job", [{"status": "in_progress", "conclusion": None}, {"conclusion": "success"}])
def test_a_log_without_evidence_is_not_read(job: dict[str, Any]) -> None:
    github = StandInForGitHub()
    github.job |= job
    with served(github, AT) as reader:
        snapshot = read(FLEET, Sources(github=reader, job="acme/app/42"))
    assert not [path for path, _ in github.seen if "logs" in path]
    assert not snapshot.job_log.known


def test_a_log_that_is_refused_is_unknown_with_its_reason() -> None:
    github = StandInForGitHub()
    github.log_status = 410
    with served(github, AT) as reader:
        snapshot = read(FLEET, Sources(github=reader, job="acme/app/42"))
    assert snapshot.jobs.known
    assert "answers 410" in snapshot.job_log.reason
    assert "sig=secret" not in snapshot.job_log.reason


def test_github_dates_its_own_part() -> None:
    """Where no cluster answers, its clock is the snapshot's: this machine's may be wrong."""
    github = StandInForGitHub()
    with served(github, AT) as reader:
        snapshot = read(FLEET, Sources(github=reader, job="acme/app/42"))
    assert (snapshot.clocks["github"], snapshot.at) == (AT, AT)
    assert snapshot.since(AT - timedelta(minutes=3), "github") == timedelta(minutes=3)


def test_aws_dates_its_own_part() -> None:
    account = Account(World(variant("dev"), AT).answers())
    snapshot = read(variant("dev").fleet, Sources(aws=AwsReader(REGION, account.clients)))
    assert abs(snapshot.clocks["aws"] - datetime.now(UTC)) < timedelta(minutes=1)
    assert isinstance(snapshot.activities, Reading)


def test_an_objects_last_change_is_not_that_of_its_status() -> None:
    fields = [
        {"manager": "helm", "time": "2026-11-24T11:00:00Z"},
        {"manager": "manager", "time": "2026-11-24T11:30:00Z", "subresource": "status"},
    ]
    made = {"metadata": {"name": "x", "creationTimestamp": "2026-11-24T10:00:00Z", "managedFields": fields}}
    assert changed(made) == datetime(2026, 11, 24, 11, 0, tzinfo=UTC)
