"""Reads a stack file the way Pulumi does, and says in which line a mistake is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from paddock.fleet.errors import FleetError, Key, Problem, did_you_mean
from paddock.fleet.fleet import Fleet
from paddock.fleet.github import CLEAR_TEXT
from paddock.fleet.messages import from_pydantic

FLEET = "paddock:fleet"
KNOWN_KEYS = (FLEET, "paddock:layers", "paddock:githubAppKey", "paddock:githubToken")


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


def load(root: Path, name: str, today: date | None = None) -> Stack:
    """Reads `Pulumi.<name>.yaml` in `root`.

    `today` decides whether the Kubernetes version is still supported. Raises FleetError, naming file and line.
    """
    path = _find(root, name)
    text = path.read_text(encoding="utf-8")
    document = _Document(path.name, text)
    try:
        project = _project(root)
        config = document.data.get("config") if isinstance(document.data, dict) else None
        if not isinstance(config, dict):
            raise FleetError([Problem(("config",), "there is no configuration", f"config: with {FLEET} in it")])
        plain, secrets = _as_pulumi(config, project)
        problems = [*_clear_text(document.data), *_stray_keys(plain)]
        if problems:
            raise FleetError(problems)
        fleet = parse(plain, project, name)
        fleet_problems = _dated(fleet, today or date.today())
        if fleet_problems:
            raise FleetError(fleet_problems)
    except FleetError as error:
        raise FleetError(document.locate(problem) for problem in error.problems) from None
    return Stack(project, name, path, fleet, plain, secrets)


def parse(config: Mapping[str, str], project: str, stack: str) -> Fleet:
    """The fleet in a stack's configuration, as both Pulumi and `load` hand it over: objects as JSON text.

    Raises FleetError whose keys start with `config`.
    """
    text = config.get(FLEET)
    if text is None:
        raise FleetError([Problem(("config",), f"{FLEET} is missing", f"{FLEET}: with github, pools and runners")])
    data = json.loads(text) if text[:1] in "{[" else text
    if not isinstance(data, dict):
        raise FleetError([Problem(("config", FLEET), "not a fleet", "github, pools and runners, each with its settings")])
    region = config.get("aws:region")
    if region is None and "region" not in data:
        fix = "write aws:region: us-west-2"
        raise FleetError([Problem(("config",), "aws:region is missing", "the AWS region of the fleet", fix)])
    layers = config.get("paddock:layers")
    defaults: dict[str, Any] = {"name": f"{project}-{stack}", "region": region}
    if layers is not None:
        defaults["layers"] = json.loads(layers) if layers[:1] in "{[" else layers
    elsewhere = {part for part, value in defaults.items() if part not in data and value is not None}
    merged = {**{part: defaults[part] for part in elsewhere}, **data}
    places = {"region": ("config", "aws:region"), "layers": ("config", "paddock:layers")}
    places = {part: key for part, key in places.items() if part in elsewhere}
    if region is not None and merged["region"] != region:
        fix = "leave region out of the fleet"
        raise FleetError([Problem(("config", FLEET, "region"), f"aws:region is {region}", "one region", fix)])
    try:
        return Fleet.model_validate(merged, strict=True)
    except ValidationError as error:
        found = from_pydantic(error)
    except FleetError as error:
        found = list(error.problems)
    raise FleetError(_placed(problem, places) for problem in found)


def _placed(problem: Problem, places: Mapping[str, Key]) -> Problem:
    """The problem with its key from the top of the stack file."""
    head = problem.key[0] if problem.key else ""
    key = (*places[head], *problem.key[1:]) if head in places else ("config", FLEET, *problem.key)
    return Problem(key, problem.message, problem.expected, problem.fix)


def _dated(fleet: Fleet, today: date) -> list[Problem]:
    try:
        fleet.check_support(today)
    except FleetError as error:
        return [_placed(problem, {}) for problem in error.problems]
    return []


def _find(root: Path, name: str) -> Path:
    path = root / f"Pulumi.{name}.yaml"
    if re.fullmatch(r"[\w.-]+", name) and path.is_file():
        return path
    stacks = stack_names(root)
    if not stacks:
        fix = f"make {path.name}; docs/configuration.md says what goes into it"
        raise FleetError([Problem((), f"there is no stack file in {root}", f"a file {path.name}", fix)])
    hint = did_you_mean(name, stacks) or f"make Pulumi.{name}.yaml, or choose one of these with --stack"
    raise FleetError([Problem((), f'there is no stack "{name}"', f"one of {', '.join(stacks)}", hint)])


def stack_names(root: Path) -> list[str]:
    """Stacks that have a file in `root`, sorted."""
    return sorted(path.name.removeprefix("Pulumi.").removesuffix(".yaml") for path in root.glob("Pulumi.*.yaml"))


def _project(root: Path) -> str:
    path = root / "Pulumi.yaml"
    data = _Document(path.name, path.read_text(encoding="utf-8")).data if path.is_file() else None
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        raise FleetError([Problem((), f"{path} does not name the project", "a Pulumi project file with name:")])
    return str(data["name"])


def _as_pulumi(config: Mapping[str, Any], project: str) -> tuple[dict[str, str], frozenset[str]]:
    """Full key -> text as `pulumi.Config` sees it, and which keys are secret."""
    plain: dict[str, str] = {}
    secrets: set[str] = set()
    for key, value in config.items():
        full = str(key) if ":" in str(key) else f"{project}:{key}"
        match value:
            case {"secure": str(ciphertext), **rest} if not rest:
                plain[full] = ciphertext
                secrets.add(full)
            case dict() | list():
                plain[full] = json.dumps(value)
                if '"secure":' in plain[full]:
                    secrets.add(full)
            case bool():
                plain[full] = "true" if value else "false"
            case None:
                plain[full] = ""
            case _:
                plain[full] = str(value)
    return plain, frozenset(secrets)


def _stray_keys(config: Mapping[str, str]) -> Iterator[Problem]:
    for key in config:
        if key.startswith("paddock:") and key not in KNOWN_KEYS:
            expected = f"one of {', '.join(KNOWN_KEYS)}"
            yield Problem(("config", key), f'unknown key "{key}"', expected, did_you_mean(key, KNOWN_KEYS))


def _clear_text(data: Any) -> Iterator[Problem]:
    """Credentials pasted where everyone who can read the repository reads them."""
    for key, value in _texts(data, ()):
        config_key = str(key[1]) if len(key) > 1 else ""
        if CLEAR_TEXT.search(value) or (len(key) == 2 and config_key in {"paddock:githubAppKey", "paddock:githubToken"}):
            wanted = "paddock:githubAppKey" if "PRIVATE KEY" in value or config_key.endswith("AppKey") else "paddock:githubToken"
            yield Problem(
                key,
                "a credential in clear text",
                "an encrypted value (secure: ...)",
                f"take it out, revoke it if it was ever pushed, and run: pulumi config set --secret {wanted}",
            )


def _texts(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    match value:
        case str():
            yield key, value
        case {"secure": str(), **rest} if not rest:
            return
        case dict():
            for name, item in value.items():
                yield from _texts(item, (*key, str(name)))
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, (*key, index))


class _Yaml(yaml.SafeLoader):
    """YAML as Go reads it: `on`, `yes` and dates are text."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith((":bool", ":timestamp", ":int"))]
        for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }  # fmt: skip


