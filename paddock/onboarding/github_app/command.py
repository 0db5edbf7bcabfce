"""The work of `inv github.app`, without Invoke."""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paddock.errors import program
from paddock.fleet import GitHub, load
from paddock.onboarding import scope
from paddock.onboarding.github_app import key as app_key
from paddock.onboarding.github_app.key import Key
from paddock.onboarding.github_app.registration import Registration
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, json_errors

KEY_COMMAND = "pulumi config set --stack {stack} --secret paddock:githubAppKey < {file}"


@json_errors
def run(
    root: Path,
    *,
    url: str | None = None,
    stack: str | None = None,
    key: Path | None = None,
    manifest: Path | None = None,
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
    github = scope.github(url) if url else _of_stack(root, stack) if stack else None
    registration = Registration(github) if github else None
    looked_at = app_key.read(key) if key else None
    if registration and manifest:
        JsonOutput(manifest).write(registration.manifest())
    json.write(_document(registration, looked_at, stack))
    if json.replaces_text:
        return
    parts = [_steps(registration, stack)] if registration else []
    parts += [_about_key(looked_at, stack)] if looked_at else []
    sys.stdout.write("\n\n".join(parts) + "\n")


def _of_stack(root: Path, stack: str) -> GitHub:
    github = load(root, stack).fleet.github
    return scope.github(github.url)


def _steps(registration: Registration, stack: str | None) -> str:
    github = registration.github
    forms = _either(registration.addresses)
    pages = _either(registration.installations)
    permissions = "\n".join(
        f"      {permission.section} permissions, {permission.title}: {permission.words}\n        {permission.why}"
        for permission in registration.permissions
    )
    where = f"{github.url}" if github.scope == "organisation" else f"{github.url}, and for no other repository"
    file = f"Pulumi.{stack or 'STACK'}.yaml"
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
 4. Write both numbers, in quotes, into {file}.
 5. Give Pulumi the key, which it keeps encrypted in that file, and delete the download:
      {KEY_COMMAND.format(stack=stack or "STACK", file="KEY.pem")}
    {program()} github.app --key KEY.pem says before that whether the file is such a key."""


def _either(addresses: dict[str, str]) -> str:
    if len(addresses) == 1:
        return f"      {addresses['organisation']}"
    return (
        f"      where the owner is an organisation: {addresses['organisation']}\n"
        f"      where the owner is a person:        {addresses['person']}"
    )


def _about_key(key: Key, stack: str | None) -> str:
    lines = [
        f"{key.file} is a private key: RSA, {key.bits} bits. GitHub shows the fingerprint of the App's key as",
        f"  {key.fingerprint}",
    ]
    if key.readable_by_others:
        lines.append(f"Others on this machine can read the file: chmod 600 {key.file}")
    lines.append(f"Next: {KEY_COMMAND.format(stack=stack or 'STACK', file=key.file)}")
    return "\n".join(lines)


def _document(registration: Registration | None, key: Key | None, stack: str | None) -> dict[str, Any]:
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
    return document | {"command": KEY_COMMAND.format(stack=stack or "STACK", file=key.file if key else "KEY.pem")}
