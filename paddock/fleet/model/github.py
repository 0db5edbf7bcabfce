"""Registration of runners at GitHub. The credential itself is never part of the model."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator
from pydantic_core import InitErrorDetails

from paddock.fleet.model.base import Matching, Model, Version, mistake, refuse

IN_CONFIG = "config"
"""The credential is a Pulumi secret of the stack."""

PUBLIC_ISSUER = "token.actions.githubusercontent.com"
"""Issuer of the tokens of github.com's workflows, of which alone STS compares more than `aud` and `sub`."""

GITHUB_TOKEN = r"(?:gh[pousr]_\w{16,}|github_pat_\w{16,})"  # noqa: S105 - a pattern
"""Pattern of GitHub's tokens."""
CLEAR_TEXT = re.compile(rf"-----BEGIN [A-Z ]*PRIVATE KEY-----|\b{GITHUB_TOKEN}")
"""A private key or a GitHub token, as it would look if pasted into the stack file."""

_SOURCE = re.compile(
    r"^(config|arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:[\w/+=.@-]{1,519}|kubernetes:[a-z0-9.-]{1,253})$",
    re.ASCII,
)


def _source(text: str) -> str:
    if not _SOURCE.fullmatch(text):
        # Never repeats the text: it may be the credential itself.
        raise ValueError(
            "this does not say where the secret is; write config (a Pulumi secret of this stack), "
            "the ARN of a Secrets Manager secret, or kubernetes:NAME (a secret that is in the cluster already)"
        )
    return text


SecretSource = Annotated[str, AfterValidator(_source), WithJsonSchema({"type": "string", "pattern": _SOURCE.pattern})]
"""`config`, a Secrets Manager ARN, or `kubernetes:<name>` in the runners' namespace."""


_URL = r"^https?://(\[::1\]|[A-Za-z0-9.-]+)(:\d{1,5})?(/(?!\.{1,2}(/|$))[\w.-]+){1,2}$"
_URL_MAX = 255


def _url(text: str) -> str:
    parts = urlsplit(text if re.fullmatch(_URL, text, re.ASCII) else "")
    path = [part for part in parts.path.split("/") if part]
    secure = parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in {"127.0.0.1", "localhost", "::1"})
    shape = (len(path) in (1, 2) and path[0] != "enterprises") or (len(path) == 2 and path[0] == "enterprises")
    if re.match(r"\w+://[^/]*@", text):
        raise ValueError(
            "the address holds a user or password; write https://github.com/ORG, without anything before @"
        )
    if not (secure and shape) or len(text) > _URL_MAX:
        raise ValueError(
            f'"{text}" is not where runners can register; write https://github.com/ORG, '
            "https://github.com/OWNER/REPOSITORY or https://HOST/enterprises/NAME, without a slash at the end"
        )
    return text


RunnerGroup = Annotated[str, Field(min_length=1, max_length=100)]


class GitHubApp(Model):
    """A GitHub App: its rate limit grows with the organisation and it belongs to nobody's account."""

    id: Annotated[str, Matching(r"^[A-Za-z0-9.]+$", 'an App ID or client ID in quotes, such as "12345"', 64)]
    """App ID or client ID."""
    installation: Annotated[str, Matching(r"^\d+$", 'an installation ID in quotes, such as "678"', 20)]
    """Installation ID of the App in the organisation."""
    key: SecretSource = IN_CONFIG
    """Place of the private key: `config` is the Pulumi secret `paddock:githubAppKey`."""


class GitHub(Model):
    """Registration of the runners, and the credential they register with."""

    url: Annotated[
        str, AfterValidator(_url), WithJsonSchema({"type": "string", "pattern": _URL, "maxLength": _URL_MAX})
    ]
    """Organisation, repository or enterprise; on github.com, ghe.com or GitHub Enterprise Server."""
    app: GitHubApp | None = None
    """A GitHub App (recommended; an enterprise cannot use one). Exactly one of `app` and `token` is given."""
    token: SecretSource | None = None
    """Place of a personal access token: `config` is the Pulumi secret `paddock:githubToken`."""
    runner_group: RunnerGroup = "default"
    """Runner group that the scale sets join; it must exist already. A repository has none of its own."""
    server_version: Version | None = None
    """Version of GitHub Enterprise Server, such as "3.21"; needed when `url` is neither github.com nor ghe.com."""

    @model_validator(mode="after")
    def _one_credential(self) -> GitHub:
        refuse(self._mistakes())
        return self

    def _mistakes(self) -> Iterator[InitErrorDetails]:
        no_single_credential = (
            "there is no credential: app and token are both missing"
            if self.app is None
            else "two credentials: app and token"
        )
        if (self.app is None) == (self.token is None):
            expected = 'one of app: {id: "12345", installation: "678"} and token: config'
            fix = "an App is better: its rate limit grows with the organisation" if self.app is None else "remove token"
            yield mistake(no_single_credential, () if self.app is None else "token", expected, fix)
        if self.app is not None and self.scope == "enterprise":
            # docs.github.com, "Authenticating ARC to the GitHub API"
            message = "GitHub lets no App register runners of an enterprise"
            yield mistake(message, "app", "token: config, a classic token with manage_runners:enterprise", "remove app")
        if self.runner_group.lower() != "default" and self.scope == "repository":
            message = "a repository has no runner groups; organisations and enterprises do"
            yield mistake(message, "runnerGroup", "no runnerGroup, or an organisation's url", "remove runnerGroup")
        if self.kind == "server" and self.server_version is None:
            message = f"{self.host} is a GitHub Enterprise Server whose version is not given"
            yield mistake(message, "serverVersion", 'serverVersion: "3.21", the version that is installed')

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc

    @property
    def kind(self) -> Literal["cloud", "server"]:
        return "cloud" if self.host == "github.com" or self.host.endswith(".ghe.com") else "server"

    @property
    def token_issuer(self) -> str:
        """Issuer of the tokens that workflows there get for a cloud, without https://."""
        if self.kind == "server":
            return f"{self.host}/_services/token"
        return PUBLIC_ISSUER if self.host == "github.com" else f"token.actions.{self.host}"

    @property
    def scope(self) -> Literal["organisation", "repository", "enterprise"]:
        path = [part for part in urlsplit(self.url).path.split("/") if part]
        return "organisation" if len(path) == 1 else "enterprise" if path[0] == "enterprises" else "repository"

    @property
    def secret_source(self) -> str:
        return self.app.key if self.app else self.token or IN_CONFIG

    @property
    def kubernetes_secret(self) -> str | None:
        """Name of the Kubernetes secret that somebody else keeps in the runners' namespaces; None when we make it."""
        kind, _, name = self.secret_source.partition(":")
        return name if kind == "kubernetes" else None