_Yaml.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(true|True|TRUE|false|False|FALSE)$"), list("tTfF"))
_Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(0|[1-9][0-9_]*|0x[0-9a-fA-F_]+)$"), list("-+0123456789")
)


class _Document:
    """A YAML file that remembers the line of every key."""

    def __init__(self, file: str, text: str) -> None:
        self.file = file
        loader = _Yaml(text)
        try:
            node = loader.get_single_node()
            self._lines: dict[Key, int] = {(): 1}
            self._walk(node, ())
            self.data: Any = loader.construct_document(node) if node is not None else None
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            what = " ".join(part for part in (error.problem, error.context) if part)
            problem = Problem((), f"not valid YAML: {what}", "YAML", "check quotes, brackets and indentation near this line")
            raise FleetError([problem.located(file, mark.line + 1 if mark else 1)]) from None
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            problem = Problem((), f"not valid YAML: {error.reason}", "text in UTF-8 without control characters")
            raise FleetError([problem.located(file, line)]) from None

    def _walk(self, node: yaml.Node | None, key: Key) -> None:
        if isinstance(node, yaml.MappingNode):
            for name, value in node.value:
                inner = (*key, str(name.value))
                line = name.start_mark.line + 1
                if inner in self._lines and self._lines[inner] != line and name.tag != "tag:yaml.org,2002:merge":
                    problem = Problem(inner, f"written twice (first in line {self._lines[inner]})", "one value", "remove one")
                    raise FleetError([problem.located(self.file, line)])
                self._lines[inner] = line
                self._walk(value, inner)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                self._lines[(*key, index)] = value.start_mark.line + 1
                self._walk(value, (*key, index))

    def locate(self, problem: Problem) -> Problem:
        """The problem with file and line: of its key, or of the nearest key above that is written."""
        if problem.file or not problem.key:
            return problem if problem.file else problem.located(self.file, 0)
        key = problem.key
        while key not in self._lines:
            key = key[:-1]
        shown = problem.key[1:] if problem.key[0] == "config" and len(problem.key) > 1 else problem.key
        return Problem(shown, problem.message, problem.expected, problem.fix, self.file, self._lines[key])
