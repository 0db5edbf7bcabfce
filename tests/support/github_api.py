"""A stand-in for GitHub's REST API on loopback: an App with one installation, in the form of GitHub's documentation.

The signature of the App's token is checked with the App's public key, as GitHub does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jwt
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.support.http_server import Handler, serving


def private_key() -> str:
    """Return a new key, as GitHub hands one out."""
    key = rsa.generate_private_key(65537, 2048)
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(pem, form, serialization.NoEncryption()).decode()


def listed(path: str, key: str, items: list[Any], query: str = "") -> dict[str, tuple[int, Any]]:
    """Return every page of a list, a hundred items each, by path; the last is never full."""
    pages = {}
    for number in range(len(items) // 100 + 1):
        shown = items[number * 100 : (number + 1) * 100]
        body: Any = {"total_count": len(items), key: shown} if key else shown
        pages[f"{path}?{query}per_page=100&page={number + 1}"] = 200, body
    return pages


def group(number: int = 1, name: str = "Default", **fields: Any) -> dict[str, Any]:
    """Return a runner group in the form of GitHub's documentation: of chosen repositories, and of no public one."""
    return {
        "id": number,
        "name": name,
        "visibility": "selected",
        "default": number == 1,
        "inherited": False,
        "allows_public_repositories": False,
        "restricted_to_workflows": False,
        "selected_workflows": [],
        **fields,
    }


GROUPS = "/orgs/acme/actions/runner-groups"
NOT_ACCESSIBLE = 403, {"message": "Resource not accessible by integration"}
ADMISSION = {
    **listed(GROUPS, "runner_groups", [group()]),
    **listed(f"{GROUPS}/1/repositories", "repositories", [{"full_name": "acme/train", "visibility": "private"}]),
    "/orgs/acme/actions/permissions": NOT_ACCESSIBLE,
}
"""One group, by an App that may read runner groups and no settings, as init.github registers it."""


@dataclass
class GitHubApi:
    """State of the stand-in."""

    key: str
    app: str = "12345"
    installation: str = "678"
    login: str = "acme"
    suspended_at: str | None = None
    permissions: dict[str, str] = field(
        default_factory=lambda: {"organization_self_hosted_runners": "write", "metadata": "read"}
    )
    app_exists: bool = True
    reaches: bool = True
    """Whether the installation is for the repository, too."""
    token: str = "ghp_0123456789abcdefghij"
    pages: dict[str, tuple[int, Any]] = field(default_factory=lambda: dict(ADMISSION))
    """What the installation and the token may read, by path below the API's own; a 301 has the new path as its body."""
    failures: list[int] = field(default_factory=list)
    """Statuses of the next answers, before it answers as it should."""
    requests: list[str] = field(default_factory=list)
    url: str = ""

    def answer(self, path: str, authorization: str) -> tuple[int, Any]:
        self.requests.append(path)
        if self.failures:
            return self.failures.pop(0), {"message": "Server Error"}
        credential = authorization.removeprefix("Bearer ")
        if path == "/api/v3/orgs/acme/actions/runners?per_page=1":
            return (200, {"total_count": 0, "runners": []}) if credential == self.token else (401, _BAD)
        if credential in (_INSTALLED, self.token):
            status, body = self.pages.get(path.removeprefix("/api/v3"), (404, {"message": "Not Found"}))
            return status, {"url": f"{self.url}/api/v3{body}"} if status == 301 else body
        public = serialization.load_pem_private_key(self.key.encode(), None).public_key()
        try:
            issuer = jwt.decode(credential, public, ["RS256"])["iss"]  # type: ignore[arg-type]
        except jwt.InvalidTokenError:
            return 401, {"message": "A JSON web token could not be decoded"}
        if not self.app_exists:
            return 404, {"message": "Integration not found"}
        if issuer != self.app:
            return 401, {"message": "'Issuer' claim ('iss') must be an Integer"}
        if path == "/api/v3/app":
            return 200, {"id": int(self.app), "slug": "paddock-acme", "permissions": self.permissions}
        if path == f"/api/v3/app/installations/{self.installation}":
            account = {"login": self.login, "type": "Organization"}
            return 200, {"account": account, "permissions": self.permissions, "suspended_at": self.suspended_at}
        if path == f"/api/v3/app/installations/{self.installation}/access_tokens":
            return 201, {"token": _INSTALLED}
        if path == f"/api/v3/repos/{self.login}/project/installation" and self.reaches:
            return 200, {"id": int(self.installation), "permissions": self.permissions}
        return 404, {"message": "Not Found"}


_INSTALLED = "ghs_0123456789abcdefghij"
_BAD = {"message": "Bad credentials"}


@contextmanager
def serve(api: GitHubApi) -> Iterator[GitHubApi]:
    """Serve it as an Enterprise Server; `url` is then its address."""

    class Requests(Handler):
        def do_POST(self) -> None:
            self.body()
            self.do_GET()

        def do_GET(self) -> None:
            status, answer = api.answer(self.path, self.headers.get("Authorization", ""))
            self.send(status, answer, {"Location": answer["url"]} if status == 301 else {})

    with serving(Requests) as api.url:
        yield api
