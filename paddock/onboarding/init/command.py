"""The work of `inv init`, without Invoke: ask for what the flags leave open, write, and say what comes next."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from paddock.errors import PaddockError, program
from paddock.fleet import GitHub
from paddock.fleet.model.github import GitHubApp
from paddock.fleet.model.images import print_ids
from paddock.onboarding import scope
from paddock.onboarding.init import address, answers, gpu_choice, stack_file
from paddock.onboarding.init.answers import Answers
from paddock.terminal import NO_JSON, BadFlag, JsonOutput, json_errors, write

_Answer = TypeVar("_Answer")
ReadIds = Callable[[GitHub, Path, str], str]
"""Reads a repository at GitHub with the credential in a file, and returns it with its ids. Raises PaddockError."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Flags as they were typed; None where one was left out."""

    url: str | None = None
    region: str | None = None
    allow: str | None = None
    gpu: str | None = None
    stack: str | None = None
    app_id: str | None = None
    installation: str | None = None
    overwrite: bool = False
    push: str | None = None
    github_key: Path | None = None
    """File with the App's key, or a token, that reads the ids of the repository in `push`."""


@json_errors
def run(root: Path, flags: Flags, *, read_ids: ReadIds, yes: bool = False, json: JsonOutput = NO_JSON) -> None:
    """Write `Pulumi.<stack>.yaml`. Raises BadFlag, AddressUnknown, FleetError and OutputError; then nothing changed."""
    if flags.github_key and not flags.push:
        raise BadFlag(
            "--github-key reads the ids of the repository in --push, which is missing\n    fix: --push OWNER/REPOSITORY"
        )
    ask = sys.stdin.isatty() and sys.stdout.isatty() and not (yes or json.replaces_text)
    answered = _identified(_ask(root, flags) if ask else _from_flags(root, flags), flags, read_ids)
    text = stack_file.text(answered, root)
    path = answers.stack_path(answered.stack, root)
    if ask and not _agreed(path.name, text):
        sys.stdout.write("Nothing was written.\n")
        return
    write(path, text)
    following = _next(answered)
    json.write(_document(answered, path, following))
    if json.replaces_text:
        return
    sys.stdout.write(f"{path.name} is written: {_summary(answered)}\n\nNext:\n")
    width = max(map(len, following))
    sys.stdout.writelines(f"  {command:{width}}   # {why}\n" for command, why in following.items())


def _from_flags(root: Path, flags: Flags) -> Answers:
    """Return the answers in the flags alone. Raises BadFlag, which names all that are missing."""
    needed = {"--url": flags.url, "--region": flags.region, "--allow": flags.allow, "--gpu": flags.gpu}
    if missing := [flag for flag, value in needed.items() if not value]:
        examples = "--url https://github.com/ORG --region us-west-2 --allow 203.0.113.7/32 --gpu t4"
        raise BadFlag(
            f"init needs {', '.join(missing)}\n"
            f"    expected: {program()} init {examples}\n"
            "    fix: give each of them; on a terminal, and without --yes and --json, init asks"
        )
    return _checked(root, flags)


def _checked(root: Path, flags: Flags) -> Answers:
    github = scope.github(flags.url or "")
    region = answers.region(flags.region or "")
    return Answers(
        github=_on_cloud(github),
        region=region,
        choice=answers.gpu(flags.gpu or "", region),
        stack=answers.stack(flags.stack or answers.STACK, root, overwrite=flags.overwrite),
        app_id=answers.app_number("--app-id", flags.app_id),
        installation=answers.app_number("--installation", flags.installation),
        push=answers.push(flags.push or "", github),
        allow=answers.networks(flags.allow or ""),  # last: it may ask a service
    )


def _identified(answered: Answers, flags: Flags, read_ids: ReadIds) -> Answers:
    """Read the ids of the repository that pushes images with the App, where its key is given. Raises PaddockError."""
    if not (flags.github_key and answered.push) or "@" in answered.push:
        return answered
    github = answered.github
    if answered.app_id and answered.installation:
        app = GitHubApp(id=answered.app_id, installation=answered.installation)
        github = github.model_copy(update={"app": app, "token": None})
    return replace(answered, push=read_ids(github, flags.github_key, answered.push))


def _on_cloud(github: GitHub) -> GitHub:
    if github.kind == "server":
        raise BadFlag(
            f"--url {github.url}: {github.host} is a GitHub Enterprise Server, which init asks nothing about\n"
            "    expected: an organisation or repository on github.com or ghe.com\n"
            "    fix: copy Pulumi.dev.yaml and add github.serverVersion: docs/configuration.md#github"
        )
    return github


