"""The role that pushes images: whether it trusts the tokens that GitHub gives to the repository's workflows.

STS refuses a token without a word on what it was: the comparison is made here, before a workflow fails.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from functools import partial
from typing import Any

from paddock.fleet import GitHub
from paddock.fleet.model.github import PUBLIC_ISSUER
from paddock.fleet.model.images import Ids, Push
from paddock.operate.doctor.checks.github import AREA, gh, installed
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result
from paddock.operate.sources.github import Forbidden, GitHubReader, Repository, repository
from paddock.operate.sources.unavailable import NotFound, Unavailable

SUBJECT = "push role"
_result = partial(Result, area=AREA, subject=SUBJECT)
SINCE = date(2026, 7, 15)
"""Repositories made, renamed or moved from this day on have their ids in tokens (GitHub's changelog, 2026-04-23)."""
_DEFAULT = ("repo", "context")
_READ_ACTIONS = "Repository / Actions: read-only"
_READ_ORGANISATION = "Organization / Administration: read-only"


def push_role(push: Push) -> Callable[[Context], Iterator[Result]]:
    """Return the check of the role that workflows of a repository assume."""
    return partial(_push_role, push)


def _push_role(push: Push, context: Context) -> Iterator[Result]:
    github, reader = context.fleet.github, installed(context)
    try:
        there = repository(reader, push.names)
    except NotFound as error:
        fix = f"install the App in {push.names}, or correct images.push.repository"
        raise Unavailable(f"{error}: there is none, or the credential does not reach it", fix) from None
    value = there.names if github.kind == "server" else there.with_ids
    key = f"images.push.repository: {value} in Pulumi.{context.stack.name}.yaml, then pulumi up"
    if wrong := _wrong(push, there, github):
        yield _result(status="fail", message=f"cannot be assumed: {wrong}", fix=key)
        return
    try:
        settings = reader.read(f"/repos/{there.names}/actions/oidc/customization/sub").body
    except (Forbidden, NotFound) as error:
        message, fix = f"{error}: {_likely(push, there, github)}", f"allow the App {_READ_ACTIONS}"
        if not push.ids and github.kind == "cloud":
            fix = f"{key}; {fix}"
        yield _result(status="unknown", message=message, fix=fix, permission=_READ_ACTIONS)
        return
    yield _compared(push, there, github, reader, settings, key)


def _wrong(push: Push, there: Repository, github: GitHub) -> str:
    """Return what makes the stack file's repository another one than GitHub's, empty where it is the same."""
    if there.names != push.names:
        return f"GitHub calls the repository {there.names}, and the stack file {push.names}"
    if push.ids and push.ids != Ids(str(there.owner_id), str(there.id)) and github.token_issuer == PUBLIC_ISSUER:
        return f"the repository is {there.with_ids}, and the ids in the stack file are of another"
    return ""


def _likely(push: Push, there: Repository, github: GitHub) -> str:
    """Return what can be said without the repository's settings."""
    if push.ids or github.kind == "server":
        return "the role trusts the tokens that GitHub gives by default; whether the repository's differ is not known"
    if there.created >= SINCE:
        return (
            f"{there.names} was made on {there.created}, and by default its tokens say {there.with_ids},"
            " which the role does not trust"
        )
    return (
        f"{there.names} was made on {there.created}; if it was renamed or moved, or opted in, since {SINCE},"
        f" its tokens say {there.with_ids}, which the role does not trust"
    )


def _compared(
    push: Push, there: Repository, github: GitHub, reader: GitHubReader, settings: Mapping[str, Any], key: str
) -> Result:
    """Compare the subject of the repository's tokens with those that the role trusts."""
    claims, template = _claims(there, reader, settings)
    if claims is None:
        message = f"the sub of its tokens follows the template of {there.owner}, which the credential may not read"
        fix = f"allow the App {_READ_ORGANISATION}"
        return _result(status="unknown", message=message, fix=fix, permission=_READ_ORGANISATION)
    if tuple(claims) != _DEFAULT:
        path = f"repos/{there.names}/actions/oidc/customization/sub"
        return _result(
            status="fail",
            message=f"cannot be assumed: by {template} the sub of its tokens is made of {', '.join(claims)}, and the "
            f"role trusts one of {', '.join(_DEFAULT)}",
            fix=gh(github, "PUT", path, "-F", "use_default=true"),
        )
    prefix = _prefix(there, github, settings)
    if prefix is None:
        message = f"GitHub does not say whether its tokens name it {there.names} or {there.with_ids}"
        both = "; the role trusts both" if push.ids else "; the role trusts the first alone"
        return _result(status="pass" if push.ids else "unknown", message=message + both, fix=key)
    subject = f"{prefix}:ref:refs/heads/{push.branch}"
    if subject not in push.subjects:
        message = f"cannot be assumed: the sub of its tokens is {subject}, and the role trusts {_listed(push.subjects)}"
        return _result(status="fail", message=message, fix=key)
    later = ""
    if not push.ids and github.kind == "cloud":
        later = f"; after a rename or a move it will be another, which repository: {there.with_ids} trusts, too"
    return _result(status="pass", message=f"it trusts {subject}{later}")


def _claims(there: Repository, reader: GitHubReader, settings: Mapping[str, Any]) -> tuple[Sequence[str] | None, str]:
    """Return the claims that the subject is made of, None where that is not known, and whose template says so."""
    if settings.get("use_default", True):
        return _DEFAULT, ""
    if own := settings.get("include_claim_keys"):
        return own, "the repository's template"
    try:
        shared = reader.read(f"/orgs/{there.owner}/actions/oidc/customization/sub").body
    except (Forbidden, NotFound):
        return None, ""
    return shared.get("include_claim_keys") or _DEFAULT, f"the template of {there.owner}"


def _prefix(there: Repository, github: GitHub, settings: Mapping[str, Any]) -> str | None:
    """Return the repository as its tokens' subject names it, None where GitHub says nothing of it."""
    names, with_ids = f"repo:{there.names}", f"repo:{there.with_ids}"
    if github.kind == "server":
        return names
    # The prefix is what tokens have; the switch says no more than what somebody chose, and stays off for the new.
    if said := settings.get("sub_claim_prefix"):
        return str(said)
    if settings.get("use_immutable_subject") or there.created >= SINCE:
        return with_ids
    return names if settings.get("use_immutable_subject") is False else None


def _listed(subjects: Sequence[str]) -> str:
    return " or ".join(subjects)
