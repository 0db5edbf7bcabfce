"""Known faults of versions, and which version is the first to follow a setting that a fleet writes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal

from paddock.catalog import _data

FILE = "versions.json"
Severity = Literal["error", "warning", "info"]
EKS_RELEASE = re.compile(r"1\.\d+\.\d+-(\d{8})")


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of a software's versions from `since` on, `until` the first without it, where that is known.

    It takes all of `settings`, one of the instance `families` where it names some, and of each software in `used_with`
    a version from the first named up to the second.
    """

    software: str
    since: str
    until: str | None
    settings: tuple[str, ...]
    families: tuple[str, ...]
    used_with: Mapping[str, Sequence[str]]
    breaks: str
    severity: Severity
    source: str

    def hits(
        self, version: str, settings: Collection[str], families: Collection[str], used_with: Mapping[str, str]
    ) -> bool:
        """Return whether a version has the fault, with those settings, on those families, with those other versions."""
        return (
            order(self.since) <= order(version)
            and (self.until is None or order(version) < order(self.until))
            and set(self.settings) <= set(settings)
            and (not self.families or not set(self.families).isdisjoint(families))
            and all(
                name in used_with and order(first) <= order(used_with[name]) < order(end)
                for name, (first, end) in self.used_with.items()
            )
        )


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that versions of a software follow from `since` on, None for all; an older one does `without`."""

    setting: str
    software: str
    since: str | None
    without: str
    severity: Severity
    source: str


@cache
def faults() -> tuple[Fault, ...]:
    """Every known fault."""
    return _data.records(Fault, FILE, "faults")


@cache
def settings() -> tuple[Setting, ...]:
    """Every setting with the version that follows it first."""
    return _data.records(Setting, FILE, "settings")


@cache
def fault_sources() -> Mapping[str, _data.Source]:
    """The sources of both by key."""
    stamp = next(stamp for stamp in _data.stamps() if stamp.file == FILE)
    return MappingProxyType({source.key: source for source in stamp.sources})


def known_faults(
    software: str,
    version: str,
    settings: Collection[str] = (),
    families: Collection[str] = (),
    used_with: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Fault]:
    """Yield the faults of a version (``al2023``, ``1.35.4-20260505``); none of a software that is in no row."""
    for fault in faults():
        if fault.software == software and fault.hits(version, settings, families, used_with):
            yield fault


def not_followed(software: str, version: str, used: Collection[str]) -> Iterator[Setting]:
    """Yield the settings among `used` that a version is too old for."""
    for row in settings():
        if row.software == software and row.setting in used and row.since and order(version) < order(row.since):
            yield row


@cache
def order(version: str) -> tuple[int, ...]:
    """A version for comparison: its numbers; of an EKS release its day, as the first part is Kubernetes's version."""
    release = EKS_RELEASE.fullmatch(version)
    return tuple(map(int, re.findall(r"\d+", release[1] if release else version)))