def _ask(root: Path, flags: Flags) -> Answers:
    """Return the answers. Those that no flag has are asked for, and asked for again where one is wrong."""

    def question(flag: str | None, prompt: str, check: Callable[[str], _Answer], default: str = "") -> _Answer:
        if flag is not None:
            return check(flag)
        shown = f"{prompt} [{default}]: " if default else f"{prompt}: "
        while True:
            try:
                return check(input(shown).strip() or default)
            except EOFError:
                raise KeyboardInterrupt from None
            except PaddockError as error:
                sys.stdout.write(f"{error}\n")

    github = question(
        flags.url, "GitHub organisation, or repository as OWNER/NAME", lambda text: _on_cloud(scope.github(text))
    )
    here = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    region = question(flags.region, "AWS region, such as us-west-2", answers.region, here)
    if flags.gpu is None:
        sys.stdout.write(f"\n{gpu_choice.table(gpu_choice.choices(region))}\n\n")
    choice = question(flags.gpu, "GPU", lambda text: answers.gpu(text, region))
    if flags.allow is None:
        sys.stdout.write(
            f"\nNetworks that may reach the Kubernetes API, with commas: yours, such as 203.0.113.0/24; "
            f"{answers.ME} asks\n{address.SERVICE} for this machine's address; {answers.NOBODY} for the VPC alone.\n"
        )
    allow = question(flags.allow, "Networks", answers.networks)
    app_id = question(
        flags.app_id, "GitHub App's id, empty for later", lambda text: answers.app_number("--app-id", text)
    )
    installation = None
    if app_id or flags.installation is not None:
        installation = question(
            flags.installation, "Its installation id, empty for later",
            lambda text: answers.app_number("--installation", text),
        )  # fmt: skip
    push = question(
        flags.push, "Repository whose workflows push images, as OWNER/NAME, empty for none",
        lambda text: answers.push(text, github),
    )  # fmt: skip
    if push and "@" not in push and not flags.github_key:
        names = push
        sys.stdout.write(
            f"\nTokens of a repository made, renamed or moved since 2026-07-15 hold its ids and its owner's.\n"
            f"  {print_ids(names, github.host)}\nprints it with both.\n"
        )
        push = question(
            None, "The same with ids, empty for later", lambda text: answers.push_with_ids(text, names, github)
        )  # fmt: skip
    name = question(
        flags.stack, "Name of the stack", lambda text: answers.stack(text, root, overwrite=flags.overwrite),
        answers.STACK,
    )  # fmt: skip
    return Answers(github, region, allow, choice, name, app_id, installation, push)


def _agreed(name: str, text: str) -> bool:
    sys.stdout.write(f"\n{text}\n")
    try:
        return input(f"Write {name}? [Y/n] ").strip().lower() in ("", "y", "yes")
    except EOFError:
        raise KeyboardInterrupt from None


def _summary(answered: Answers) -> str:
    choice = answered.choice
    prices = [
        f"{price:.2f} USD an hour {label}"
        for price, label in ((choice.spot, "on spot"), (choice.on_demand, "on demand"))
        if price is not None
    ]
    cost = " or ".join(prices) if prices else "at a price that is not known"
    kept = ", ".join(answered.allow) or "the VPC alone"
    return (
        f"up to {choice.nodes} x {choice.types[0].name} with {choice.gpu.name} in {answered.region}, from {cost} while"
        f" jobs run; the Kubernetes API is open to {kept}"
    )


def _next(answered: Answers) -> Mapping[str, str]:
    following = {}
    if not (answered.app_id and answered.installation):
        following[f"{program()} github.app --url {answered.github.url}"] = (
            "the App whose two numbers the file still lacks"
        )
    if answered.push and "@" not in answered.push:
        following[print_ids(answered.push, answered.github.host)] = (
            "images.push.repository with its ids, without which newer repositories cannot push"
        )
    return following | {
        f"{program()} plan --stack {answered.stack}": "what it would be and cost, and what is left to do",
        f"{program()} aws.permissions --stack {answered.stack}": "what pulumi up may do in your account",
    }


def _document(answered: Answers, path: Path, following: Mapping[str, str]) -> dict[str, Any]:
    return {
        "file": path.name,
        "stack": answered.stack,
        "url": answered.github.url,
        "region": answered.region,
        "allow": list(answered.allow),
        "gpu": answered.choice.document(),
        "app": {"id": answered.app_id, "installation": answered.installation},
        "push": answered.push,
        "next": list(following),
    }
