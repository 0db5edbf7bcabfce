"""Who may start a job: groups, repositories and policies for forks, at the lab's GitHub and at one that refuses."""

from __future__ import annotations

import json
import shlex
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from paddock.fleet import load
from paddock.lab.github.server import Server
from paddock.operate.doctor.command import Doctor, doctor
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.examination import checks, examine
from paddock.operate.doctor.report import Result
from paddock.operate.sources.aws import AwsReader
from tests.conftest import TODAY
from tests.support import lab_github
from tests.support.aws_account import Account, answering, healthy
from tests.support.github_api import GROUPS, NOT_ACCESSIBLE, GitHubApi, group, listed, private_key, serve

KEY = private_key()
TOKEN = "ghp_made-up-0123456789"
OWN_CHECKS = ("registration", "who may start jobs", "settings of Actions")
APPROVAL = "actions/permissions/fork-pr-contributor-approval"
Examine = Callable[..., dict[str, Result]]


class GitHub:
    """The lab's stand-in for GitHub, with what `gh api` would do to it."""

    def __init__(self, server: Server) -> None:
        self.server, self.url = server, server.url

    def ask(self, method: str, path: str, **body: Any) -> Any:
        """Send a request and return its answer."""
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        text = json.dumps(body).encode() if body else None
        asked = urllib.request.Request(f"{self.url}/api/v3/{path}", text, headers, method=method)
        with urllib.request.urlopen(asked, timeout=10) as response:
            raw = response.read()
        return json.loads(raw) if raw else None

    def follow(self, fix: str) -> None:
        """Run the command line of a fix, up to its comment."""
        words = shlex.split(fix, comments=True)
        assert words[:3] == ["gh", "api", "--method"], fix
        host, path = words[words.index("--hostname") + 1], words[6]
        assert host in self.url
        fields = dict(field.split("=", 1) for flag, field in zip(words[7::2], words[8::2], strict=True) if flag)
        typed = {key: json.loads(value) if value in ("true", "false") else value for key, value in fields.items()}
        self.ask(words[3], path, **typed)

    def public(self, name: str) -> int:
        """Make a public repository of acme; return its number."""
        return int(self.ask("POST", "orgs/acme/repos", name=name, visibility="public")["id"])


@pytest.fixture
def github() -> Iterator[GitHub]:
    with lab_github.serving() as server:
        yield GitHub(server)


@pytest.fixture
def run(project: Path) -> Examine:
    """Examine what GitHub at an address says of the stack `dev`, whose text may be changed, by subject."""
    before = (project / "Pulumi.dev.yaml").read_text()

    def run_(
        url: str, place: str = "acme", key: str = KEY, changes: Sequence[tuple[str, str]] = (), config: str = ""
    ) -> dict[str, Result]:
        text = before.replace("https://github.com/acme", f'{url}/{place}\n      serverVersion: "3.21"')
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (project / "Pulumi.dev.yaml").write_text(text.replace("config:\n", f"config:\n{config}", 1))
        reader = AwsReader("us-west-2", Account({}).clients)
        context = Context(project, load(project, "dev"), date.fromisoformat(TODAY), reader, key)
        own = tuple(check for check in checks(context) if check.name in OWN_CHECKS)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("paddock.operate.doctor.examination.checks", lambda context: own)
            results = examine(context).results
        assert len({line.subject for line in results}) == len(results)
        return {line.subject: line for line in results}

    return run_


POOL = "        pool: t4\n"
DIND = (POOL, f"{POOL}        container: dind\n")
ACCEPTED = (
    "  paddock:suppressions:\n"
    '    - {rule: PAD033, resource: "*", reason: "its maintainers look at every fork", expires: "2027-01-31"}\n'
)


def test_lab_app_passes(run: Examine, github: GitHub) -> None:
    lines = run(github.url)
    assert {s: line.status for s, line in lines.items()} == {
        "App 12345": "pass",
        "installation": "pass",
        "permissions": "pass",
        "runner group Default": "warn",
        "settings of Actions": "pass",
    }
    assert "open to every repository that is not public" in lines["runner group Default"].message


def test_a_public_repository_has_no_group_to_protect_it(run: Examine, github: GitHub) -> None:
    github.public("tool")
    lines = run(github.url, "acme/tool")
    assert lines["who reaches acme/tool"].status == "fail"
    assert lines["approval of forks"].status == "warn"
    assert "until one pull request was merged, GitHub's default" in lines["approval of forks"].message
    assert run(github.url, "acme/tool", changes=[DIND])["approval of forks"].status == "fail"
    github.follow(lines["approval of forks"].fix)
    assert run(github.url, "acme/tool")["approval of forks"].status == "pass"
    accepted = run(github.url, "acme/tool", config=ACCEPTED)["who reaches acme/tool"]
    assert accepted.status == "pass"
    assert "accepted until 2027-01-31: its maintainers look at every fork" in accepted.message
    github.follow(lines["who reaches acme/tool"].fix)
    assert run(github.url, "acme/tool")["who reaches acme/tool"].status == "pass"


