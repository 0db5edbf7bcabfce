"""Servers that are busy while a run's Jobs are looked at, and addresses that are not a server's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from paddock.kubernetes.errors import ApiError
from paddock.operate.sources import kubernetes_jobs
from paddock.operate.sources.kubernetes_jobs import Jobs
from paddock.operate.sources.prometheus import check_url
from paddock.operate.sources.unavailable import NotFound


def jobs(*answers: Any) -> Jobs:
    left = iter(answers)

    def get(*_: str) -> Any:
        answer = next(left)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return Jobs(SimpleNamespace(api=lambda _: SimpleNamespace(get=get)), "smoke", "run=x")  # type: ignore[arg-type]


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_server_is_asked_for_a_job_again(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[float] = []
    monkeypatch.setattr(kubernetes_jobs, "time", SimpleNamespace(sleep=waited.append))
    busy = ApiError(status, "", "later")
    assert jobs(busy, busy, {"kind": "Job"}).job("x") == {"kind": "Job"}
    assert waited == [0.5, 1.0]


def test_a_job_that_is_not_there_is_asked_for_once() -> None:
    with pytest.raises(NotFound):
        jobs(ApiError(404, "NotFound", "jobs x not found")).job("x")


@pytest.mark.parametrize(
    ("url", "wrong"),
    [
        ("http://prometheus:1", ""),
        ("https://metrics.example.com/prometheus/", ""),
        ("http://prometheus:0", "it is not an address of a server"),
        ("http://prometheus:x", "it is not an address"),
        ("ftp://prometheus", "it is not an address of a server"),
        ("http://prometheus?query=up", "it is not an address of a server"),
        ("http://user:word@prometheus", "it holds a credential, which every process of this machine could read"),
    ],
)
def test_an_address_that_is_not_a_servers_says_why(url: str, wrong: str) -> None:
    assert check_url(url) == wrong
