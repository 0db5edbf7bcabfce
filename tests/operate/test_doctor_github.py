"""The App's key, installation and permissions, against a stand-in that checks signatures as GitHub does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddock.fleet import load
from paddock.fleet.model.github import GitHub
from paddock.operate.doctor.checks import github
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.github import GitHubReader, api_address
from paddock.operate.sources.unavailable import Unavailable
from tests.conftest import TODAY
from tests.operate.conftest import program
from tests.support.aws_account import Account
from tests.support.github_api import GitHubApi, private_key, serve

KEY = private_key()
Check = Callable[..., list[Result]]


@pytest.fixture
def api() -> Iterator[GitHubApi]:
    with serve(GitHubApi(KEY)) as api:
        yield api


@pytest.fixture
def check(project: Path, api: GitHubApi) -> Check:
    def run(key: str = KEY, url: str = "", place: str = "acme") -> list[Result]:
        file = project / "Pulumi.dev.yaml"
        server = f'{url or api.url}/{place}\n      serverVersion: "3.21"'
        file.write_text(file.read_text().replace("https://github.com/acme", server))
        stack = load(project, "dev")
        from datetime import date

        context = Context(project, stack, date.fromisoformat(TODAY), AwsReader("us-west-2", Account({}).clients), key)
        return list(github.registration(context))

    return run


def test_app_with_the_right_permissions_passes(check: Check) -> None:
    assert [(line.subject, line.status) for line in check()] == [
        ("App 12345", "pass"), ("installation", "pass"), ("permissions", "pass"),
    ]  # fmt: skip


def test_key_of_another_app_fails(check: Check) -> None:
    (line,) = check(private_key())
    assert line.status == "fail"
    assert "the key is not this App's" in line.message


def test_missing_permission_is_named(check: Check, api: GitHubApi) -> None:
    api.permissions = {"organization_self_hosted_runners": "read", "metadata": "read"}
    line = check()[-1]
    assert line.status == "fail"
    assert "Organization / Self-hosted runners: read and write (has read)" in line.message


def test_installation_elsewhere_or_suspended_fails(check: Check, api: GitHubApi) -> None:
    api.login = "other"
    assert check()[1].status == "fail"
    api.login, api.suspended_at = "acme", "2026-11-01T00:00:00Z"
    assert "suspended since 2026-11-01" in check()[1].message


def test_absent_installation_fails(check: Check, api: GitHubApi) -> None:
    api.installation = "999"
    assert check()[-1].message == "the App has no installation 678"


def test_an_app_that_github_does_not_have_fails(check: Check, api: GitHubApi) -> None:
    api.app_exists = False
    (line,) = check()
    assert line.status == "fail"
    assert "Integration not found: GitHub has no App 12345" in line.message


@pytest.mark.parametrize(("reaches", "status"), [(True, "pass"), (False, "fail")])
def test_an_installation_must_reach_the_repository(
    check: Check, project: Path, api: GitHubApi, reaches: bool, status: str
) -> None:
    api.permissions, api.reaches = {"administration": "write", "metadata": "read"}, reaches
    lines = {line.subject: line for line in check(place="acme/project")}
    assert lines["permissions"].status == "pass"
    assert lines["repository"].status == status
    assert "acme/project" in lines["repository"].message


def test_an_app_without_actions_passes_and_says_what_it_cannot_do(check: Check, api: GitHubApi) -> None:
    assert "without Actions: read and write, which lets `why` look at jobs" in check()[-1].message
    api.permissions["actions"] = "write"
    assert "without" not in check()[-1].message


def test_busy_server_is_asked_again(check: Check, api: GitHubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("paddock.operate.sources.github.time", SimpleNamespace(sleep=waits.append, time=time.time))
    api.failures = [502, 429]
    assert check()[0].status == "pass"
    api.failures = [503] * 3
    with pytest.raises(Unavailable, match="answers 503"):
        check()
    assert len(waits) == 4
    assert min(waits) > 0


def test_unreachable_server_is_unknown(check: Check) -> None:
    with pytest.raises(Unavailable, match=r"127\.0\.0\.1:9 does not answer"):
        check(url="http://127.0.0.1:9")


def test_text_that_is_no_key_is_never_repeated(check: Check) -> None:
    with pytest.raises(Unavailable, match="not a private key") as raised:
        check("hunter2")
    assert "hunter2" not in str(raised.value) + raised.value.fix


def test_a_token_in_place_of_the_key_leaves_the_app_unknown(check: Check, api: GitHubApi) -> None:
    assert [(line.subject, line.status) for line in check(api.token)] == [("App 12345", "unknown"), ("token", "pass")]


def test_credential_that_nobody_gave_fails_with_the_command(check: Check) -> None:
    (line,) = check("")
    assert line.status == "fail"
    assert line.fix == "pulumi config set --stack dev --secret paddock:githubAppKey < KEY.pem"


def test_pulumi_decrypts_the_key_of_the_stack(check: Check, project: Path, programs: Path) -> None:
    file = project / "Pulumi.dev.yaml"
    file.write_text(file.read_text().replace("config:\n", "config:\n  paddock:githubAppKey: {secure: v1:abc}\n"))
    (project / "key").write_text(KEY)
    program(programs, "pulumi", f"cat {project / 'key'}")
    assert check("")[0].status == "pass"
    program(programs, "pulumi", "echo error: passphrase must be set >&2; exit 255")
    with pytest.raises(Unavailable, match="passphrase must be set") as raised:
        check("")
    assert "--github-key FILE" in raised.value.fix


def test_token_reads_the_runners(check: Check, project: Path, api: GitHubApi) -> None:
    file = project / "Pulumi.dev.yaml"
    text = file.read_text()
    start = text.index("      app:")
    file.write_text(text[:start] + "      token: config\n" + text[text.index("\n", start) + 1 :])
    assert [line.status for line in check(api.token)] == ["pass"]
    assert [line.status for line in check("ghp_wrong")] == ["fail"]


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/acme", "https://api.github.com"),
        ("https://acme.ghe.com/acme", "https://api.acme.ghe.com"),
        ("https://git.example.com/acme", "https://git.example.com/api/v3"),
    ],
)
def test_address_of_the_api(url: str, address: str) -> None:
    github = GitHub.model_validate({"url": url, "token": "config", "serverVersion": "3.21"})
    assert api_address(github) == address


def test_credential_does_not_follow_a_redirect(api: GitHubApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "answer", lambda path, authorization: (302, {}))
    with pytest.raises(Unavailable, match="answers 302"):
        GitHubReader(f"{api.url}/api/v3", "none").read("/app")
