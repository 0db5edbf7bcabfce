"""Answers to the questions, each checked before the next one is asked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from paddock import catalog, validation
from paddock.console.output import BadFlag
from paddock.errors import did_you_mean, program
from paddock.fleet import FleetError, GitHub, stack_names
from paddock.fleet.model.cluster import Endpoint
from paddock.fleet.model.github import GitHubApp
from paddock.fleet.model.images import Push, print_ids
from paddock.fleet.stackfile.configuration import read_document
from paddock.fleet.validation.network import other_partition
from paddock.init import address
from paddock.init.gpu_choice import Choice, choices

STACK = "ci"
ME, NOBODY = "me", "none"
"""Words in place of networks."""
EXAMPLE_IDS = ("12345", "678")
"""Of an App that is still to be made: `inv plan` says so of each of them until they are replaced."""
_SECRET_KEYS = frozenset({"secure", "encryptionsalt", "encryptedkey"})
"""Keys of a stack file that Pulumi encrypts with, or whose value it has encrypted."""


@dataclass(frozen=True, slots=True)
class Answers:
    """Parts of a new stack file."""

    github: GitHub
    region: str
    allow: tuple[str, ...]
    choice: Choice
    stack: str
    app_id: str | None
    installation: str | None
    push: str | None = None
    """Repository whose workflows push images, with its ids where they are known."""


def region(text: str) -> str:
    """Return a region of the catalogue. Raises BadFlag."""
    if problem := other_partition(text):
        raise BadFlag(f"--region: {problem.message}\n    expected: {problem.expected}\n    fix: {problem.fix}")
    regions = catalog.regions()
    if text not in regions:
        hint = did_you_mean(text, regions, "aws account list-regions shows those of your account")
        raise BadFlag(
            f"--region {text}: no such region\n    expected: an AWS region, such as us-west-2\n    fix: {hint}"
        )
    if regions[text] is None:
        raise BadFlag(
            f"--region {text}: accounts have different zones there, so init cannot name yours\n"
            f"    expected: another region, such as us-west-2\n"
            "    fix: or write the stack file from Pulumi.dev.yaml, with network.zones: docs/configuration.md#network"
        )
    return text


def networks(text: str) -> tuple[str, ...]:
    """Return the networks in `--allow`, this machine's for `me`. Raises BadFlag and AddressUnknown."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    expected = f"networks such as 203.0.113.0/24, with commas; {ME} for this machine's address; {NOBODY}"
    if words == [NOBODY]:
        return ()
    if not words or "any" in words or NOBODY in words:
        refusal = "opens the API to the world" if "any" in words else "is not a list of networks"
        raise BadFlag(f"--allow {text}: it {refusal}\n    expected: {expected}")
    listed = tuple(dict.fromkeys(address.public_network() if word == ME else word for word in words))
    try:
        Endpoint.model_validate({"allow": listed})
    except ValidationError as error:
        problem = validation.problems(error.errors(include_url=False), Endpoint)[0]
        raise BadFlag(f"--allow: {problem.message}\n    expected: {problem.expected or expected}") from None
    return listed


def gpu(text: str, region: str) -> Choice:
    """Return the choice of that name. Raises BadFlag."""
    offered = {choice.gpu.key: choice for choice in choices(region)}
    if text not in offered:
        listed = ", ".join(offered)
        where = f"{text} is not sold in {region}" if text in catalog.gpus() else "no such GPU"
        hint = did_you_mean(text, offered, f"{program()} catalog --region {region} lists what is there")
        raise BadFlag(f"--gpu {text}: {where}\n    expected: one of {listed}\n    fix: {hint}")
    return offered[text]


def stack(text: str, root: Path, *, overwrite: bool = False) -> str:
    """Return the name of a stack whose file may be written. Raises BadFlag."""
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,18}[a-z0-9])?", text):
        raise BadFlag(
            f"--stack {text}: not a name of a stack\n"
            "    expected: at most 20 lower-case letters, digits and dashes; the cluster is called paddock-NAME"
        )
    path = stack_path(text, root)
    if not path.exists():
        return text
    if not overwrite:
        others = ", ".join(stack_names(root))
        raise BadFlag(
            f"--stack {text}: {path.name} is there already (stacks: {others})\n"
            "    fix: another --stack, or --overwrite to replace the file"
        )
    try:
        content = read_document(path).data
    except FleetError as error:
        raise BadFlag(f"--overwrite: the file may hold secrets, and cannot be read: {error}") from None
    if not _SECRET_KEYS.isdisjoint(_keys(content)):
        raise BadFlag(
            f"--overwrite: {path.name} holds secrets, or the salt without which Pulumi reads none of this stack\n"
            "    fix: edit the file, or choose another --stack"
        )
    return text


def _keys(content: object) -> Iterator[str]:
    """Yield the keys of every mapping in a document."""
    if isinstance(content, dict):
        yield from content
    inside = content.values() if isinstance(content, dict) else content if isinstance(content, list) else ()
    for item in inside:
        yield from _keys(item)


def stack_path(name: str, root: Path) -> Path:
    return root / f"Pulumi.{name}.yaml"


def app_number(flag: str, text: str | None) -> str | None:
    """Return an id of the GitHub App, None where it is left for later. Raises BadFlag."""
    if not text:
        return None
    field = "id" if flag == "--app-id" else "installation"
    try:
        GitHubApp.model_validate({"id": EXAMPLE_IDS[0], "installation": EXAMPLE_IDS[1], field: text})
    except ValidationError as error:
        problem = validation.problems(error.errors(include_url=False), GitHubApp)[0]
        raise BadFlag(f"{flag}: {problem.message}\n    expected: {problem.expected}") from None
    return text


def push(text: str, github: GitHub) -> str | None:
    """Return the repository whose workflows push images, None for none. Raises BadFlag."""
    written = text.removeprefix(f"https://{github.host}/").removesuffix("/").removesuffix(".git")
    if written in ("", NOBODY):
        return None
    try:
        return Push.model_validate({"repository": written}).repository
    except ValidationError as error:
        problem = validation.problems(error.errors(include_url=False), Push)[0]
        raise BadFlag(f"--push: {problem.message}\n    expected: {problem.expected}\n    fix: {problem.fix}") from None


def push_with_ids(text: str, names: str, github: GitHub) -> str:
    """Return a repository as it was, or with ids where these were given. Raises BadFlag."""
    given = push(text, github) or names
    if Push(repository=given).names.lower() != names.lower():
        raise BadFlag(
            f"--push {given}: another repository than {names}\n    fix: {print_ids(names, github.host)} prints its ids"
        )
    return given
