"""`init.github`: how to make the GitHub App that registers runners, and what its key is."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock.console.command import command
from paddock.console.output import BadFlag, JsonOutput
from paddock.console.parameters import Parameters, parameter
from paddock.console.project import root
from paddock.console.report import Report
from paddock.errors import program
from paddock.fleet import GitHub, load
from paddock.fleet.model.github import IN_CONFIG
from paddock.init import scope
from paddock.init.github_app import key as app_key
from paddock.init.github_app.key import Key
from paddock.init.github_app.registration import Registration


@dataclass(frozen=True, slots=True)
class KeyPlace:
    """Place that a stack takes the App's key from."""

    stack: str | None = None
    source: str = IN_CONFIG
    """Value of `github.app.key`."""

    @property
    def file(self) -> str:
        return f"Pulumi.{self.stack or 'STACK'}.yaml"

    def command(self, key: str) -> str | None:
        """Return the command that brings the key there, None for a place outside Pulumi."""
        if self.source != IN_CONFIG:
            return None
        stack = self.stack or "STACK"
        return f"pulumi config set --stack {stack} --secret paddock:githubAppKey < {shlex.quote(key)}"


@dataclass(frozen=True, kw_only=True)
class GitHubAppParameters(Parameters):
    """Parameters of `init.github`."""

    url: str | None = parameter(
        None, "the organisation or repository whose jobs the runners take: https://github.com/ORG"
    )
    stack: str | None = parameter(None, "take it from this stack's file instead")
    key: Path | None = parameter(None, "look at the private key in this file, and show nothing of it")
    manifest: Path | None = parameter(
        None, "also write the App's manifest to this file, for those who register Apps by program", writes=True
    )
    operate: bool = parameter(
        False, "also ask for Actions: why looks at jobs, verify --canary and runners.rerun start them"
    )
    doctor: bool = parameter(
        False, "also ask for Administration, to read only: doctor reads policies for forks and settings of Actions"
    )


@dataclass(frozen=True, kw_only=True)
class AppSteps(Report):
    """Steps that register an App, and a description of its key; None for what was not asked for."""

    SCHEMA = 1
    registration: Registration | None
    key: Key | None
    place: KeyPlace

    @property
    def command(self) -> str | None:
        """The command that brings the key to its place."""
        return self.place.command(self.key.file if self.key else "KEY.pem")

    def document(self) -> dict[str, Any]:
        registration = self.registration
        about_app = (
            {
                "url": registration.github.url,
                "scope": registration.github.scope,
                "register": registration.addresses,
                "installations": registration.installations,
                "permissions": [asdict(permission) for permission in registration.permissions],
                "manifest": registration.manifest(),
            }
            if registration
            else {}
        )
        about_key = {"key": asdict(self.key)} if self.key else {}
        place = {"key_source": self.place.source, "command": self.command}
        return {"schema": self.SCHEMA, **about_app, **about_key, **place}

    def text(self) -> Iterator[str]:
        if self.registration:
            yield from _steps(self.registration, self.place, self.command).splitlines()
        if self.registration and self.key:
            yield ""
        if self.key:
            yield from _about_key(self.key, self.place, self.command)


@command()
def github(parameters: GitHubAppParameters) -> AppSteps:
    """Say how to register the App, and look at a key. Raises BadFlag, BadKey, FleetError and OutputError."""
    url, stack, key = parameters.url, parameters.stack, parameters.key
    if url and stack:
        raise BadFlag("--url and --stack both say where runners register\n    fix: leave one of them out")
    if not (url or stack or key):
        raise BadFlag(
            "init.github needs --url or --stack\n"
            f"    expected: {program()} init.github --url https://github.com/ORG\n"
            "    fix: name the organisation or repository whose jobs the runners take"
        )
    if parameters.manifest and not (url or stack):
        raise BadFlag("--manifest needs --url or --stack, which say whose App it is")
    place, registration = KeyPlace(), _registration(scope.github(url), parameters) if url else None
    if stack:
        found = load(root(), stack).fleet.github
        place = KeyPlace(stack, found.app.key if found.app else IN_CONFIG)
        registration = _registration(scope.github(found.url, f"--stack {stack}"), parameters)
    report = AppSteps(registration=registration, key=app_key.read(key) if key else None, place=place)
    if registration:
        JsonOutput(parameters.manifest).write(registration.manifest())
    return report


def _registration(github: GitHub, parameters: GitHubAppParameters) -> Registration:
    return Registration(github, parameters.operate, parameters.doctor)


def _steps(registration: Registration, place: KeyPlace, command: str | None) -> str:
    github = registration.github
    forms = _either(registration.addresses)
    pages = _either(registration.installations)
    permissions = "\n".join(
        f"      {permission.section} permissions, {permission.title}: {permission.words}\n        {permission.why}"
        for permission in registration.permissions
    )
    where = f"{github.url}" if github.scope == "organisation" else f"{github.url}, and for no other repository"
    give = f"Give Pulumi the key, which it keeps encrypted in that file, and delete the download:\n      {command}"
    if command is None:
        give = f"Put the key into the place that github.app.key names, and delete the download:\n      {place.source}"
    return f"""\
A GitHub App with which runners register at {github.url}

 1. Register it. The form at this address is filled in; "Create GitHub App" at its end makes it.
{forms}
    It asks for
{permissions}
    and for no webhook.
 2. On the page that follows: "App ID" at the top is github.app.id. "Generate a private key" downloads the key.
 3. "Install App" in the menu at the side: install it in {where}.
    The address of the page that follows ends with github.app.installation. Later that page is here, by "Configure":
{pages}
 4. Write both numbers, in quotes, into {place.file}.
 5. {give}
    {program()} init.github --key KEY.pem says before that whether the file is such a key."""


def _either(addresses: dict[str, str]) -> str:
    if len(addresses) == 1:
        return f"      {addresses['organisation']}"
    return (
        f"      where the owner is an organisation: {addresses['organisation']}\n"
        f"      where the owner is a person:        {addresses['person']}"
    )


def _about_key(key: Key, place: KeyPlace, command: str | None) -> Iterator[str]:
    yield f"{key.file} is a private key: RSA, {key.bits} bits. GitHub shows the fingerprint of the App's key as"
    yield f"  {key.fingerprint}"
    if key.readable_by_others:
        yield f"Others on this machine can read the file: chmod 600 {shlex.quote(key.file)}"
    yield f"Next: {command or f'put it into the place that github.app.key names: {place.source}'}"
