"""The credential that runners register with: whether GitHub knows it, where it holds, and what it may do."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from paddock.errors import program
from paddock.fleet import GitHub
from paddock.fleet.model.github import GITHUB_TOKEN, IN_CONFIG, GitHubApp
from paddock.init.github_app.registration import ACTIONS, Registration
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Result
from paddock.operate.sources.github import GitHubReader, Unauthorised, api_address, app_token, installation_reader
from paddock.operate.sources.programs import pulumi_secret
from paddock.operate.sources.unavailable import NotFound, Unavailable

AREA = "github"
_result = partial(Result, area=AREA)
_WITH_KEY = "--github-key FILE gives doctor the key without Pulumi and AWS"
_ORDER = ("read", "write", "admin")


def registration(context: Context) -> Iterator[Result]:
    """Check the App's key, installation and permissions, or the token's rights. Nothing is registered."""
    github = context.fleet.github
    try:
        secret = credential(context)
    except NoCredential as error:
        yield _result(status="fail", subject="credential", message=str(error), fix=error.fix)
        return
    if github.app and re.fullmatch(GITHUB_TOKEN, secret.strip()):
        message = "not examined: what doctor was given is a token, and not the App's key"
        yield _result(status="unknown", subject=f"App {github.app.id}", message=message, fix="--github-key KEY.pem")
        yield from _token(context, secret)
    elif github.app:
        yield from _app(context, github.app, secret)
    else:
        yield from _token(context, secret)


class NoCredential(Unavailable):
    """Nobody has given the stack its credential yet."""


def credential(context: Context) -> str:
    """Return the App's private key, or the token. Raises Unavailable, NoCredential."""
    return context.github_key or context.shared.get("credential for GitHub", lambda: _secret(context))


def installed(context: Context) -> GitHubReader:
    """Return a reader with what the App's installation, or the token, may do. Raises Unavailable, NoCredential."""
    return context.shared.get(
        "installation at GitHub", lambda: installation_reader(context.fleet.github, credential(context))
    )


def gh(github: GitHub, method: str, path: str, *fields: str) -> str:
    """Return the command line that changes something at GitHub by its REST API."""
    elsewhere = "" if github.host == "github.com" else f"--hostname {github.host} "
    return " ".join((f"gh api --method {method} {elsewhere}{path.removeprefix('/')}", *fields))


def _key_name(github: GitHub) -> str:
    return "paddock:githubAppKey" if github.app else "paddock:githubToken"


def _secret(context: Context) -> str:
    """Return the credential from where the stack keeps it."""
    github = context.fleet.github
    source = github.secret_source
    if source == IN_CONFIG and _key_name(github) not in context.stack.secrets:
        file = "KEY.pem" if github.app else "TOKEN.txt"
        fix = f"pulumi config set --stack {context.stack.name} --secret {_key_name(github)} < {file}"
        raise NoCredential(f"{_key_name(github)} is not in the stack file", fix)
    try:
        if source == IN_CONFIG:
            return pulumi_secret(context.root, context.stack.name, _key_name(github))
        if source.startswith("arn:"):
            region = source.split(":")[3]
            answer = context.aws.read("secretsmanager", "get_secret_value", region=region, SecretId=source)
            return str(answer["SecretString"])
    except Unavailable as error:
        raise type(error)(str(error), f"{error.fix}; {_WITH_KEY}".removeprefix("; "), error.permission) from None
    raise Unavailable(f"the credential is in the cluster ({source}), which doctor does not read", _WITH_KEY)


