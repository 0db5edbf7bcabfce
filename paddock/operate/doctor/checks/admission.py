"""Admission to the runners: whom runner groups let start a job, and what GitHub asks of forks before it runs them.

Who starts a job runs code of their own on a node. The worst is a stranger: a public repository whose pull requests
reach the runners. What is left to one person's approval, or to everybody in the organisation, is a warning.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from urllib.parse import urlsplit

from paddock.errors import did_you_mean
from paddock.fleet import FleetError, GitHub, Runner
from paddock.operate.doctor.checks.github import AREA, gh, installed
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result, Status
from paddock.operate.inventory import admission as inventory
from paddock.operate.inventory.admission import PUBLIC, Group, Member
from paddock.operate.sources.github import registration_path
from paddock.operate.sources.unavailable import NotFound, Unavailable
from paddock.plan import rules
from paddock.plan.rules.base import Violation

FORKS, SETTINGS = "approval of forks", "settings of Actions"
_RULE = "PAD033"
_APPROVALS = {
    "first_time_contributors_new_to_github": "asks for an approval only of accounts that are new to GitHub",
    "first_time_contributors": "asks for an approval only until one pull request was merged, GitHub's default",
    "all_external_contributors": "asks for an approval of every pull request from outside",
}
_STRICT = "all_external_contributors"
_HELD_FORKS = (
    "run_workflows_from_fork_pull_requests=true",
    "require_approval_for_fork_pr_workflows=true",
    "send_write_tokens_to_workflows=false",
    "send_secrets_and_variables=false",
)
_NOT_HELD = "pull_request_target, workflow_run and issue_comment are not held back by it"
_MOST_ASKED = 20
"""Public repositories whose own policy is read."""
_result = partial(Result, area=AREA)


def admission(context: Context) -> Iterator[Result]:
    """Check which repositories reach the runners, and what holds strangers back. Raises Unavailable."""
    if context.fleet.github.scope == "repository":
        yield from _repository(context)
        return
    groups = inventory.read_groups(installed(context), context.fleet.github)
    by_name = {group.name.casefold(): group for group in groups}
    for key, runners in _by_group(context).items():
        if group := by_name.get(key):
            yield from _group(context, group, runners)
        else:
            yield _missing(context, inventory.group_of(context.fleet, runners[0]), groups, runners)


def settings(context: Context) -> Iterator[Result]:
    """Check whether Actions is on, and what forks of private repositories may start. Raises Unavailable."""
    github, reader = context.fleet.github, installed(context)
    path, result = registration_path(github), partial(_result, subject=SETTINGS)
    try:
        found = inventory.read_settings(reader, path, github.scope)
        forks = inventory.read_private_forks(reader, path, github.scope)
    except Unavailable as error:
        message = f"whether Actions is on, and what forks of private repositories start, is not known: {error}"
        yield result(status="unknown", message=message, fix=error.fix, permission=error.permission)
        return
    if found.on == "none":
        switch = {"repository": "enabled=true", "enterprise": "enabled_organizations=all"}
        field = switch.get(github.scope, "enabled_repositories=all")
        fix = gh(github, "PUT", f"{path}/actions/permissions", "-F", field)
        yield result(status="fail", message="Actions is off, so that no job starts", fix=fix)
        return
    on = f"on for {found.on} repositories" if github.scope == "organisation" else "on"
    on += f", actions that may be used: {found.actions}" if found.actions else ""
    if forks is None or not forks.run:
        none = "" if forks is None else "; forks of private repositories start nothing"
        yield result(status="pass", message=f"{on}{none}")
        return
    given = [word for word, is_given in (("write tokens", forks.write_tokens), ("secrets", forks.secrets)) if is_given]
    if forks.need_approval and not given:
        yield result(status="pass", message=f"{on}; what forks of private repositories start is approved first")
        return
    without = "" if forks.need_approval else " without an approval"
    holding = f", with {' and '.join(given)}" if given else ""
    message = f"anyone who may read a private repository starts jobs from a fork of it{without}{holding}"
    fields = (word for field in _HELD_FORKS for word in ("-F", field))
    fix = gh(github, "PUT", f"{path}/actions/permissions/fork-pr-workflows-private-repos", *fields)
    yield result(status="warn", message=message, fix=fix)


def _by_group(context: Context) -> dict[str, list[Runner]]:
    """Return the scale sets by the name of their group in lower case: GitHub's names differ by more than case."""
    groups: dict[str, list[Runner]] = {}
    for runner in context.fleet.runners.values():
        groups.setdefault(inventory.group_of(context.fleet, runner).casefold(), []).append(runner)
    return groups


