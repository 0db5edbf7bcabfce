"""Read a stack file the way Pulumi does, and report mistakes with their line."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from paddock import validation
from paddock.fleet.errors import FleetError, Key, Problem, did_you_mean, without_config
from paddock.fleet.model.cluster import NewCluster
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.github import CLEAR_TEXT
from paddock.fleet.stackfile.examples import EXAMPLES
from paddock.fleet.stackfile.scalars import go_text
from paddock.fleet.stackfile.yaml_document import Document
from paddock.fleet.validation import check
from paddock.fleet.validation.cluster import support

FLEET = "paddock:fleet"
LAYERS = "paddock:layers"
REGION = "aws:region"
CREDENTIALS = ("paddock:githubAppKey", "paddock:githubToken")
SUPPRESSIONS = "paddock:suppressions"
KNOWN_KEYS = (FLEET, LAYERS, SUPPRESSIONS, *CREDENTIALS)

EXAMPLE_FLEET = "paddock:fleet: with github, pools and runners"


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


def load(root: Path, name: str, today: date | None = None, content: bytes | None = None) -> Stack:
    """Read `Pulumi.<name>.yaml` in `root`, under what `Pulumi.yaml` configures for every stack.

    `today` decides whether the Kubernetes version is still supported. `content` is read in place of what the file
    holds, to try a change before it is made. Raises FleetError, naming file and line.
    """
    path = _find(root, name)
    document = _document(path) if content is None else Document(path.name, content)
    project_file = _document(root / "Pulumi.yaml")
    project = _project_name(root, project_file)
    raw, lenient = _configuration(document), _project_configuration(project_file, project)
    try:
        config = {**lenient, **_full_keys(raw, project)}
        problems = [*_clear_text(document.data), *_stray_keys(raw), *_dates(document)]
        if problems:
            raise FleetError(problems)
        text = {key: go_text(_ciphertext(value)) for key, value in config.items()}
        values = {key: config[key] for key in (FLEET, LAYERS, REGION) if key in config}
        unsupported = list(_unsupported(values, today or date.today()))
        try:
            fleet = _fleet(values, project, name, document)
        except FleetError as error:
            raise FleetError([*unsupported, *_elsewhere(error.problems, unsupported)]) from None
        if wrong := [*unsupported, *(_placed(problem, {}) for problem in fleet.mirror.not_here(root))]:
            raise FleetError(wrong)
    except FleetError as error:
        raise FleetError(_in_file_order(document, error.problems)) from None
    secrets = frozenset(key for key, value in config.items() if _holds_secret(value))
    return Stack(project, name, path, fleet, text, secrets, partial(_in_file_order, document))


def parse(config: Mapping[str, str], project: str, stack: str) -> Fleet:
    """The fleet in a stack's configuration, as both Pulumi and `load` hand it over: objects as JSON text.

    Raises FleetError whose keys start with `config`.
    """
    values = {key: _decoded(config[key]) for key in (FLEET, LAYERS, REGION) if key in config}
    return _fleet(values, project, stack)


def stack_names(root: Path) -> list[str]:
    """Stacks that have a file in `root`, sorted."""
    files = (path.name for path in root.glob("Pulumi.*.yaml") if path.is_file())
    return sorted(name.removeprefix("Pulumi.").removesuffix(".yaml") for name in files)


def _fleet(values: Mapping[str, Any], project: str, stack: str, document: Document | None = None) -> Fleet:
    """The fleet in the decoded values of the three keys it is made of."""
    if FLEET not in values:
        fix = "the top of docs/configuration.md is a whole one to copy"
        raise FleetError([Problem(("config",), f"{FLEET} is missing", EXAMPLE_FLEET, fix)])
    data = values[FLEET]
    if not isinstance(data, dict):
        expected = "settings by name: github, pools and runners"
        raise FleetError(
            [Problem(("config", FLEET), f"{_kind(data)} is no fleet", expected, "indent the settings below it")]
        )
    problems = [*_region(values, data), *_secret_parts(data)]
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
        problems += _elsewhere([_placed(problem, places) for problem in mistakes], problems)
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


def _secret_parts(data: Any, key: Key = ("config", FLEET)) -> Iterator[Problem]:
    match data:
        case {"secure": str(), **rest} if not rest:
            message = "an encrypted value, which the plan could not read"
            fix = "write it in clear text; credentials go to paddock:githubAppKey or paddock:githubToken"
            yield Problem(key, message, "a value in clear text", fix)
        case dict():
            for name, item in data.items():
                yield from _secret_parts(item, (*key, name))
        case list():
            for index, item in enumerate(data):
                yield from _secret_parts(item, (*key, index))


def _written(document: Document | None) -> Callable[[Key], str | None]:
    """Return a function that gives a value's text in the file: `1.30`, which is the number 1.3."""
    return lambda key: document.written.get(("config", FLEET, *key)) if document else None


