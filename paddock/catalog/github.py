"""GitHub's side: releases of the runner, and which versions give scale sets labels of their own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping

RUNNER_GRACE_DAYS = 30
"""GitHub gives jobs to a runner for about so many days after its successor is released."""

_TAG = re.compile(r"-runner(\d+\.\d+\.\d+)-[0-9a-f]+$")
_OWN = re.compile(r"(?:^|/)actions-runner:v?(\d+\.\d+\.\d+)$")


@dataclass(frozen=True, slots=True)
class LabelSupport:
    """From `default` on scale sets carry labels; from `minimum` on when the feature `flag` is set."""

    product: Literal["arc", "server"]
    minimum: str
    default: str
    flag: str | None
    source: str


@cache
def runner_releases() -> Mapping[str, date]:
    """The day of every known release of actions/runner, oldest first."""
    rows = _data.rows("github.json", "runners")
    return MappingProxyType({row["version"]: date.fromisoformat(row["released"]) for row in rows})


def runners_read() -> date:
    """The day on which the releases of actions/runner were last looked up: a later one is not known."""
    return date.fromisoformat(_data.document("github.json")["as_of"])


def tag_runner(image: str) -> str | None:
    """The version of actions/runner that an image's tag states: `...-runner2.338.0-<hash>`, or GitHub's own image."""
    name = image.partition("@")[0]
    match = _TAG.search(name) or _OWN.search(name)
    return match[1] if match else None


def runner_successor(version: str) -> tuple[str, date] | None:
    """The first known release after `version`; None when there is none, or `version` itself is not known."""
    if version not in runner_releases():
        return None
    ordered = sorted(runner_releases().items(), key=lambda item: _data.version(item[0]))
    return next((item for item in ordered if _data.version(item[0]) > _data.version(version)), None)


@dataclass(frozen=True, slots=True)
class RunnerAge:
    """Judgement on a version of actions/runner: GitHub gives it jobs, still though `followed`, or no more (`refused`).

    `successor` is the first release after it, of the day `followed_on`; None is what the catalogue does not know.
    """

    verdict: Literal["ok", "followed", "refused", "unknown"]
    message: str
    released: date | None = None
    successor: str | None = None
    followed_on: date | None = None


def runner_age(version: str, today: date) -> RunnerAge:
    """Judge a version of actions/runner on `today`: only a release after it, looked up or not, makes it old."""
    released, successor = runner_releases().get(version), runner_successor(version)
    if released is None:
        newest, day = list(runner_releases().items())[-1]
        return RunnerAge("unknown", f"the catalogue does not know runner {version}; its newest is {newest} of {day}")
    age = f"runner {version} is {(today - released).days} days old"
    if successor:
        name, day = successor
        days = RUNNER_GRACE_DAYS - (today - day).days
        message = (
            f"{age} and was followed by {name} on {day}: GitHub gives it jobs for about {RUNNER_GRACE_DAYS} days after "
            f"that, {f'{days} more' if days >= 0 else f'over for {-days}'}"
        )
        return RunnerAge("followed" if days >= 0 else "refused", message, released, name, day)
    read = max(released, runners_read())
    if (today - read).days <= RUNNER_GRACE_DAYS:  # one that followed on the next day leaves it as many
        return RunnerAge("ok", f"{age} and was the newest on {read}", released)
    message = (
        f"{age}; whether another followed it is not known since {read}, {(today - read).days} days ago: GitHub gives "
        f"it jobs for about {RUNNER_GRACE_DAYS} days after that"
    )
    return RunnerAge("unknown", message, released)


@cache
def label_support(product: Literal["arc", "server"]) -> LabelSupport:
    """Return which versions of a product give scale sets labels."""
    return _data.keyed(LabelSupport, "product", "github.json", "labels")[product]