def test_a_group_open_to_all_is_narrowed_by_its_fixes(run: Examine, github: GitHub) -> None:
    number = github.public("web")
    github.ask("PATCH", "orgs/acme/actions/runner-groups/1", allows_public_repositories=True)
    lines = run(github.url)
    assert (lines["runner group Default"].status, lines["approval of forks"].status) == ("fail", "warn")
    assert "it admits public repositories (acme/web)" in lines["runner group Default"].message
    github.follow(lines["runner group Default"].fix)
    wide = run(github.url)["runner group Default"]
    assert wide.status == "warn"
    github.follow(wide.fix)
    nobody = run(github.url)["runner group Default"]
    assert (nobody.status, "no job may use it" in nobody.message) == ("warn", True)
    train = github.ask("POST", "orgs/acme/repos", name="train")["id"]
    for chosen in (train, number):
        github.ask("PUT", f"orgs/acme/actions/runner-groups/1/repositories/{chosen}")
    (line,) = (line for subject, line in run(github.url).items() if subject.startswith("runner group"))
    assert (line.status, line.message) == (
        "pass",
        "open to acme/train, but not to acme/web, which is public; any workflow of theirs may use it",
    )


def test_chosen_workflows_of_a_public_repository_are_a_warning(run: Examine, github: GitHub) -> None:
    github.public("web")
    github.ask(
        "PATCH",
        "orgs/acme/actions/runner-groups/1",
        allows_public_repositories=True,
        restricted_to_workflows=True,
        selected_workflows=["acme/ci/.github/workflows/gpu.yml@main"],
    )
    line = run(github.url)["runner group Default"]
    assert line.status == "warn"
    assert "only acme/ci/.github/workflows/gpu.yml@main may use it" in line.message


def test_a_group_that_is_missing_fails_and_is_made_by_the_fix(run: Examine, github: GitHub) -> None:
    changes = [(POOL, f"{POOL}        group: gpu runners\n")]
    line = run(github.url, changes=changes)["runner group gpu runners"]
    assert line.status == "fail"
    assert "(there: Default), and ARC registers gpu nowhere" in line.message
    github.follow(line.fix)
    assert "no repository is chosen" in run(github.url, changes=changes)["runner group gpu runners"].message


def test_what_forks_of_private_repositories_may_do_is_said(run: Examine, github: GitHub) -> None:
    path = "orgs/acme/actions/permissions/fork-pr-workflows-private-repos"
    github.ask("PUT", path, run_workflows_from_fork_pull_requests=True, send_secrets_and_variables=True)
    line = run(github.url)["settings of Actions"]
    assert line.status == "warn"
    assert "from a fork of it without an approval, with secrets" in line.message
    github.follow(line.fix)
    assert "is approved first" in run(github.url)["settings of Actions"].message
    github.ask("PUT", "orgs/acme/actions/permissions", enabled_repositories="none")
    off = run(github.url)["settings of Actions"]
    assert off.status == "fail"
    github.follow(off.fix)
    assert run(github.url)["settings of Actions"].status == "pass"


