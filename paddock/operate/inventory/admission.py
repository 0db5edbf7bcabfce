"""Admission of jobs to the fleet's runners: runner groups, repositories, and GitHub's policies for forks.

Paths, fields and permissions are those of GitHub's REST API (docs.github.com/en/rest/actions/self-hosted-runner-groups
and /permissions, 2026-11-27).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from paddock.fleet import Fleet, GitHub, Runner
from paddock.operate.sources.github import (
    Forbidden,
    GitHubReader,
    NotApplicable,
    registration_path,
    repository,
    visibility,
)
from paddock.operate.sources.unavailable import NotFound, Unavailable

PUBLIC = "public"
_SECTIONS = {"organisation": "Organization / ", "repository": "Repository / ", "enterprise": ""}
_CLASSIC = {"runners": "manage_runners:enterprise", "settings": "admin:enterprise"}
"""Scopes of a classic token, which alone reads an enterprise."""
_NO_RIGHT_HELPS = re.compile(r"IP allow list|SAML|SSO|suspended", re.IGNORECASE)
"""Refusals that name another reason than a permission."""

Refusal = Literal["", "missing", "elsewhere", "public", "repository", "workflow"]


@dataclass(frozen=True, slots=True)
class Group:
    """A runner group of an organisation or an enterprise."""

    id: int
    name: str
    visibility: str
    """`all`, `selected` or `private`: the repositories, or an enterprise's organisations, that it is open to."""
    admits_public: bool
    """Whether public repositories may use it, where it is open to them."""
    inherited: bool = False
    """Whether it is the enterprise's: an organisation may change only which repositories it is open to."""
    workflows: tuple[str, ...] | None = None
    """`owner/repository/.github/workflows/x.yml@ref` of those that alone may use it; None where any may."""


@dataclass(frozen=True, slots=True)
class Member:
    """A repository (or an enterprise's organisation, without visibility) that a group is open to by name."""

    name: str
    visibility: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Limits of GitHub Actions at a place."""

    on: str
    """`all`, `selected` or `none` of its repositories."""
    actions: str
    """Actions that workflows may use: `all`, `local_only` or `selected`; empty where GitHub did not say it."""


@dataclass(frozen=True, slots=True)
class PrivateForks:
    """Rights of workflows that a pull request of a private repository's fork starts."""

    run: bool
    need_approval: bool
    write_tokens: bool
    secrets: bool


@dataclass(frozen=True, slots=True)
class Admission:
    """Answer of a group to a repository's job; `refused` says why it gets no runner, empty where it does."""

    group: str
    number: int
    refused: Refusal


def group_of(fleet: Fleet, runner: Runner) -> str:
    """Return the name of the runner group that a scale set joins."""
    return runner.group or fleet.github.runner_group


def permission(scope: str, kind: Literal["runners", "settings"]) -> str:
    """Return what reads runner groups, or settings of Actions, by GitHub's name: a permission, or a token's scope."""
    if scope == "enterprise":
        return _CLASSIC[kind]
    title = "Self-hosted runners" if kind == "runners" and scope == "organisation" else "Administration"
    return f"{_SECTIONS[scope]}{title}: read-only"


def read_groups(reader: GitHubReader, github: GitHub, visible_to: str = "") -> tuple[Group, ...]:
    """Return the runner groups where the fleet registers; `visible_to` leaves those that a repository of it may use.

    Raises Unavailable, NotFound.
    """
    query = f"visible_to_repository={quote(visible_to, safe='')}&" if visible_to else ""
    path, needed = f"{registration_path(github)}/actions/runner-groups", permission(github.scope, "runners")
    return tuple(map(_group, _asked(lambda: reader.pages(path, "runner_groups", query), needed)))


def read_members(reader: GitHubReader, github: GitHub, group: Group) -> tuple[Member, ...]:
    """Return what a group is open to by name. Raises Unavailable, NotFound."""
    kind = "organizations" if github.scope == "enterprise" else "repositories"
    path = f"{registration_path(github)}/actions/runner-groups/{group.id}/{kind}"
    members = _asked(lambda: reader.pages(path, kind), permission(github.scope, "runners"))
    return tuple(Member(str(m.get("full_name") or m.get("login")), visibility(m)) for m in members)


def read_public(reader: GitHubReader, github: GitHub) -> tuple[Member, ...]:
    """Return the public repositories of an organisation. Raises Unavailable, NotFound."""
    listed = reader.pages(f"{registration_path(github)}/repos", "", "type=public&")
    return tuple(Member(str(found["full_name"]), PUBLIC) for found in listed)


