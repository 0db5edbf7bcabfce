"""Whether a queued job's group admits it, as the lab's GitHub says it; the lab gives such a job to nobody, too."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from paddock.fleet import Fleet
from paddock.lab.github.server import Server
from paddock.operate.inventory.admission import read_admissions
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.sources.github import GitHubReader
from paddock.operate.why.admission import admissions
from tests.operate.conftest import AT
from tests.support import lab_github
from tests.support.chain_world import variant

GROUP = "/orgs/acme/actions/runner-groups/1"


class Reader(GitHubReader):
    """Reads the lab's GitHub, and changes it as its owner would."""

    def change(self, method: str, path: str, **body: Any) -> Any:
        return self.ask(method, path, body).body


@pytest.fixture
def server() -> Iterator[Server]:
    with lab_github.serving() as server:
        yield server


@pytest.fixture
def github(server: Server) -> Reader:
    return Reader(f"{server.url}/api/v3", "ghp_made-up")


@pytest.fixture
def fleet() -> Fleet:
    return variant("dev").fleet


def refused(github: GitHubReader, fleet: Fleet, server: Server, repository: str) -> str:
    """Return why the group Default refuses a job that a repository queues; the lab offers it accordingly."""
    job = server.service.push({"labels": ["gpu"], "repository": repository})
    reading = Reading((github.read(f"/repos/{repository}/actions/jobs/{job['id']}").body,))
    (found,) = admissions(Snapshot(fleet, AT, jobs=reading), github, f"{repository}/{job['id']}")
    if not server.service.sets("gpu"):
        server.service.create_set({"name": "gpu", "labels": [{"name": "gpu"}]})
    number = server.service.sets("gpu")[0]["id"]
    assert (server.service.acquire(number, [job["id"]]) == []) is (found["refused"] in ("public", "repository"))
    return str(found["refused"])


def test_public_repositories_are_admitted_where_the_group_says_so(server: Server, github: Reader, fleet: Fleet) -> None:
    assert refused(github, fleet, server, "acme/app") == ""
    github.change("PATCH", "/repos/acme/app", visibility="public")
    assert refused(github, fleet, server, "acme/app") == "public"
    github.change("PATCH", GROUP, allows_public_repositories=True)
    assert refused(github, fleet, server, "acme/app") == ""


def test_a_repository_that_is_not_chosen_is_refused(server: Server, github: Reader, fleet: Fleet) -> None:
    chosen = github.change("POST", "/orgs/acme/repos", name="app")["id"]
    github.change("PATCH", GROUP, visibility="selected")
    assert refused(github, fleet, server, "acme/app") == "repository"
    github.change("PUT", f"{GROUP}/repositories/{chosen}")
    assert refused(github, fleet, server, "acme/app") == ""


def test_workflows_are_compared_without_their_refs(server: Server, github: Reader, fleet: Fleet) -> None:
    github.change(
        "PATCH", GROUP, restricted_to_workflows=True, selected_workflows=["acme/ci/.github/workflows/x.yml@v1"]
    )
    assert refused(github, fleet, server, "acme/app") == "workflow"
    github.change("PATCH", GROUP, selected_workflows=["acme/app/.github/workflows/lab.yml@refs/heads/main"])
    assert refused(github, fleet, server, "acme/app") == ""


def test_what_is_elsewhere_or_missing_is_told_apart(server: Server, github: Reader, fleet: Fleet) -> None:
    server.service.push({"labels": ["gpu"], "repository": "acme/app"})
    found = read_admissions(github, fleet.github, ["gpu", "DEFAULT"], "acme/app", list)
    assert [(one.group, one.refused) for one in found] == [("gpu", "missing"), ("DEFAULT", "")]
    assert {one.refused for one in read_admissions(github, fleet.github, ["Default"], "other/app", list)} == {
        "elsewhere"
    }
    own = replace_url(fleet, "https://github.com/acme/app")
    assert read_admissions(github, own, ["Default"], "acme/app", list) == ()


def replace_url(fleet: Fleet, url: str) -> Any:
    return fleet.github.model_copy(update={"url": url})


def test_a_job_that_does_not_wait_is_not_asked_about(github: Reader, fleet: Fleet) -> None:
    reading = Reading(({"id": 1, "status": "in_progress"},))
    assert not admissions(Snapshot(fleet, AT, jobs=reading), github, "acme/app/1").known


def test_what_may_not_be_read_is_unknown_with_its_permission(fleet: Fleet) -> None:
    class Denied(GitHubReader):
        def read(self, path: str) -> Any:
            from paddock.operate.sources.github import Forbidden

            raise Forbidden("GitHub answers 403: Resource not accessible by integration")

    reading = Reading(({"id": 1, "status": "queued", "run_id": 1},))
    snapshot = replace(Snapshot(fleet, AT), jobs=reading)
    found = admissions(snapshot, Denied("http://127.0.0.1:9", "none"), "acme/app/1")
    assert found.permission == "Organization / Self-hosted runners: read-only"