def test_the_command_names_group_repository_and_policy(
    github: GitHub,
    of_project: Path,
    programs: Path,
    address: None,
    graphs: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answering(monkeypatch, Account(healthy()))
    github.public("web")
    github.ask("PATCH", "orgs/acme/actions/runner-groups/1", allows_public_repositories=True)
    file, key = of_project / "Pulumi.dev.yaml", tmp_path / "key.pem"
    key.write_text(KEY)
    text = file.read_text().replace("https://github.com/acme", f'{github.url}/acme\n      serverVersion: "3.21"')
    file.write_text(text)
    report = doctor(Doctor(github_key=key))
    assert report.exit_code == 1
    printed = "\n".join(report.text())
    assert "FAIL     runner group Default: it admits public repositories (acme/web)" in printed
    assert "WARN     approval of forks: acme/web asks for an approval only until one pull request was merged" in printed
    assert f"{APPROVAL} -f approval_policy=all_external_contributors" in printed


@pytest.fixture
def api() -> Iterator[GitHubApi]:
    with serve(GitHubApi(KEY)) as api:
        yield api


def open_to(api: GitHubApi, names: list[str]) -> None:
    """Let the group Default be open to public repositories of these names."""
    api.pages |= listed(GROUPS, "runner_groups", [group(allows_public_repositories=True)])
    members = [{"full_name": name, "private": False} for name in names]
    api.pages |= listed(f"{GROUPS}/1/repositories", "repositories", members)


@pytest.mark.parametrize(
    ("answer", "words", "permission"),
    [
        (NOT_ACCESSIBLE, "answers 403", "Organization / Self-hosted runners: read-only"),
        ((404, {"message": "Not Found"}), "may not see it", "Organization / Self-hosted runners: read-only"),
        ((403, {"message": "`acme` has an IP allow list enabled"}), "IP allow list", ""),
        ((422, {"message": "Validation Failed"}), "answers 422", ""),
        ((500, {"message": "oops"}), "answers 500", ""),
    ],
)
def test_what_may_not_be_read_is_unknown_with_its_permission(
    run: Examine, api: GitHubApi, answer: tuple[int, Any], words: str, permission: str
) -> None:
    api.pages[f"{GROUPS}?per_page=100&page=1"] = answer
    line = run(api.url)["who may start jobs"]
    assert (line.status, line.permission) == ("unknown", permission)
    assert words in line.message


def test_settings_need_a_permission_that_runners_do_without(run: Examine, api: GitHubApi) -> None:
    lines = run(api.url)
    assert lines["runner group Default"].status == "pass"
    assert lines["settings of Actions"].status == "unknown"
    assert lines["settings of Actions"].permission == "Organization / Administration: read-only"


def test_every_page_of_a_groups_repositories_is_read(run: Examine, api: GitHubApi) -> None:
    members = [{"full_name": f"acme/r{number}", "visibility": "private"} for number in range(1000)]
    members.append({"full_name": "acme/last", "visibility": "public"})
    api.pages |= listed(GROUPS, "runner_groups", [group(allows_public_repositories=True)])
    api.pages |= listed(f"{GROUPS}/1/repositories", "repositories", members)
    api.pages[f"/repos/acme/last/{APPROVAL}"] = 200, {"approval_policy": "all_external_contributors"}
    lines = run(api.url)
    assert "public repositories (acme/last)" in lines["runner group Default"].message
    assert lines["approval of forks"].status == "pass"


def test_of_a_thousand_public_repositories_the_unread_are_unknown(run: Examine, api: GitHubApi) -> None:
    names = [f"acme/r{number}" for number in range(1000)]
    open_to(api, names)
    api.pages |= {
        f"/repos/{name}/{APPROVAL}": (200, {"approval_policy": "all_external_contributors"}) for name in names
    }
    api.pages[f"/orgs/acme/{APPROVAL}"] = 200, {"approval_policy": "all_external_contributors"}
    line = run(api.url)["approval of forks"]
    assert line.status == "unknown"
    assert "20 of 1000 public repositories were asked" in line.message
    assert sum(APPROVAL in request for request in api.requests) == 21


def test_the_organisations_policy_stands_in_for_unread_ones(run: Examine, api: GitHubApi) -> None:
    open_to(api, ["acme/web"])
    api.pages[f"/repos/acme/web/{APPROVAL}"] = NOT_ACCESSIBLE
    api.pages[f"/orgs/acme/{APPROVAL}"] = 200, {"approval_policy": "first_time_contributors"}
    assert run(api.url)["approval of forks"].status == "warn"
    api.pages[f"/orgs/acme/{APPROVAL}"] = NOT_ACCESSIBLE
    line = run(api.url)["approval of forks"]
    assert (line.status, line.permission) == ("unknown", "Repository / Administration: read-only")


def test_an_inherited_group_is_changed_by_the_enterprise(run: Examine, api: GitHubApi) -> None:
    inherited = group(inherited=True, visibility="all", inherited_allows_public_repositories=True)
    api.pages |= listed(GROUPS, "runner_groups", [inherited])
    api.pages |= listed("/orgs/acme/repos", "", [{"full_name": "acme/web", "private": False}], "type=public&")
    line = run(api.url)["runner group Default"]
    assert (line.status, line.fix) == (
        "fail", "the group is the enterprise's: its owners, in the enterprise's settings",
    )  # fmt: skip


def test_a_group_of_an_enterprise_is_judged_by_its_switch(run: Examine, api: GitHubApi, project: Path) -> None:
    text = (project / "Pulumi.dev.yaml").read_text()
    start = text.index("      app:")
    app = text[start : text.index("\n", start) + 1]
    path = "/enterprises/corp/actions/runner-groups"
    api.pages |= listed(path, "runner_groups", [group(visibility="all")])
    token = {"place": "enterprises/corp", "key": api.token, "changes": [(app, "      token: config\n")]}
    assert run(api.url, **token)["runner group Default"].status == "warn"
    api.pages |= listed(path, "runner_groups", [group(visibility="all", allows_public_repositories=True)])
    lines = run(api.url, **token)
    assert lines["runner group Default"].status == "fail"
    assert (lines["approval of forks"].status, lines["approval of forks"].permission) == ("unknown", "admin:enterprise")


def test_a_throttled_github_leaves_only_its_lines_unknown(
    run: Examine, api: GitHubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.pages[f"{GROUPS}?per_page=100&page=1"] = 403, {"message": "You have exceeded a secondary rate limit"}
    monkeypatch.setattr("paddock.operate.sources.github._wait", lambda headers: 0.0)
    lines = run(api.url)
    assert (lines["who may start jobs"].status, lines["who may start jobs"].permission) == ("unknown", "")
    assert lines["permissions"].status == "pass"
