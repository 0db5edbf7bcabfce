"""Admission to the runners: repositories, runner groups and policies for forks, as GitHub's REST API keeps them.

Paths, fields and first values are those of docs.github.com/en/rest/actions/self-hosted-runner-groups, /permissions and
of /rest/repos (2026-11-27). Jobs that are pushed make their repository, which is private until somebody changes it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from paddock.lab.github.model import Object, Refused, ServiceState, page

_GROUPS = re.compile(r"/orgs/[\w.-]+/actions/runner-groups(?:/(\d+)(?:/repositories(?:/(\d+))?)?)?")
_SETTINGS = re.compile(
    r"(/(?:orgs|enterprises)/[\w.-]+|/repos/[\w.-]+/[\w.-]+)/actions/permissions"
    r"(/fork-pr-contributor-approval|/fork-pr-workflows-private-repos)?"
)
_RUNNERS = re.compile(r"/(?:orgs/[\w.-]+|enterprises/[\w.-]+|repos/[\w.-]+/[\w.-]+)/actions/runners")
_LISTED = re.compile(r"/orgs/([\w.-]+)/repos")
_REPOSITORY = re.compile(r"/repos/([\w.-]+/[\w.-]+)")
_GROUP: Object = {
    "visibility": "all",
    "allows_public_repositories": False,
    "restricted_to_workflows": False,
    "selected_workflows": [],
    "selected_repository_ids": [],
}
_POLICY: dict[str, Object] = {
    "": {"allowed_actions": "all"},
    "/fork-pr-contributor-approval": {"approval_policy": "first_time_contributors"},
    "/fork-pr-workflows-private-repos": {
        "run_workflows_from_fork_pull_requests": False,
        "require_approval_for_fork_pr_workflows": False,
        "send_write_tokens_to_workflows": False,
        "send_secrets_and_variables": False,
    },
}
Answer = tuple[int, object]


def admits(state: ServiceState, group: str, full_name: str) -> bool:
    """Return whether a runner group gives jobs of a repository a runner."""
    rules, repository = _rules(state, group), made(state, full_name)
    if repository["visibility"] == "public" and not rules["allows_public_repositories"]:
        return False
    if rules["visibility"] == "private":
        return bool(repository["visibility"] != "public")
    return rules["visibility"] == "all" or repository["id"] in rules["selected_repository_ids"]


def made(state: ServiceState, full_name: str) -> Object:
    """Return a repository, which is made where nobody has made it yet."""
    first = {"id": len(state.repositories) + 1, "full_name": full_name, "visibility": "private"}
    return state.repositories.setdefault(full_name.casefold(), first)


def answer(state: ServiceState, method: str, path: str, query: Mapping[str, str], body: Any) -> Answer | None:
    """Return status and body, None for a path that is not about this. Raises Refused."""
    if (match := _GROUPS.fullmatch(path)) is not None:
        return _groups(state, method, match[1], match[2], path.endswith("/repositories"), query, body or {})
    if (match := _SETTINGS.fullmatch(path)) is not None:
        return _settings(state, method, match[1], match[2] or "", body or {})
    if (match := _LISTED.fullmatch(path)) is not None:
        return _organisation(state, method, match[1], query, body or {})
    if method == "GET" and _RUNNERS.fullmatch(path):
        runners = [
            {"id": r.id, "name": r.name, "status": "online" if r.online else "offline", "busy": r.job is not None}
            for r in state.runners.values()
        ]
        return 200, page("runners", runners, query)
    if (match := _REPOSITORY.fullmatch(path)) is not None:
        repository = _found(state, match[1])
        if method == "PATCH":
            repository |= {"visibility": body["visibility"]}
        return 200, _repository(repository)
    return None


def _groups(
    state: ServiceState,
    method: str,
    number: str | None,
    repository: str | None,
    members: bool,
    query: Mapping[str, str],
    body: Object,
) -> Answer:
    if number is None and method == "POST":
        if str(body["name"]).casefold() in map(str.casefold, state.groups):
            raise Refused(422, "Unprocessable", "Validation Failed: the name of the group is taken")
        state.groups.append(str(body["name"]))
        return 201, _group(state, len(state.groups), body)
    if number is None:
        listed = [_group(state, index + 1) for index in range(len(state.groups))]
        if name := query.get("visible_to_repository"):
            repositories = [one["full_name"] for one in state.repositories.values()]
            names = [full for full in repositories if full.partition("/")[2].casefold() == name.casefold()]
            listed = [group for group in listed if any(admits(state, group["name"], full) for full in names)]
        return 200, page("runner_groups", listed, query)
    if not 1 <= int(number) <= len(state.groups):
        raise Refused(404, "NotFound", "Not Found")
    if not members and repository is None:
        return 200, _group(state, int(number), body if method == "PATCH" else {})
    rules = _rules(state, state.groups[int(number) - 1])
    if method == "PUT":
        own = rules["selected_repository_ids"]
        chosen = body["selected_repository_ids"] if repository is None else [*own, int(repository)]
        _group(state, int(number), {"selected_repository_ids": chosen})
        return 204, None
    chosen = [r for r in state.repositories.values() if r["id"] in rules["selected_repository_ids"]]
    return 200, page("repositories", list(map(_repository, chosen)), query)


def _rules(state: ServiceState, group: str) -> Object:
    return _GROUP | state.group_rules.get(group.casefold(), {})


def _group(state: ServiceState, number: int, change: Object | None = None) -> Object:
    """Return a group in the form of the REST API, after a change of its fields."""
    name = state.groups[number - 1]
    if known := {key: value for key, value in (change or {}).items() if key in _GROUP}:
        state.group_rules[name.casefold()] = state.group_rules.get(name.casefold(), {}) | known
    rules = {key: value for key, value in _rules(state, name).items() if key != "selected_repository_ids"}
    return {"id": number, "name": name, "default": number == 1, "inherited": False, **rules}


def _settings(state: ServiceState, method: str, place: str, kind: str, body: Object) -> Answer:
    public = place.startswith("/repos/") and _found(state, place.removeprefix("/repos/"))["visibility"] == "public"
    if place.startswith("/repos/") and kind and public != (kind == "/fork-pr-contributor-approval"):
        which = "private" if public else "public"
        raise Refused(422, "Unprocessable", f"This is for {which} repositories only")
    on: Object = {"enabled": True} if place.startswith("/repos/") else {"enabled_repositories": "all"}
    key = f"{place.casefold()}{kind}"
    if method == "PUT":
        state.settings[key] = state.settings.get(key, {}) | body
        return 204, None
    # A repository that says nothing has its organisation's policy.
    above = state.settings.get(f"/orgs/{place.split('/')[2].casefold()}{kind}", {}) if kind else {}
    return 200, _POLICY[kind] | ({} if kind else on) | above | state.settings.get(key, {})


def _organisation(state: ServiceState, method: str, owner: str, query: Mapping[str, str], body: Object) -> Answer:
    if method == "POST":
        repository = made(state, f"{owner}/{body['name']}")
        repository |= {"visibility": body.get("visibility", "private")}
        return 201, _repository(repository)
    own = [r for r in state.repositories.values() if r["full_name"].casefold().startswith(f"{owner.casefold()}/")]
    wanted = [r for r in own if query.get("type", "all") in ("all", r["visibility"])]
    return 200, page("", list(map(_repository, wanted)), query)


def _found(state: ServiceState, full_name: str) -> Object:
    if full_name.casefold() not in state.repositories:
        raise Refused(404, "NotFound", "Not Found")
    return state.repositories[full_name.casefold()]


def _repository(repository: Object) -> Object:
    owner, _, name = repository["full_name"].partition("/")
    return {
        **repository,
        "name": name,
        "private": repository["visibility"] != "public",
        "owner": {"login": owner, "id": 1},
        "created_at": "2026-01-01T00:00:00Z",
    }
