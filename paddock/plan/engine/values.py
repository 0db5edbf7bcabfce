"""Values of a plan that are not plain data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from paddock.fleet.model.github import GITHUB_TOKEN

UNKNOWN = "<unknown>"
"""Known only once the cloud has made the thing it comes from."""
SECRET = "<secret>"  # noqa: S105 - shown in place of one


@dataclass(frozen=True, slots=True)
class Secret:
    """A value that Pulumi keeps encrypted. It is never printed."""

    value: Any

    def __repr__(self) -> str:
        return SECRET


@dataclass(frozen=True, slots=True)
class Ref:
    """Another resource, passed whole."""

    urn: str


_CREDENTIAL = re.compile(
    r"((^|_)(TOKEN|SECRET|SECRET_ACCESS_KEY|PRIVATE_KEY|API_?KEY|CREDENTIALS?)|PASSWORD|PASSWD|_PWD)$", re.I
)
"""Names of environment variables that hold credentials."""
KEYS = (
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    rf"|\b(?:{GITHUB_TOKEN}|hf_[A-Za-z0-9]{{30,}}|glpat-[\w-]{{20,}}|xox[abprs]-[\w-]{{10,}}|sk-[\w-]{{20,}})"
)
"""Pattern of what is a credential wherever it stands: keys of AWS, tokens of GitHub, GitLab, Hugging Face and Slack."""
_HELD = re.compile(rf"{KEYS}|://[^/\s:@]*:[^/\s@$]+@(?!sha256:)")
"""A credential, or an address with a password in it."""
_VARIABLE = re.compile(r"\bname[\"']?: *[\"']?(\w+)")


_LISTS = (list, tuple)
_PLAIN = {int, float, bool, type(None)}
_MAPPINGS = (dict, Mapping)  # dict first: most are, and the abstract class is slow to ask


def is_credential(name: str, value: str) -> bool:
    """Return true if a variable's name or its value says that it holds a credential."""
    return bool(_CREDENTIAL.search(name) or _HELD.search(value))


def redact(value: Any) -> Any:
    """Plain data for people and JSON: secrets hidden, references as URNs.

    A credential in an environment is hidden too, also in a pod that is written as YAML.
    """
    kind = type(value)
    if kind is str:  # first, as most are
        credential = "name" in value and (any(map(_CREDENTIAL.search, _VARIABLE.findall(value))) or _HELD.search(value))
        return _redact_yaml(value) if credential else value
    if kind in _PLAIN:
        return value
    if kind is list:  # asked before the abstract class, which is slow
        return [redact(item) for item in value]
    if isinstance(value, _MAPPINGS):
        if "name" in value and "value" in value:
            name, text = value["name"], value["value"]
            if isinstance(name, str) and isinstance(text, str) and is_credential(name, text):
                rest = {key: item for key, item in value.items() if key not in ("name", "value")}
                return {**redact(rest), "name": name, "value": SECRET}
        return {key: redact(item) for key, item in value.items()}
    if isinstance(value, _LISTS):
        return [redact(item) for item in value]
    if isinstance(value, Secret):
        return SECRET
    return value.urn if isinstance(value, Ref) else value


def _redact_yaml(text: str) -> str:
    try:
        document = yaml.safe_load(text)
        return yaml.safe_dump(redact(document), sort_keys=True) if isinstance(document, dict | list) else text
    except (yaml.YAMLError, ValueError, RecursionError):
        return SECRET  # what cannot be read cannot be shown in part


def is_plain(value: Any) -> bool:
    """Return whether a value is text, a number, a switch or nothing, or lists and maps of those."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(is_plain, value.values()))
    return all(map(is_plain, value)) if kind is list else kind is str or kind in _PLAIN


def shallow(value: Any, deepest: int) -> bool:
    """Return whether lists and maps are nested at most `deepest` levels."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > deepest:
            return False
        level = [
            child
            for item in level
            for child in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
        ]
    return True