def read_visibility(reader: GitHubReader, names: str) -> str:
    """Return who sees a repository: `public`, `private` or `internal`. Raises Unavailable, NotFound."""
    return repository(reader, names).visibility


def read_fork_approval(reader: GitHubReader, path: str, scope: str) -> str | None:
    """Return whose pull requests from forks wait for an approval before their workflows run.

    `path` is a repository's, an organisation's or an enterprise's. None where none is public. Raises Unavailable.
    """
    try:
        answer = _settings(reader, path, scope, "/fork-pr-contributor-approval")
    except NotApplicable:
        return None
    return str(answer["approval_policy"])


def read_settings(reader: GitHubReader, path: str, scope: str) -> Settings:
    """Return what Actions may do at a place. Raises Unavailable, NotFound."""
    answer = _settings(reader, path, scope, "")
    named = answer.get("enabled_repositories") or answer.get("enabled_organizations")
    return Settings(
        str(named or ("all" if answer.get("enabled") else "none")), str(answer.get("allowed_actions") or "")
    )


def read_private_forks(reader: GitHubReader, path: str, scope: str) -> PrivateForks | None:
    """Return what forks of private repositories may start; None where there are none such. Raises Unavailable."""
    try:
        answer = _settings(reader, path, scope, "/fork-pr-workflows-private-repos")
    except NotApplicable:
        return None
    return PrivateForks(
        bool(answer["run_workflows_from_fork_pull_requests"]),
        bool(answer.get("require_approval_for_fork_pr_workflows")),
        bool(answer.get("send_write_tokens_to_workflows")),
        bool(answer.get("send_secrets_and_variables")),
    )


def read_admissions(
    reader: GitHubReader,
    github: GitHub,
    names: Collection[str],
    of_repository: str,
    workflows: Callable[[], Collection[str]],
) -> tuple[Admission, ...]:
    """Return whether groups give the jobs of `owner/repository` a runner, in the order of their names.

    `workflows` returns the files that the job comes from, `owner/repository/path`, and is called where a group asks for
    them. Their refs are not compared. Nothing for a repository's or an enterprise's runners. Raises Unavailable.
    """
    if github.scope != "organisation":
        return ()
    owner, _, name = of_repository.partition("/")
    groups = {group.name.casefold(): group for group in read_groups(reader, github)}
    wanted = {name: groups.get(name.casefold()) for name in names}
    if owner.casefold() != urlsplit(github.url).path.strip("/").casefold():
        return tuple(_admission(name, group, "elsewhere") for name, group in wanted.items())
    visible = {group.id for group in read_groups(reader, github, name)}
    public = read_visibility(reader, of_repository) == PUBLIC

    def refused(group: Group | None) -> Refusal:
        if group is None:
            return "missing"
        if public and not group.admits_public:
            return "public"
        if group.id not in visible:
            return "repository"
        if group.workflows is not None and not _files(group.workflows) & _files(workflows()):
            return "workflow"
        return ""

    return tuple(_admission(name, group, refused(group)) for name, group in wanted.items())


def _admission(name: str, group: Group | None, refused: Refusal) -> Admission:
    return Admission(name, group.id if group else 0, refused if group else "missing")


def _files(workflows: Collection[str]) -> set[str]:
    return {workflow.partition("@")[0].casefold() for workflow in workflows}


def _group(found: Mapping[str, Any]) -> Group:
    public = found.get("allows_public_repositories") or found.get("inherited_allows_public_repositories")
    return Group(
        int(found["id"]),
        str(found["name"]),
        str(found.get("visibility") or "all"),
        bool(public),
        bool(found.get("inherited")),
        tuple(map(str, found.get("selected_workflows") or ())) if found.get("restricted_to_workflows") else None,
    )


def _settings(reader: GitHubReader, path: str, scope: str, end: str) -> Mapping[str, Any]:
    needed = permission(scope, "settings")
    answer: Mapping[str, Any] = _asked(lambda: reader.read(f"{path}/actions/permissions{end}").body, needed)
    return answer


def _asked(ask: Callable[[], Any], needed: str) -> Any:
    """Return an answer. A refusal names the permission that is missing, and what hides what is there says so."""
    try:
        return ask()
    except Forbidden as error:
        if _NO_RIGHT_HELPS.search(str(error)):
            raise
        raise Unavailable(str(error), f"allow the App, or the token, {needed}", needed) from None
    except NotFound as error:
        message = f"{error}: it is not there, or the credential may not see it"
        raise NotFound(message, f"github.url; or allow the App, or the token, {needed}", needed) from None
