"""The configuration of a stack file and of `Pulumi.yaml`: which keys there are, and under which full names."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.errors import UNPRINTABLE
from paddock.fleet.errors import FleetError, Key, Problem, did_you_mean, without_config
from paddock.fleet.stackfile.yaml_document import Document

FLEET = "paddock:fleet"
LAYERS = "paddock:layers"
REGION = "aws:region"
CREDENTIALS = (
    "paddock:githubAppKey",
    "paddock:githubToken",
    "paddock:servingKeys",
    "paddock:rayToken",
    "paddock:redisPassword",
)
"""Keys of encrypted values; the first is a private key."""
SUPPRESSIONS = "paddock:suppressions"
KNOWN_KEYS = (FLEET, LAYERS, SUPPRESSIONS, *CREDENTIALS, REGION)

EXAMPLE_FLEET = "paddock:fleet: with github, pools and runners"
EXAMPLES: dict[str, str] = json.loads(Path(__file__).with_name("examples.json").read_bytes())
"""Of required keys, for the messages about those that are missing."""


def read_document(path: Path) -> Document:
    try:
        return Document(path.name, path.read_bytes())
    except IsADirectoryError:
        problem = Problem((), "this is a folder", "a file", f"move the folder away: {path}", path.name)
    except FileNotFoundError:
        fix = "run from the project's folder, or restore Pulumi.yaml from git"
        problem = Problem((), f"there is no {path.name} in {path.parent}", "the Pulumi project file", fix)
    except OSError as error:
        problem = Problem((), f"cannot be read: {error.strerror}", "a readable file", f"chmod u+r {path}", path.name)
    raise FleetError([problem])


def accounts(text: str) -> set[str]:
    """Return the AWS accounts in a value such as that of `aws:allowedAccountIds`: one, or a list of them as JSON."""
    try:
        value = json.loads(text or "[]")
    except ValueError:
        value = text
    return set(map(str, value if isinstance(value, list) else [value]))


def section(document: Document) -> dict[str, Any]:
    """Return the mapping under `config:` of a stack file."""
    data = document.data
    expected = f"config: with {REGION} and {FLEET} in it"
    fix = "the top of docs/configuration.md has a complete one to copy"
    if data is None:
        problem = Problem((), "the file is empty", expected, fix)
    elif not isinstance(data, dict):
        problem = Problem((), f"{kind_of(data)} is not a stack file", expected, fix)
    elif "config" not in data:
        problem = Problem(
            (), "the key config is missing", expected, (did_you_mean("config", data) and _rename("config", data)) or fix
        )
    elif data["config"] is None:
        problem = Problem(("config",), "there is nothing under it", expected, fix)
    elif not isinstance(data["config"], dict):
        problem = Problem(("config",), f"{kind_of(data['config'])} is not a configuration", expected, fix)
    else:
        config: dict[str, Any] = data["config"]
        return config
    raise FleetError(in_file_order(document, [problem]))


def project_name(root: Path, document: Document) -> str:
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("name"), str):
        fix = "write name: paddock"
        raise FleetError(
            [Problem((), "the project has no name", "name: and the project's name", fix, document.file, 1)]
        )
    for key in ("stackConfigDir", "config"):
        if isinstance(data.get(key), str):
            message = "stack files in another folder are not supported"
            fix = f"move them next to Pulumi.yaml and remove {key}"
            raise FleetError(
                [Problem((key,), message, "stack files next to Pulumi.yaml", fix, document.file, document.line((key,)))]
            )
    return str(data["name"])


def project_configuration(document: Document, project: str) -> dict[str, Any]:
    """Values that `Pulumi.yaml` gives every stack: plain, as `value:`, or as the `default:` of a declared key."""
    config = document.data.get("config") or {}
    values: dict[str, Any] = {}
    for key, value in full_keys(config, project).items() if isinstance(config, dict) else ():
        if not isinstance(value, dict):
            values[key] = value
        elif "value" in value or "default" in value:
            values[key] = value.get("value", value.get("default"))
    return values


def full_keys(config: Mapping[str, Any], project: str) -> dict[str, Any]:
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


def decoded(text: str) -> Any:
    """The value behind a configuration's text. A map or list comes as JSON; text that only looks like it is text."""
    try:
        return json.loads(text) if text[:1] in ("{", "[") else text
    except (ValueError, RecursionError):
        return text


def stray_keys(config: Mapping[str, Any]) -> Iterator[Problem]:
    """Keys that nothing reads. Other namespaces belong to Pulumi's providers."""
    for key in config:
        parts = key.split(":")
        namespace = parts[0] if len(parts) > 1 else ""
        if len(parts) > 2 and parts[1] != "config":
            yield Problem(
                ("config", key), "a key with more than one colon", "NAMESPACE:NAME", did_you_mean(key, KNOWN_KEYS)
            )
        elif key not in KNOWN_KEYS and (namespace == "paddock" or did_you_mean(key, KNOWN_KEYS, 0.85)):
            yield Problem(("config", key), f'unknown key "{key}"', one_of(KNOWN_KEYS), did_you_mean(key, KNOWN_KEYS))
        elif key in {"fleet", "layers", "region"}:
            full = REGION if key == "region" else f"paddock:{key}"
            yield Problem(("config", key), f'unknown key "{key}"', one_of(KNOWN_KEYS), f'write "{full}"')


def unquoted_dates(document: Document) -> Iterator[Problem]:
    """Pulumi turns 2026-01-31 into `2026-01-31 00:00:00 +0000 UTC`, which nobody means."""
    for key in document.dates:
        if key[:1] == ("config",) and len(key) > 1 and str(key[1]).startswith("paddock:"):
            text = document.written[key]
            yield Problem(key, f"{text} is a date, which Pulumi would rewrite", "text", f'write it in quotes: "{text}"')


def unprintable(data: Any, key: Key = ("config", FLEET)) -> Iterator[Problem]:
    """Characters that nobody can see, in names and in texts: they end up in labels, names and terminals."""
    match data:
        case str():
            if odd := UNPRINTABLE.search(data):
                message = f"there is an invisible character: U+{ord(odd[0]):04X}"
                yield Problem(key, message, "readable text", "remove it, or type the text again")
        case dict():
            for name, item in data.items():
                yield from unprintable(name, (*key, name))
                yield from unprintable(item, (*key, name))
        case list():
            for index, item in enumerate(data):
                yield from unprintable(item, (*key, index))


def in_file_order(document: Document, problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, with file and line, and its key without the `config` that all share."""
    located = []
    for problem in problems:
        if not problem.line:
            problem = replace(
                problem, key=without_config(problem.key), file=document.file, line=document.line(problem.key)
            )
        located.append(problem)
    return sorted(dict.fromkeys(located), key=lambda problem: problem.line)


def _rename(name: str, data: Mapping[str, Any]) -> str:
    near = did_you_mean(name, data).removeprefix("did you mean ").removesuffix("?")
    return f"rename {near} to {name}"


def one_of(names: Iterable[str]) -> str:
    return f"one of {', '.join(names)}"


def kind_of(value: Any) -> str:
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
