"""The work of `inv github.app`, without Invoke."""

from __future__ import annotations

import shlex
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from paddock.errors import program
from paddock.fleet import load
from paddock.fleet.model.github import IN_CONFIG
from paddock.onboarding import scope
from paddock.onboarding.github_app import key as app_key
from paddock.onboarding.github_app.key import Key
from paddock.onboarding.github_app.registration import Registration
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, json_errors


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


@json_errors
def run(
    root: Path,
    *,
    url: str | None = None,
    stack: str | None = None,
    key: Path | None = None,
    manifest: Path | None = None,
    operate: bool = False,
    json: JsonOutput = NO_JSON,
) -> None:
    """Print how to register the App, and what a key is. Raises BadFlag, BadKey, FleetError and OutputError."""
    if url and stack:
        raise BadFlag("--url and --stack both say where runners register\n    fix: leave one of them out")
    if not (url or stack or key):
        raise BadFlag(
            "github.app needs --url or --stack\n"
            f"    expected: {program()} github.app --url https://github.com/ORG\n"
            "    fix: name the organisation or repository whose jobs the runners take"
        )
    if manifest and not (url or stack):
        raise BadFlag("--manifest needs --url or --stack, which say whose App it is")
    place, registration = KeyPlace(), Registration(scope.github(url), operate) if url else None
    if stack:
        github = load(root, stack).fleet.github
        place = KeyPlace(stack, github.app.key if github.app else IN_CONFIG)
        registration = Registration(scope.github(github.url, f"--stack {stack}"), operate)
    private_key = app_key.read(key) if key else None
    command = place.command(private_key.file if private_key else "KEY.pem")
    if registration and manifest:
        JsonOutput(manifest).write(registration.manifest())
    json.write(_document(registration, private_key, place, command))
    if json.replaces_text:
        return
    parts = [_steps(registration, place, command)] if registration else []
    parts += [_about_key(private_key, place, command)] if private_key else []
    sys.stdout.write("\n\n".join(parts) + "\n")


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
    {program()} github.app --key KEY.pem says before that whether the file is such a key."""


def _either(addresses: dict[str, str]) -> str:
    if len(addresses) == 1:
        return f"      {addresses['organisation']}"
    return (
        f"      where the owner is an organisation: {addresses['organisation']}\n"
        f"      where the owner is a person:        {addresses['person']}"
    )


def _about_key(key: Key, place: KeyPlace, command: str | None) -> str:
    lines = [
        f"{key.file} is a private key: RSA, {key.bits} bits. GitHub shows the fingerprint of the App's key as",
        f"  {key.fingerprint}",
    ]
    if key.readable_by_others:
        lines.append(f"Others on this machine can read the file: chmod 600 {shlex.quote(key.file)}")
    lines.append(f"Next: {command or f'put it into the place that github.app.key names: {place.source}'}")
    return "\n".join(lines)


def _document(
    registration: Registration | None, key: Key | None, place: KeyPlace, command: str | None
) -> dict[str, Any]:
    document: dict[str, Any] = {}
    if registration:
        document = {
            "url": registration.github.url,
            "scope": registration.github.scope,
            "register": registration.addresses,
            "installations": registration.installations,
            "permissions": [asdict(permission) for permission in registration.permissions],
            "manifest": registration.manifest(),
        }
    if key:
        document["key"] = asdict(key)
    return document | {"key_source": place.source, "command": command}