def _app(context: Context, app: GitHubApp, key: str) -> Iterator[Result]:
    github, subject = context.fleet.github, f"App {app.id}"
    reader = GitHubReader(api_address(github), app_token(app.id, key))
    help_ = f"{program()} init.github --stack {context.stack.name}"
    try:
        registered = reader.read("/app").body
    except Unauthorised as error:
        message = f"{error}: the key is not this App's, or github.app.id is another's"
        yield _result(status="fail", subject=subject, message=message, fix=f"{help_} --key KEY.pem")
        return
    except NotFound as error:
        message = f"{error}: GitHub has no App {app.id}"
        yield _result(status="fail", subject=subject, message=message, fix=f"{help_}, steps 1 and 2")
        return
    yield _result(status="pass", subject=subject, message=f"GitHub knows it as {registered.get('slug')}")
    try:
        installation = reader.read(f"/app/installations/{app.installation}").body
    except NotFound:
        message = f"the App has no installation {app.installation}"
        yield _result(status="fail", subject="installation", message=message, fix=f"{help_}, steps 3 and 4")
        return
    yield from _installation(context, installation, help_)
    if github.scope == "repository":
        yield from _repository(context, reader, app, help_)


def _repository(context: Context, reader: GitHubReader, app: GitHubApp, help_: str) -> Iterator[Result]:
    """Check that the installation reaches the repository: it may be limited to chosen ones."""
    path = urlsplit(context.fleet.github.url).path.strip("/")
    try:
        reached = str(reader.read(f"/repos/{path}/installation").body.get("id"))
    except NotFound:
        reached = ""
    if reached == app.installation:
        yield _result(status="pass", subject="repository", message=f"the installation reaches {path}")
    else:
        message = f"the installation does not reach {path}"
        fix = f"choose the repository in the installation's settings: {help_}, step 3"
        yield _result(status="fail", subject="repository", message=message, fix=fix)


def _installation(context: Context, installation: Mapping[str, Any], help_: str) -> Iterator[Result]:
    github = context.fleet.github
    owner = urlsplit(github.url).path.strip("/").split("/")[0]
    login = str(installation.get("account", {}).get("login", ""))
    if installation.get("suspended_at"):
        message = f"it has been suspended since {installation['suspended_at']}"
        yield _result(status="fail", subject="installation", message=message, fix="unsuspend it in the App's settings")
    elif login.lower() != owner.lower():
        message = f"it is in {login}, and runners register at {github.url}"
        yield _result(status="fail", subject="installation", message=message, fix=f"{help_}, steps 3 and 4")
    else:
        yield _result(status="pass", subject="installation", message=f"in {login}")
    granted = installation.get("permissions", {})
    needed = Registration(github).permissions
    lacking = [p for p in needed if not _covers(granted.get(p.key), p.access)]
    if not lacking:
        listed = ", ".join(f"{permission.title}: {permission.words}" for permission in needed)
        if not _covers(granted.get(ACTIONS.key), ACTIONS.access):
            # No fault: jobs run without it.
            listed += f"; without {ACTIONS.title}: {ACTIONS.words}, which {ACTIONS.why}"
        yield _result(status="pass", subject="permissions", message=listed)
        return
    listed = ", ".join(f"{p.section} / {p.title}: {p.words} (has {granted.get(p.key) or 'none'})" for p in lacking)
    fix = "grant it in the App's settings, and let the organisation accept the change"
    yield _result(status="fail", subject="permissions", message=f"it lacks {listed}", fix=fix)


def _covers(granted: str | None, needed: str) -> bool:
    return granted in _ORDER and _ORDER.index(granted) >= _ORDER.index(needed)


def _token(context: Context, token: str) -> Iterator[Result]:
    github = context.fleet.github
    reader = GitHubReader(api_address(github), token.strip())
    path = urlsplit(github.url).path.strip("/")
    place = {"organisation": f"/orgs/{path}", "repository": f"/repos/{path}", "enterprise": f"/{path}"}[github.scope]
    try:
        reader.read(f"{place}/actions/runners?per_page=1")
    except Unauthorised as error:
        fix = "a new token, into the place that github.token names"
        yield _result(status="fail", subject="token", message=str(error), fix=fix)
        return
    except NotFound as error:
        message = f"{error}: the token may not manage runners there, or the place does not exist"
        yield _result(status="fail", subject="token", message=message, fix="a token that may, or github.url")
        return
    yield _result(status="pass", subject="token", message=f"it reads the runners of {github.url}")