def _repository(context: Context) -> Iterator[Result]:
    """Check a repository's own runners, which no group protects."""
    github, reader = context.fleet.github, installed(context)
    path, names = registration_path(github), urlsplit(github.url).path.strip("/")
    runners = list(context.fleet.runners.values())
    try:
        visibility = inventory.read_visibility(reader, names)
    except NotFound as error:
        raise Unavailable(
            f"{error}: it is not there, or the credential does not reach it", f"install the App in {names}"
        ) from None
    result = partial(_result, subject=f"who reaches {names}")
    if not visibility:
        yield result(status="unknown", message="GitHub does not say whether it is public")
        return
    if visibility != PUBLIC:
        yield result(status="pass", message=f"{visibility}: only who may read it can open a pull request")
        return
    own = gh(github, "PATCH", path, "-f", "visibility=private")
    fix = f"{own}   # or github.url: the organisation, and a runnerGroup that no public repository may use"
    message = f"public, and no group protects a repository's runners: {_strangers(runners)}"
    yield _accepted(context, runners, result(status="fail", message=message, fix=fix))
    yield from _forks(context, [Member(names, PUBLIC)], runners)


def _missing(context: Context, name: str, groups: Sequence[Group], runners: Sequence[Runner]) -> Result:
    github = context.fleet.github
    names = [group.name for group in groups]
    sets = ", ".join(runner.scale_set for runner in runners)
    message = f"there is none at {github.url} (there: {', '.join(names) or 'none'}), and ARC registers {sets} nowhere"
    near = did_you_mean(name, names, "or the key group or runnerGroup of the stack file")
    path = f"{registration_path(github)}/actions/runner-groups"
    fields = ("-f", shlex.quote(f"name={name}"), "-f", "visibility=selected", "-F", "allows_public_repositories=false")
    fix = f"{gh(github, 'POST', path, *fields)}   # {near}"
    return _result(status="fail", subject=_title(name), message=message, fix=fix)


def _group(context: Context, group: Group, runners: Sequence[Runner]) -> Iterator[Result]:
    github, reader = context.fleet.github, installed(context)
    result = partial(_result, subject=_title(group.name))
    selected = group.visibility == "selected"
    members = inventory.read_members(reader, github, group) if selected else ()
    restricted = _restriction(group)
    if selected and not members:
        kind = "organisation" if github.scope == "enterprise" else "repository"
        fix = gh(github, "PUT", f"{_path(github, group)}/repositories/ID")
        yield result(status="warn", message=f"no {kind} is chosen for it, so that no job may use it", fix=fix)
        return
    if group.workflows == ():
        message = "it admits chosen workflows alone, and none is chosen, so that no job may use it"
        fix = gh(github, "PATCH", _path(github, group), "-F", "restricted_to_workflows=false")
        yield result(status="warn", message=message, fix=fix)
        return
    if group.admits_public:
        public = _public(context, group, members)
        yield _accepted(context, runners, _open_to_strangers(context, group, runners, public))
        if public is None:
            yield _common_approval(context, runners, "the public repositories that it admits are not known")
        elif public:
            yield from _forks(context, public, runners)
        return
    if selected:
        yield result(status="pass", message=f"open to {_chosen(github, members)}; {restricted}")
        return
    everyone = "every private repository" if group.visibility == "private" else "every repository that is not public"
    message = f"open to {everyone} of {_owner(github)}, those of tomorrow, too{_as_root(runners)}; {restricted}"
    if group.workflows:
        yield result(status="pass", message=message)
        return
    narrow = gh(github, "PATCH", _path(github, group), "-f", "visibility=selected")
    fix = f"{narrow}   # then PUT of .../repositories/ID adds each that may"
    yield _accepted(context, runners, result(status="warn", message=message, fix=fix))


def _chosen(github: GitHub, members: Sequence[Member]) -> str:
    """Return what a group that admits no public repository is open to by name."""
    if github.scope == "enterprise":
        return f"{_some([m.name for m in members])}, which choose among their repositories that are not public"
    shut = [member.name for member in members if member.visibility == PUBLIC]
    but = f", but not to {_some(shut)}, which {'are' if len(shut) > 1 else 'is'} public" if shut else ""
    listed = _some([member.name for member in members if member.name not in shut])
    return f"{listed or 'no repository'}{but}"


def _public(context: Context, group: Group, members: Sequence[Member]) -> Sequence[Member] | None:
    """Return the public repositories that a group admits; None where they cannot be known."""
    github = context.fleet.github
    if github.scope == "enterprise":
        return None
    if group.visibility == "selected":
        return [member for member in members if member.visibility == PUBLIC]
    if group.visibility == "private":
        return []
    try:
        return inventory.read_public(installed(context), github)
    except Unavailable:
        return None


def _open_to_strangers(
    context: Context, group: Group, runners: Sequence[Runner], public: Sequence[Member] | None
) -> Result:
    """Judge a group that admits public repositories. Chosen workflows bound what runs, not whose code it is."""
    github = context.fleet.github
    which = "they are not known" if public is None else _some([m.name for m in public]) if public else "none today"
    message = f"it admits public repositories ({which}): {_strangers(runners)}; {_restriction(group)}"
    fix = gh(github, "PATCH", _path(github, group), "-F", "allows_public_repositories=false")
    nobody = public is not None and not public
    status: Status = "warn" if group.workflows or nobody else "fail"
    return _result(status=status, subject=_title(group.name), message=message, fix=_of_owner(group, fix))


