"""The reader of GitHub's REST API, against a stand-in on loopback: credentials that end, answers cut off, jobs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from paddock.fleet.model.github import GitHub
from paddock.operate.sources.github import GitHubReader, Unauthorised, api_address, installation_reader
from paddock.operate.sources.unavailable import Unavailable
from tests.support.github_api import private_key
from tests.support.http_server import Handler, serving

Reply = tuple[Any, ...]
"""Status, body and perhaps headers."""
Serve = Callable[[Callable[[str, str], Reply]], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Yield what serves answers."""
    with ExitStack() as servers:

        def start(answer: Callable[[str, str], Reply]) -> str:
            class Requests(Handler):
                def do_GET(self) -> None:
                    self.send(*answer(self.path, self.headers.get("Authorization", "")))

                do_POST = do_GET

            return servers.enter_context(serving(Requests))

        yield start


def github(url: str, place: str = "acme") -> GitHub:
    app = {"id": "12345", "installation": "678"}
    return GitHub.model_validate({"url": f"{url}/{place}", "serverVersion": "3.21", "app": app})


def test_expired_installation_token_is_renewed_once(serve: Serve) -> None:
    tokens, valid = iter(["first", "second"]), {"first"}

    def answer(path: str, authorization: str) -> Reply:
        if path.endswith("/access_tokens"):
            return 201, {"token": next(tokens)}
        good = authorization.removeprefix("Bearer ") in valid
        return (200, {"runners": []}) if good else (401, {"message": "Bad credentials"})

    config = github(serve(answer))
    reader = installation_reader(config, private_key())
    assert reader.runners(config) == []
    valid.clear()
    valid.add("second")
    assert reader.runners(config) == []
    valid.clear()
    tokens = iter(["third"])
    with pytest.raises(Unauthorised):
        reader.runners(config)


def test_answer_cut_off_is_unavailable(serve: Serve) -> None:
    url = serve(lambda *_: (200, b'{"runners": [', {"Content-Length": "400"}))
    with pytest.raises(Unavailable, match="does not answer"):
        GitHubReader(url, "token").read("/orgs/acme/actions/runners")


def test_jobs_wait_in_runs_that_go_on(serve: Serve) -> None:
    jobs = {
        1: [{"id": 10, "status": "queued"}],
        2: [{"id": 20, "status": "in_progress"}, {"id": 21, "status": "queued"}, {"id": 22, "status": "completed"}],
    }

    def answer(path: str, authorization: str) -> Reply:
        parts = urlsplit(path)
        if parts.path.endswith("/runs"):
            status = parse_qs(parts.query)["status"][0]
            return 200, {"workflow_runs": [{"id": {"queued": 1, "in_progress": 2}[status]}]}
        return 200, {"jobs": jobs[int(parts.path.split("/")[-2])]}

    config = github(serve(answer), "acme/app")
    assert [job["id"] for job in GitHubReader(api_address(config), "token").jobs(config, "")] == [10, 21]
