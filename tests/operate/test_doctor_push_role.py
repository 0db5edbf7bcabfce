"""The push role: whether the stack's trust lets the repository's own tokens in, as GitHub's settings say they are."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from paddock.fleet import load
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.examination import checks, examine
from paddock.operate.doctor.report import Result
from paddock.operate.sources.aws import AwsReader
from tests.conftest import TODAY
from tests.support.aws_account import Account
from tests.support.github_api import GitHubApi, private_key, serve
from tests.support.web_identity import Repository

KEY = private_key()
Check = Callable[..., Result]
OLD = Repository()
NEW = replace(OLD, ids_in_subject=True)
IDS = "acme@65/images@74"
FIX = f"images.push.repository: {IDS} in Pulumi.dev.yaml, then pulumi up"


@pytest.fixture
def api() -> Iterator[GitHubApi]:
    with serve(GitHubApi(KEY)) as api:
        yield api


def show(api: GitHubApi, repository: Repository, created: str = "2024-02-29T10:00:00Z", **settings: Any) -> None:
    """Let GitHub's API show a repository and the settings of its tokens, without a hint at their form unless given."""
    names = f"{repository.owner}/{repository.name}"
    owner = {"login": repository.owner, "id": repository.owner_id}
    body = {"id": repository.id, "name": repository.name, "owner": owner, "created_at": created}
    api.pages[f"/repos/{names}"] = 200, body
    subject = repository.token()["sub"]
    said = {"use_default": True, "use_immutable_subject": repository.ids_in_subject}
    prefix = {"sub_claim_prefix": subject.partition(":ref:")[0]}
    api.pages[f"/repos/{names}/actions/oidc/customization/sub"] = 200, settings or {**said, **prefix}


@pytest.fixture
def check(project: Path, api: GitHubApi, monkeypatch: pytest.MonkeyPatch) -> Check:
    monkeypatch.setattr("paddock.operate.sources.github.api_address", lambda github: f"{api.url}/api/v3")
    file = project / "Pulumi.dev.yaml"
    before = file.read_text()

    def run(repository: str = "acme/images", key: str = KEY, server: bool = False) -> Result:
        text = f"{before}\n    images:\n      push: {{repository: {repository}}}\n"
        if server:
            text = text.replace("https://github.com/acme", f'{api.url}/acme\n      serverVersion: "3.21"')
        file.write_text(text)
        reader = AwsReader("us-west-2", Account({}).clients)
        context = Context(project, load(project, "dev"), date.fromisoformat(TODAY), reader, key)
        own = tuple(check for check in checks(context) if check.name == "push role")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("paddock.operate.doctor.examination.checks", lambda context: own)
            (line,) = examine(context).results
        return line

    return run


def test_an_old_repository_passes_with_its_names(check: Check, api: GitHubApi) -> None:
    show(api, OLD)
    line = check()
    assert (line.status, line.area) == ("pass", "github")
    assert line.message == (
        "it trusts repo:acme/images:ref:refs/heads/main; after a rename or a move it will be another,"
        f" which repository: {IDS} trusts, too"
    )


@pytest.mark.parametrize("form", [OLD, NEW], ids=["old", "new"])
def test_with_ids_both_forms_pass(check: Check, api: GitHubApi, form: Repository) -> None:
    show(api, form)
    line = check(IDS)
    assert (line.status, line.message) == ("pass", f"it trusts {form.token()['sub']}")


def test_a_new_repository_fails_with_the_key_to_write(check: Check, api: GitHubApi) -> None:
    show(api, NEW, "2026-08-01T10:00:00Z")
    line = check()
    assert line.status == "fail"
    assert line.message == (
        f"cannot be assumed: the sub of its tokens is repo:{IDS}:ref:refs/heads/main, and the role trusts"
        " repo:acme/images:ref:refs/heads/main"
    )
    assert line.fix == FIX


@pytest.mark.parametrize(
    ("created", "settings", "status"),
    [
        ("2026-07-15T00:00:00Z", {"use_default": True}, "fail"),
        ("2024-02-29T10:00:00Z", {"use_default": True, "use_immutable_subject": True}, "fail"),
        ("2024-02-29T10:00:00Z", {"use_default": True, "use_immutable_subject": False}, "pass"),
        ("2024-02-29T10:00:00Z", {"use_default": True}, "unknown"),
        # What GitHub answers for a new repository in which nobody has touched the switch.
        (
            "2026-08-01T10:00:00Z",
            {"use_default": True, "use_immutable_subject": False, "sub_claim_prefix": f"repo:{IDS}"},
            "fail",
        ),
    ],
)
def test_the_form_follows_from_what_github_says(
    check: Check, api: GitHubApi, created: str, settings: dict[str, Any], status: str
) -> None:
    show(api, OLD, created, **settings)
    assert check().status == status
    assert check(IDS).status == "pass"