def _forks(context: Context, public: Sequence[Member], runners: Sequence[Runner]) -> Iterator[Result]:
    """Check what GitHub asks of forks of public repositories. A repository's own policy is the one that counts."""
    github, weak, strict, why = context.fleet.github, dict[str, str](), list[str](), ""
    missing = Unavailable("")
    for member in public[:_MOST_ASKED]:
        try:
            policy = inventory.read_fork_approval(installed(context), f"/repos/{member.name}", "repository")
        except Unavailable as error:
            missing, why = error, str(error)
            break
        if policy in (None, _STRICT):
            strict.append(member.name)
        else:
            weak[member.name] = str(policy)
    if weak:
        name, policy = next(iter(weak.items()))
        more = f" and {len(weak) - 1} more" if len(weak) > 1 else ""
        yield _weak(github, f"{name}{more}", str(policy), runners, f"/repos/{name}")
    unread = len(public) - len(weak) - len(strict)
    if unread:
        why = why or f"{_MOST_ASKED} of {len(public)} public repositories were asked"
        yield _common_approval(context, runners, why, missing.fix, missing.permission)
    elif not weak:
        yield _result(status="pass", subject=FORKS, message=f"{_some(strict)}: {_STRICT}; {_NOT_HELD}")


def _common_approval(
    context: Context, runners: Sequence[Runner], why: str, fix: str = "", permission: str = ""
) -> Result:
    """Say what the policy of the organisation lets in, where that of its repositories could not be read."""
    github, known = context.fleet.github, ""
    if github.scope != "repository":
        path = registration_path(github)
        try:
            policy = inventory.read_fork_approval(installed(context), path, github.scope)
        except Unavailable as error:
            why, policy, fix, permission = f"{why}; {error}", None, fix or error.fix, permission or error.permission
        if policy not in (None, _STRICT):
            return _weak(github, f"where its repositories say nothing else, {github.url}", str(policy), runners, path)
        known = f"; that of {_owner(github)}, for those that have none, is {policy}" if policy else ""
    message = f"GitHub's policy for forks of public repositories is not known: {why}{known}"
    return _result(status="unknown", subject=FORKS, message=message, fix=fix, permission=permission)


def _weak(github: GitHub, who: str, policy: str, runners: Sequence[Runner], path: str) -> Result:
    """Return how bad code is that one merged pull request lets in: it may be root on the node."""
    return _result(
        status="fail" if _root(runners) else "warn",
        subject=FORKS,
        message=f"{who} {_APPROVALS.get(policy, policy)}; after it whatever a pull request of a fork changes runs on"
        f" the nodes{_as_root(runners)}; {_NOT_HELD}",
        fix=gh(
            github,
            "PUT",
            f"{path}/actions/permissions/fork-pr-contributor-approval",
            "-f",
            f"approval_policy={_STRICT}",
        ),
    )


def _accepted(context: Context, runners: Sequence[Runner], result: Result) -> Result:
    """Return a result that passes where the stack file accepts it, for every runner, until a day."""
    try:
        accepted = rules.suppressions(context.stack.config, context.today, context.stack.locate)
    except FleetError:  # the plan says what is wrong with them
        return result
    mine = [
        next((entry for entry in accepted if entry.covers(_RULE, Violation(runner.name, ""))), None)
        for runner in runners
    ]
    last = min((entry for entry in mine if entry), key=lambda entry: entry.expires, default=None)
    if result.status == "pass" or last is None or None in mine:
        return result
    return replace(
        result, status="pass", message=f"{result.message}; accepted until {last.expires}: {last.reason}", fix=""
    )


def _title(name: str) -> str:
    return f"runner group {name}"


def _owner(github: GitHub) -> str:
    return urlsplit(github.url).path.strip("/").removeprefix("enterprises/")


def _path(github: GitHub, group: Group) -> str:
    return f"{registration_path(github)}/actions/runner-groups/{group.id}"


def _of_owner(group: Group, fix: str) -> str:
    return "the group is the enterprise's: its owners, in the enterprise's settings" if group.inherited else fix


def _restriction(group: Group) -> str:
    return f"only {_some(group.workflows)} may use it" if group.workflows else "any workflow of theirs may use it"


def _root(runners: Sequence[Runner]) -> list[str]:
    return [runner.name for runner in runners if runner.privileged]


def _as_root(runners: Sequence[Runner]) -> str:
    return f", as root on the node (container: dind of {_some(_root(runners))})" if _root(runners) else ""


def _strangers(runners: Sequence[Runner]) -> str:
    return f"a pull request of a stranger's fork runs on the nodes once it passes GitHub's approval{_as_root(runners)}"


def _some(names: Sequence[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


CHECKS: tuple[tuple[str, Callable[[Context], Iterator[Result]]], ...] = (
    ("who may start jobs", admission),
    (SETTINGS, settings),
)
"""Name of each check where nobody answers it."""
