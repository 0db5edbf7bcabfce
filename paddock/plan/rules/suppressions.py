"""Exceptions from the rules, as a stack file states them: which rule, for what, why, and until when."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from paddock.fleet.errors import FleetError, Key, Problem, did_you_mean
from paddock.fleet.stackfile.configuration import SUPPRESSIONS
from paddock.plan.finding import current_id
from paddock.plan.rules.base import Violation

LONGEST = timedelta(days=366)
"""From today until an exception's last day: one that nobody looks at again within a year is a rule switched off."""
LEAST_REASON = 10
"""Characters. Anything shorter is "ok" or "todo"."""
_KEYS = ("rule", "resource", "reason", "expires")
EXAMPLE = (
    '{rule: PAD013, resource: gpu-ami-builder, reason: "builds fetch from mirrors on odd ports", expires: "2027-01-31"}'
)


@dataclass(frozen=True, slots=True)
class Suppression:
    """An accepted exception."""

    written: str
    """Id of the rule as the stack file has it."""
    resource: str
    """Name or URN of a resource, or path of a file; `*` stands for anything."""
    reason: str
    expires: date
    """Last day it holds."""
    index: int = 0
    """Where it is in the list."""

    @property
    def rule(self) -> str:
        """The rule's id of today."""
        return current_id(self.written)

    def covers(self, rule: str, violation: Violation) -> bool:
        return rule == self.rule and (
            fnmatch.fnmatchcase(violation.subject, self.resource) or violation.urn == self.resource != ""
        )


def parse(config: Mapping[str, str], rules: frozenset[str], today: date) -> tuple[Suppression, ...]:
    """Return the suppressions in a stack's configuration. Raises FleetError with every mistake in them."""
    text = config.get(SUPPRESSIONS, "[]")
    top: Key = ("config", SUPPRESSIONS)
    try:
        written = json.loads(text)
    except (ValueError, RecursionError):
        written = text
    if not isinstance(written, list):
        raise FleetError(
            [Problem(top, "not a list of suppressions", f"a list such as [{EXAMPLE}]", "begin each with a dash")]
        )
    problems: list[Problem] = []
    accepted: list[Suppression] = []
    for index, entry in enumerate(written):
        wrong = list(_problems(entry, (*top, index), rules, today))
        problems += wrong
        if not wrong:
            expires = date.fromisoformat(entry["expires"])
            accepted.append(Suppression(entry["rule"], entry["resource"], entry["reason"].strip(), expires, index))
    if problems:
        raise FleetError(problems)
    return tuple(accepted)


def _problems(entry: Any, key: Key, rules: frozenset[str], today: date) -> Iterator[Problem]:
    if not isinstance(entry, dict):
        yield Problem(key, "not a suppression", EXAMPLE)
        return
    for name in entry:
        if name not in _KEYS:
            hint = did_you_mean(str(name), _KEYS) or f"take {name} out"
            yield Problem((*key, str(name)), f'unknown key "{name}"', f"one of {', '.join(_KEYS)}", hint)
    for name in _KEYS:
        if name not in entry:
            yield Problem(key, f"{name} is missing", EXAMPLE, f"add {name}")
        elif not isinstance(entry[name], str) or not entry[name].strip():
            yield Problem((*key, name), f"{name} must be text", EXAMPLE, f'write it in quotes: {name}: "..."')
    rule, reason, expires = (
        entry.get(name) if isinstance(entry.get(name), str) else "" for name in ("rule", "reason", "expires")
    )
    if rule and current_id(rule) not in rules:
        hint = did_you_mean(rule, rules) or "docs/rules.md lists them"
        yield Problem((*key, "rule"), f'there is no rule "{rule}"', "an id such as PAD013", hint)
    if reason and reason.strip() and len(reason.strip()) < LEAST_REASON:
        yield Problem(
            (*key, "reason"),
            f'"{reason}" is not a reason',
            "why this is acceptable here, in a sentence",
            "say who decided and why",
        )
    if expires and expires.strip():
        yield from _expiry(expires, (*key, "expires"), today)


def _expiry(text: str, key: Key, today: date) -> Iterator[Problem]:
    try:
        # Only the long form: fromisoformat also takes 20270131 and 2027-W04-7.
        end = date.fromisoformat(text) if len(text) == 10 and text[4] == text[7] == "-" else None
    except ValueError:
        end = None
    if end is None:
        yield Problem(key, f'"{text}" is not a date', "YYYY-MM-DD", 'such as expires: "2027-01-31"')
    elif end > today + LONGEST:
        yield Problem(
            key,
            f"it would last until {end}, more than a year from today",
            f"a day until {today + LONGEST}",
            f'write expires: "{today + LONGEST}", and decide again then',
        )
    elif end < today:
        yield Problem(
            key,
            f"it expired on {end}",
            "a day from today on",
            "correct what it excuses and remove it, or decide again and move the date",
        )
