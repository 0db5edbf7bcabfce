"""Read a stack file the way Pulumi does, and report mistakes with their line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from paddock import validation
from paddock.fleet.errors import FleetError, Key, Problem, did_you_mean
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.stackfile import configuration
from paddock.fleet.stackfile.configuration import (
    EXAMPLES,
    FLEET,
    LAYERS,
    REGION,
    kind_of,
    stray_keys,
    unprintable,
    unquoted_dates,
)
from paddock.fleet.stackfile.credentials import ciphertext, clear_text_credentials, holds_secret, secret_parts
from paddock.fleet.stackfile.scalars import go_text
from paddock.fleet.stackfile.yaml_document import Document
from paddock.fleet.validation import check


@dataclass(frozen=True, slots=True)
class Stack:
    """A stack file, read: the fleet, and the configuration as Pulumi would hand it to the program."""

    project: str
    name: str
    path: Path
    fleet: Fleet
    config: Mapping[str, str]
    """Full key -> text; objects as JSON, secrets as their ciphertext."""
    secrets: frozenset[str]
    """Keys of `config` that are, or hold, encrypted values."""
    locate: Callable[[Iterable[Problem]], list[Problem]] = field(default=list, repr=False, compare=False)
    """Gives problems with `config` their line in the file, and puts them in its order."""


def load(root: Path, name: str, content: bytes | None = None) -> Stack:
    """Read `Pulumi.<name>.yaml` in `root`, under what `Pulumi.yaml` configures for every stack.

    `content` is read in place of what the file holds, to try a change before it is made. Raises FleetError, naming
    file and line.
    """
    path = _find(root, name)
    document = configuration.read_document(path) if content is None else Document(path.name, content)
    project_file = configuration.read_document(root / "Pulumi.yaml")
    project = configuration.project_name(root, project_file)
    raw, lenient = configuration.section(document), configuration.project_configuration(project_file, project)
    try:
        config = {**lenient, **configuration.full_keys(raw, project)}
        problems = [*clear_text_credentials(document.data), *stray_keys(raw), *unquoted_dates(document)]
        if problems:
            raise FleetError(problems)
        text = {key: go_text(ciphertext(value)) for key, value in config.items()}
        values = {key: config[key] for key in (FLEET, LAYERS, REGION) if key in config}
        fleet = _fleet(values, project, name, document)
        if absent := [_placed(problem, {}) for problem in fleet.mirror.not_here(root)]:
            raise FleetError(absent)
    except FleetError as error:
        raise FleetError(configuration.in_file_order(document, error.problems)) from None
    secrets = frozenset(key for key, value in config.items() if holds_secret(value))
    return Stack(project, name, path, fleet, text, secrets, partial(configuration.in_file_order, document))


def parse(config: Mapping[str, str], project: str, stack: str) -> Fleet:
    """The fleet in a stack's configuration, as both Pulumi and `load` hand it over: objects as JSON text.

    Raises FleetError whose keys start with `config`.
    """
    values = {key: configuration.decoded(config[key]) for key in (FLEET, LAYERS, REGION) if key in config}
    return _fleet(values, project, stack)


def stack_names(root: Path) -> list[str]:
    """Stacks that have a file in `root`, sorted."""
    files = (path.name for path in root.glob("Pulumi.*.yaml") if path.is_file())
    return sorted(name.removeprefix("Pulumi.").removesuffix(".yaml") for name in files)


def _fleet(values: Mapping[str, Any], project: str, stack: str, document: Document | None = None) -> Fleet:
    """The fleet in the decoded values of the three keys it is made of."""
    if FLEET not in values:
        fix = "the top of docs/configuration.md has a complete one to copy"
        raise FleetError([Problem(("config",), f"{FLEET} is missing", configuration.EXAMPLE_FLEET, fix)])
    data = values[FLEET]
    if not isinstance(data, dict):
        expected = "settings by name: github, pools and runners"
        raise FleetError(
            [Problem(("config", FLEET), f"{kind_of(data)} is not a fleet", expected, "indent the settings below it")]
        )
    if odd := list(unprintable(data)):
        raise FleetError(odd)  # alone: some of them cannot be shown in a message
    problems = [*_region(values, data), *secret_parts(data)]
    elsewhere = {"region": REGION, "layers": LAYERS}
    elsewhere = {part: key for part, key in elsewhere.items() if part not in data and values.get(key) is not None}
    merged = {"name": f"{project}-{stack}", **{part: values[key] for part, key in elsewhere.items()}, **data}
    if problems:
        # A placeholder, so that the rest of the file is checked too.
        merged["region"] = merged["region"] if "region" in merged and REGION not in values else "us-west-2"
    places: dict[str, Key] = {part: ("config", key) for part, key in elsewhere.items()}
    written = _written(document)
    try:
        fleet = check(Fleet.model_validate(merged, strict=True))
    except ValidationError as error:
        mistakes = validation.problems(error.errors(include_url=False), Fleet, examples=EXAMPLES, written=written)
        problems += _elsewhere([_placed(_reasoned(problem), places) for problem in mistakes], problems)
    except FleetError as error:
        problems += [_placed(problem, places) for problem in error.problems]
    else:
        if not problems:
            return fleet
    raise FleetError(problems)


def _region(values: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Problem]:
    region, own = values.get(REGION), data.get("region")
    if region is None and own is None:
        fix = "write aws:region: us-west-2 under config:"
        yield Problem(("config",), f"{REGION} is missing", "the AWS region of the fleet", fix)
    elif region is not None and own is not None and region != own:
        message = f"{own} here, but {REGION} is {region}"
        yield Problem(
            ("config", FLEET, "region"), message, "one region", f"leave region out: it is {REGION} by default"
        )


def _written(document: Document | None) -> Callable[[Key], str | None]:
    """Return a function that gives a value's text in the file: `1.30`, which is the number 1.3."""
    return lambda key: document.written.get(("config", FLEET, *key)) if document else None


