"""`init`: asks for what the flags leave open, writes the stack file, and says what comes next."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from paddock.console.output import BadFlag, write
from paddock.console.parameters import Parameters, parameter
from paddock.console.project import root
from paddock.console.question import agreed, ask, can_ask
from paddock.console.report import Report
from paddock.errors import PaddockError, printable, program
from paddock.fleet import GitHub
from paddock.fleet.model.github import GitHubApp
from paddock.fleet.model.images import print_ids
from paddock.init import address, answers, gpu_choice, scope, stack_file
from paddock.init.answers import Answers
from paddock.init.moving.model import Fleet
from paddock.init.moving.pods import gpu_of
from paddock.init.moving.read import read

_Answer = TypeVar("_Answer")
ReadIds = Callable[[GitHub, Path, str], str]
"""Reads a repository at GitHub with the credential in a file, and returns it with its ids. Raises PaddockError."""


@dataclass(frozen=True, kw_only=True)
class InitParameters(Parameters):
    """Parameters of `init`."""

    from_: Path | None = parameter(
        None,
        "take over the runners of another program, as its file describes them: RunnerDeployments, values of ARC's"
        " chart, or terraform-aws-github-runner; docs/moving.md",
    )
    url: str | None = parameter(
        None, "the GitHub organisation or repository: https://github.com/ORG, or ORG, or OWNER/REPOSITORY"
    )
    region: str | None = parameter(None, "the AWS region, such as us-west-2")
    allow: str | None = parameter(
        None,
        "networks that may reach the Kubernetes API, with commas, such as 203.0.113.7/32; me asks checkip.amazonaws.com"
        " for this machine's address; none: the VPC alone",
    )
    gpu: str | None = parameter(
        None, "the GPU of the first pool, such as t4 or l4; on a terminal init lists them with prices"
    )
    stack: str | None = parameter(None, "the name of the stack; ci by default")
    app_id: str | None = parameter(None, "the GitHub App's id; may be left for later")
    installation: str | None = parameter(None, "the App's installation id; may be left for later")
    push: str | None = parameter(
        None, "the repository whose workflows push images: OWNER/REPOSITORY, or OWNER@ID/REPOSITORY@ID"
    )
    github_key: Path | None = parameter(
        None, "read the ids of that repository with the App's private key in this file, or a token"
    )
    overwrite: bool = parameter(False, "replace a stack file of that name that holds no secrets")
    yes: bool = parameter(False, "ask nothing: --url, --region, --allow and --gpu are then needed")
    schema: bool = parameter(False, "print the JSON Schema of a stack file instead, for editors and other tools")
    fleet: bool = parameter(False, "with --schema: only the value of paddock:fleet, not a whole stack file")
    write: bool = parameter(False, "with --schema: write docs/configuration.md and docs/fleet.schema.json instead")


_OF_SCHEMA = frozenset({"schema", "fleet", "write"})


@dataclass(frozen=True, kw_only=True)
class StackWritten(Report):
    """A stack file that was written, and what comes next."""

    SCHEMA = 1
    answered: Answers
    file: str
    moved: Fleet | None = None
    """Runners of another program, from which the file was made."""

    def document(self) -> dict[str, Any]:
        answered = self.answered
        return {
            "schema": self.SCHEMA,
            "file": self.file,
            "stack": answered.stack,
            "url": answered.github.url,
            "region": answered.region,
            "allow": list(answered.allow),
            "gpu": answered.choice.document(),
            "app": {"id": answered.app_id, "installation": answered.installation},
            "push": answered.push,
            "next": list(_next(answered)),
        } | ({"moved": self._moved(self.moved)} if self.moved else {})

    @staticmethod
    def _moved(fleet: Fleet) -> dict[str, Any]:
        moved = [runner for runner in fleet.runners if runner.key]
        runners = [{"name": runner.name, "key": runner.key, "taken": runner.taken} for runner in moved]
        return {"program": fleet.program, "runners": runners, "notes": [asdict(note) for note in fleet.notes()]}

    def text(self) -> Iterator[str]:
        if self.moved:
            names = [runner.name for runner in self.moved.runners if runner.key]
            yield f"{self.file} is written: {', '.join(names)} of {self.moved.program}, as far as a stack file has it"
            yield from _notes(self.moved)
        else:
            yield f"{self.file} is written: {_summary(self.answered)}"
        yield from ("", "Next:")
        following = _next(self.answered)
        width = max(map(len, following))
        yield from (f"  {line:{width}}   # {why}" for line, why in following.items())


@dataclass(frozen=True, kw_only=True)
class SchemaPrinted(Report):
    """The JSON Schema of a stack file, or of a fleet."""

    SCHEMA = "https://json-schema.org/draft/2020-12/schema"
    described: dict[str, Any]

    def document(self) -> dict[str, Any]:
        return self.described

    def text(self) -> Iterator[str]:
        yield json.dumps(self.described, indent=2)


def init(parameters: InitParameters, read_ids: ReadIds) -> StackWritten | SchemaPrinted | int:
    """Write `Pulumi.<stack>.yaml`. Raises BadFlag, AddressUnknown, FleetError and OutputError; then nothing changed."""
    if parameters.changed() & _OF_SCHEMA:
        return _schema(parameters)
    if parameters.github_key and not parameters.push:
        raise BadFlag(
            "--github-key reads the ids of the repository in --push, which is missing\n    fix: --push OWNER/REPOSITORY"
        )
    moved = None
    if parameters.from_:
        moved = read(parameters.from_)
        parameters = _learned(parameters, moved)
    asks = can_ask(parameters.json) and not parameters.yes
    answered = _identified(_ask(parameters) if asks else _from_flags(parameters), parameters, read_ids)
    text = stack_file.text(answered, root(), moved)
    path = answers.stack_path(answered.stack, root())
    if asks:
        _say(f"\n{text}")
        if not agreed(f"Write {path.name}?", parameters.json, default=True):
            _say("Nothing was written.")
            return 0
    write(path, text)
    return StackWritten(answered=answered, file=path.name, moved=moved)


def _learned(parameters: InitParameters, moved: Fleet) -> InitParameters:
    """Return the parameters with what the file says: where its runners register, and the GPU where it says them all."""
    places = list(dict.fromkeys(runner.place for runner in moved.runners if runner.gpus and runner.place))
    url = parameters.url or (places[0] if places else None)
    own = (url or "").removeprefix("https://github.com/").removesuffix("/")
    if len(places) > 1 and own not in places:
        raise BadFlag(f"--url {url}: no runner of the file registers there\n    expected: one of {', '.join(places)}")
    for runner in moved.runners:
        if len(places) > 1 and runner.gpus and runner.place and runner.place != own:
            runner.elsewhere = f"it registers at {runner.place}: that is another stack; --url {runner.place} takes it"
    with_gpu = [runner for runner in moved.runners if runner.gpus]
    known = [runner.gpu or next((gpu_of(type_) for type_ in runner.instances), "") for runner in with_gpu]
    region = parameters.region or next((runner.region for runner in with_gpu if runner.region), None)
    gpu = parameters.gpu or (known[0] if known and all(known) else None)
    return replace(parameters, url=url, region=region, gpu=gpu)


def _schema(parameters: InitParameters) -> SchemaPrinted | int:
    from paddock.fleet.docs import json_schema, reference

    if not parameters.schema:
        raise BadFlag("--fleet and --write are of --schema\n    fix: add --schema, or leave them out")
    others = parameters.changed() - {"schema", "write" if parameters.write else "fleet"}
    if others:
        flag = f"--{min(others).rstrip('_').replace('_', '-')}"
        raise BadFlag(f"--schema takes --fleet or --write alone\n    fix: leave {flag} out")
    if parameters.write:
        reference.write(root())
        return 0
    return SchemaPrinted(described=json_schema.schema() if parameters.fleet else json_schema.stack_schema())


def _from_flags(flags: InitParameters) -> Answers:
    """Return the answers in the flags alone. Raises BadFlag, which names all that are missing."""
    needed = {"--url": flags.url, "--region": flags.region, "--allow": flags.allow, "--gpu": flags.gpu}
    if missing := [flag for flag, value in needed.items() if not value]:
        examples = "--url https://github.com/ORG --region us-west-2 --allow 203.0.113.7/32 --gpu t4"
        raise BadFlag(
            f"init needs {', '.join(missing)}\n"
            f"    expected: {program()} init {examples}\n"
            "    fix: give each of them; on a terminal, and without --yes and --json, init asks"
        )
    return _checked(flags)


def _checked(flags: InitParameters) -> Answers:
    github = scope.github(flags.url or "")
    region = answers.region(flags.region or "")
    return Answers(
        github=_on_cloud(github),
        region=region,
        choice=answers.gpu(flags.gpu or "", region),
        stack=answers.stack(flags.stack or answers.STACK, root(), overwrite=flags.overwrite),
        app_id=answers.app_number("--app-id", flags.app_id),
        installation=answers.app_number("--installation", flags.installation),
        push=answers.push(flags.push or "", github),
        allow=answers.networks(flags.allow or ""),  # last: it may ask a service
    )


def _identified(answered: Answers, flags: InitParameters, read_ids: ReadIds) -> Answers:
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
            f"--url {github.url}: {github.host} is a GitHub Enterprise Server, which init does not cover\n"
            "    expected: an organisation or repository on github.com or ghe.com\n"
            "    fix: copy Pulumi.dev.yaml and add github.serverVersion: docs/configuration.md#github"
        )
    return github


def _ask(flags: InitParameters) -> Answers:
    """Return the answers. Those that no flag has are asked for, and asked for again where one is wrong."""

    def question(flag: str | None, prompt: str, check: Callable[[str], _Answer], default: str = "") -> _Answer:
        if flag is not None:
            return check(flag)
        shown = f"{prompt} [{default}]: " if default else f"{prompt}: "
        while True:
            try:
                return check(ask(shown) or default)
            except PaddockError as error:
                _say(str(error))

    github = question(
        flags.url, "GitHub organisation, or repository as OWNER/NAME", lambda text: _on_cloud(scope.github(text))
    )
    here = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or ""
    region = question(flags.region, "AWS region, such as us-west-2", answers.region, here)
    if flags.gpu is None:
        _say("\n".join(["", *gpu_choice.table(gpu_choice.choices(region)), ""]))
    choice = question(flags.gpu, "GPU", lambda text: answers.gpu(text, region))
    if flags.allow is None:
        _say(
            f"\nNetworks that may reach the Kubernetes API, with commas: yours, such as 203.0.113.0/24; "
            f"{answers.ME} asks\n{address.SERVICE} for this machine's address; {answers.NOBODY} for the VPC alone."
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
        _say(
            f"\nTokens of a repository made, renamed or moved since 2026-07-15 hold its ids and its owner's.\n"
            f"  {print_ids(names, github.host)}\nprints it with both."
        )
        push = question(
            None, "The same with ids, empty for later", lambda text: answers.push_with_ids(text, names, github)
        )  # fmt: skip
    name = question(
        flags.stack, "Name of the stack", lambda text: answers.stack(text, root(), overwrite=flags.overwrite),
        answers.STACK,
    )  # fmt: skip
    return Answers(github, region, allow, choice, name, app_id, installation, push)


def _say(text: str) -> None:
    """Say something between two questions."""
    sys.stderr.write(f"{printable(text)}\n")


def _notes(moved: Fleet) -> Iterator[str]:
    """Yield what changed its meaning and what is left out, runner by runner."""
    for kind in ("changed", "left out"):
        notes = [note for note in moved.notes() if note.kind == kind]
        if notes:
            yield from ("", f"{kind.capitalize()}:")
        yield from (f"  {': '.join(filter(None, (note.runner, note.key)))}: {note.text}" for note in notes)


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
        following[f"{program()} init.github --url {answered.github.url}"] = (
            "the App whose two numbers the file still lacks"
        )
    if answered.push and "@" not in answered.push:
        following[print_ids(answered.push, answered.github.host)] = (
            "images.push.repository with its ids, without which newer repositories cannot push"
        )
    return following | {
        f"{program()} plan --stack {answered.stack}": "what it would be and cost, and what is left to do",
        f"{program()} init.permissions --stack {answered.stack}": "what pulumi up may do in your account",
    }