def _placed(problem: Problem, places: Mapping[str, Key]) -> Problem:
    """The problem with its key from the top of the stack file."""
    head = str(problem.key[0]) if problem.key else ""
    key = (*places[head], *problem.key[1:]) if head in places else ("config", FLEET, *problem.key)
    return replace(problem, key=key)


def _in_file_order(document: Document, problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, with file and line, and its key without the `config` that all share."""
    located = []
    for problem in problems:
        if not problem.line:
            problem = replace(
                problem, key=without_config(problem.key), file=document.file, line=document.line(problem.key)
            )
        located.append(problem)
    return sorted(dict.fromkeys(located), key=lambda problem: problem.line)


def _unsupported(values: Mapping[str, Any], today: date) -> Iterator[Problem]:
    """Check EKS's support of the cluster's version, as far as the cluster is well-formed and of EKS."""
    match values.get(FLEET):
        case {"cluster": {"kubeconfig": _}}:
            return
        case {"cluster": {"version": str(version), **rest}} if re.fullmatch(r"\d\.\d+", version):
            level: Literal["standard", "extended"] = "extended" if rest.get("support") == "extended" else "standard"
            yield from (_placed(problem, {}) for problem in support(version, level, today))
        case dict():
            default = NewCluster()
            yield from (_placed(problem, {}) for problem in support(default.version, default.support, today))


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
        fix = "make it; the top of docs/configuration.md is a whole one to copy"
        raise FleetError([Problem((), f"there is no stack file in {root}", f"a file Pulumi.{name}.yaml", fix)])
    hint = did_you_mean(name, stacks) or "choose one of these with --stack, or make a file for it"
    raise FleetError([Problem((), f'there is no stack "{name}" in {root}', _one_of(stacks), hint)])


def _document(path: Path) -> Document:
    try:
        return Document(path.name, path.read_bytes())
    except IsADirectoryError:
        problem = Problem((), "this is a folder", "a file", f"move the folder away: {path}", path.name)
    except FileNotFoundError:
        fix = "run from the project's folder, or bring Pulumi.yaml back from git"
        problem = Problem((), f"there is no {path.name} in {path.parent}", "the Pulumi project file", fix)
    except OSError as error:
        problem = Problem((), f"cannot be read: {error.strerror}", "a readable file", f"chmod u+r {path}", path.name)
    raise FleetError([problem])


def _configuration(document: Document) -> dict[str, Any]:
    """Return the mapping under `config:` of a stack file."""
    data = document.data
    expected = f"config: with {REGION} and {FLEET} in it"
    fix = "the top of docs/configuration.md is a whole one to copy"
    if data is None:
        problem = Problem((), "the file is empty", expected, fix)
    elif not isinstance(data, dict):
        problem = Problem((), f"{_kind(data)} is no stack file", expected, fix)
    elif "config" not in data:
        problem = Problem(
            (), "the key config is missing", expected, (did_you_mean("config", data) and _rename("config", data)) or fix
        )
    elif data["config"] is None:
        problem = Problem(("config",), "there is nothing under it", expected, fix)
    elif not isinstance(data["config"], dict):
        problem = Problem(("config",), f"{_kind(data['config'])} is no configuration", expected, fix)
    else:
        config: dict[str, Any] = data["config"]
        return config
    raise FleetError(_in_file_order(document, [problem]))


def _rename(name: str, data: Mapping[str, Any]) -> str:
    near = did_you_mean(name, data).removeprefix("did you mean ").removesuffix("?")
    return f"rename {near} to {name}"


def _project_name(root: Path, document: Document) -> str:
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        fix = "write name: paddock"
        raise FleetError(
            [Problem((), "the project has no name", "name: and the project's name", fix, document.file, 1)]
        )
    for key in ("stackConfigDir", "config"):
        if isinstance(data.get(key), str):
            message = "stack files in another folder are not supported"
            fix = f"move them beside Pulumi.yaml and remove {key}"
            raise FleetError(
                [Problem((key,), message, "stack files beside Pulumi.yaml", fix, document.file, document.line((key,)))]
            )
    return str(data["name"])


def _project_configuration(document: Document, project: str) -> dict[str, Any]:
    """Values that `Pulumi.yaml` gives every stack: plain, as `value:`, or as the `default:` of a declared key."""
    config = document.data.get("config") or {}
    values: dict[str, Any] = {}
    for key, value in _full_keys(config, project).items() if isinstance(config, dict) else ():
        if not isinstance(value, dict):
            values[key] = value
        elif "value" in value or "default" in value:
            values[key] = value.get("value", value.get("default"))
    return values


def _full_keys(config: Mapping[str, Any], project: str) -> dict[str, Any]:
    """`region` is `PROJECT:region`; `aws:config:region` is an old way to write `aws:region`."""
    return {_full_key(key, project): value for key, value in config.items()}


def _full_key(key: str, project: str) -> str:
    parts = key.split(":")
    return (
        f"{project}:{key}"
        if len(parts) == 1
        else f"{parts[0]}:{parts[2]}"
        if parts[1:2] == ["config"] and len(parts) == 3
        else key
    )


def _ciphertext(value: Any) -> Any:
    match value:
        case {"secure": str(ciphertext), **rest} if not rest:
            return ciphertext
        case _:
            return value


def _holds_secret(value: Any) -> bool:
    match value:
        case {"secure": str(), **rest} if not rest:
            return True
        case dict():
            return any(_holds_secret(item) for item in value.values())
        case list():
            return any(_holds_secret(item) for item in value)
        case _:
            return False


def _decoded(text: str) -> Any:
    """The value behind a configuration's text. A map or list comes as JSON; text that only looks like it is text."""
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        return text


def _stray_keys(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys that nothing reads. Other namespaces belong to Pulumi's providers."""
    for key in config:
        parts = key.split(":")
        namespace = parts[0] if len(parts) > 1 else ""
        if len(parts) > 2 and parts[1] != "config":
            yield Problem(
                ("config", key), "a key with more than one colon", "NAMESPACE:NAME", did_you_mean(key, KNOWN_KEYS)
            )
        elif key not in KNOWN_KEYS and (namespace == "paddock" or did_you_mean(key, KNOWN_KEYS, 0.85)):
            yield Problem(("config", key), f'unknown key "{key}"', _one_of(KNOWN_KEYS), did_you_mean(key, KNOWN_KEYS))
        elif key in {"fleet", "layers"}:
            yield Problem(("config", key), f'unknown key "{key}"', _one_of(KNOWN_KEYS), f'write "paddock:{key}"')


def _dates(document: Document) -> Iterator[Problem]:
    """Pulumi turns 2026-01-31 into `2026-01-31 00:00:00 +0000 UTC`, which nobody means."""
    for key in document.dates:
        if key[:1] == ("config",) and len(key) > 1 and str(key[1]).startswith("paddock:"):
            text = document.written[key]
            yield Problem(key, f"{text} is a date, which Pulumi would rewrite", "text", f'write it in quotes: "{text}"')


def _clear_text(data: Any) -> Iterator[Problem]:
    """Find credentials in clear text. Messages never repeat them."""
    for key, value in _texts(data, ()):
        own = str(key[1]) if len(key) == 2 and key[0] == "config" else ""
        if not (CLEAR_TEXT.search(value) or (own in CREDENTIALS and value)):
            continue
        credential = own if own in CREDENTIALS else CREDENTIALS[0 if "PRIVATE KEY" in value else 1]
        kind = "private key" if credential == CREDENTIALS[0] else "token"
        how = " < app.private-key.pem" if credential == CREDENTIALS[0] else ""
        yield Problem(
            key,
            f"a {kind} in clear text: whoever can read this file can use it",
            "an encrypted value (secure: ...)",
            f"take it out, revoke it if it was ever committed, and run: pulumi config set --secret {credential}{how}",
        )


def _texts(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    match value:
        case str():
            yield key, value
        case {"secure": str(), **rest} if not rest:
            return
        case dict():
            for name, item in value.items():
                if CLEAR_TEXT.search(name):
                    yield key, name
                    continue
                yield from _texts(item, (*key, name))
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, (*key, index))


def _one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"


def _kind(value: Any) -> str:
    match value:
        case None:
            return "nothing"
        case bool():
            return "true or false"
        case int() | float():
            return "a number"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a set of settings"