def test_a_renamed_repository_fails_by_its_new_name(check: Check, api: GitHubApi) -> None:
    renamed = replace(NEW, name="gpu-images")
    show(api, renamed)
    api.pages["/repositories/74"] = api.pages["/repos/acme/gpu-images"]
    api.pages["/repos/acme/images"] = 301, "/repositories/74"
    for written in ("acme/images", IDS):
        line = check(written)
        assert line.status == "fail"
        assert line.message == (
            "cannot be assumed: GitHub calls the repository acme/gpu-images, and the stack file acme/images"
        )
        assert line.fix.startswith("images.push.repository: acme@65/gpu-images@74 in ")


def test_capitals_are_part_of_a_name(check: Check, api: GitHubApi) -> None:
    show(api, replace(OLD, owner="Acme"))
    api.pages["/repos/acme/images"] = api.pages["/repos/Acme/images"]
    assert "GitHub calls the repository Acme/images" in check().message


def test_ids_of_another_repository_fail(check: Check, api: GitHubApi) -> None:
    show(api, NEW)
    line = check("acme@66/images@75")
    assert line.status == "fail"
    assert line.message == (
        "cannot be assumed: the repository is acme@65/images@74, and the ids in the stack file are of another"
    )
    assert line.fix == FIX


@pytest.mark.parametrize("repository", ["acme/images", IDS])
def test_a_subject_of_other_claims_fails(check: Check, api: GitHubApi, repository: str) -> None:
    show(api, OLD, use_default=False, include_claim_keys=["repo", "context", "job_workflow_ref"])
    line = check(repository)
    assert line.status == "fail"
    assert line.message.startswith(
        "cannot be assumed: by the repository's template the sub of its tokens is made of repo, context, job_w"
    )
    assert line.fix == "gh api --method PUT repos/acme/images/actions/oidc/customization/sub -F use_default=true"


def test_a_template_that_says_the_default_passes(check: Check, api: GitHubApi) -> None:
    prefix = f"repo:{IDS}"
    show(api, NEW, use_default=False, include_claim_keys=["repo", "context"], sub_claim_prefix=prefix)
    assert check(IDS).status == "pass"


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ((200, {"include_claim_keys": ["repository_owner"]}), "fail"),
        ((200, {"include_claim_keys": ["repo", "context"]}), "pass"),
        ((403, {"message": "Resource not accessible by integration"}), "unknown"),
    ],
)
def test_the_organisations_template_counts_where_it_is_followed(
    check: Check, api: GitHubApi, answer: tuple[int, Any], status: str
) -> None:
    show(api, OLD, use_default=False, use_immutable_subject=False)
    api.pages["/orgs/acme/actions/oidc/customization/sub"] = answer
    line = check()
    assert line.status == status
    assert line.permission == ("Organization / Administration: read-only" if status == "unknown" else "")


@pytest.mark.parametrize(
    ("repository", "created", "says", "fix"),
    [
        (IDS, "2026-08-01T10:00:00Z", "trusts the tokens that GitHub gives by default", "allow the App "),
        ("acme/images", "2026-08-01T10:00:00Z", "was made on 2026-08-01, and by default its tokens say acme@65", FIX),
        ("acme/images", "2024-02-29T10:00:00Z", "if it was renamed or moved, or opted in, since 2026-07-15", FIX),
    ],
)
def test_settings_that_cannot_be_read_are_unknown(
    check: Check, api: GitHubApi, repository: str, created: str, says: str, fix: str
) -> None:
    show(api, NEW, created)
    refused = 403, {"message": "Resource not accessible by integration"}
    api.pages["/repos/acme/images/actions/oidc/customization/sub"] = refused
    line = check(repository)
    assert (line.status, line.permission) == ("unknown", "Repository / Actions: read-only")
    assert says in line.message
    assert line.fix.startswith(fix)
    assert line.fix.endswith("allow the App Repository / Actions: read-only")


def test_a_repository_out_of_reach_is_unknown(check: Check) -> None:
    line = check()
    assert line.status == "unknown"
    assert "there is none, or the credential does not reach it" in line.message
    assert line.fix == "install the App in acme/images, or correct images.push.repository"


def test_without_a_credential_it_is_unknown(check: Check) -> None:
    line = check(key="")
    assert line.status == "unknown"
    assert line.fix == "pulumi config set --stack dev --secret paddock:githubAppKey < KEY.pem"


def test_tokens_of_a_server_have_names_alone(check: Check, api: GitHubApi) -> None:
    show(api, OLD, "2026-08-01T10:00:00Z", use_default=True)
    line = check(server=True)
    assert (line.status, line.message) == ("pass", "it trusts repo:acme/images:ref:refs/heads/main")