_OTHER_KEYS: dict[str, dict[str, str]] = json.loads(
    Path(__file__).parents[1].joinpath("model", "other_keys.json").read_bytes()
)
"""Keys of other programs by the part in which they are written, in small letters, and what to write in their place."""


def _reasoned(problem: Problem) -> Problem:
    """Return a problem whose unknown key is another program's with what is in its place, not the nearest spelling."""
    if not problem.message.startswith("unknown key") or len(problem.key) > 3:
        return problem
    part = str(problem.key[0]) if len(problem.key) > 1 else ""
    key = str(problem.key[-1]).replace("_", "").replace("-", "").lower()
    reason = _OTHER_KEYS.get(part, {}).get(key)
    return replace(problem, fix=reason) if reason else problem


def _placed(problem: Problem, places: Mapping[str, Key]) -> Problem:
    """The problem with its key from the top of the stack file."""
    head = str(problem.key[0]) if problem.key else ""
    key = (*places[head], *problem.key[1:]) if head in places else ("config", FLEET, *problem.key)
    return replace(problem, key=key)


def _elsewhere(problems: Iterable[Problem], reported: Iterable[Problem]) -> Iterator[Problem]:
    """Yield the problems without a reported one at their key or above it."""
    keys = {problem.key for problem in reported}
    yield from (p for p in problems if not any(p.key[:length] in keys for length in range(1, len(p.key) + 1)))


def _find(root: Path, name: str) -> Path:
    path = root / f"Pulumi.{name}.yaml"
    if re.fullmatch(r"[\w.-]+", name) and path.exists():
        return path
    stacks = stack_names(root)
    if not stacks:
        fix = "make it; the top of docs/configuration.md has a complete one to copy"
        raise FleetError([Problem((), f"there is no stack file in {root}", f"a file Pulumi.{name}.yaml", fix)])
    hint = did_you_mean(name, stacks) or "choose one of these with --stack, or make a file for it"
    raise FleetError([Problem((), f'there is no stack "{name}" in {root}', configuration.one_of(stacks), hint)])
