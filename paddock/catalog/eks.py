"""EKS: Kubernetes versions, add-ons, and the node images with NVIDIA drivers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data
from paddock.catalog.cuda import driver_limits

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping
    from datetime import date

Support = Literal["standard", "extended", "ended", "unknown"]


@dataclass(frozen=True, slots=True)
class EksVersion:
    """One Kubernetes minor on EKS. Dates are UTC; the support named in a date's field is over on that day."""

    version: str
    released: date
    end_of_standard_support: date
    end_of_extended_support: date | None

    def support_on(self, day: date) -> Support:
        """The support AWS gives, and charges for, on `day`.

        ``unknown`` before the release, and after standard support when the end of extended support is not known.
        """
        if day < self.released:
            return "unknown"
        if day < self.end_of_standard_support:
            return "standard"
        if self.end_of_extended_support is None:
            return "unknown"
        return "extended" if day < self.end_of_extended_support else "ended"


@dataclass(frozen=True, slots=True)
class EksAmi:
    """One x86_64 node image with NVIDIA driver; None is what its source does not say.

    For ``al2023``, `release` is the ``release_version`` of a managed node group (``1.35.6-20260714``) and `tag` the
    suffix of the AMI name. For ``bottlerocket``, `release` is the OS version and `tag` is None.
    """

    os: Literal["al2023", "bottlerocket"]
    kubernetes: str
    release: str
    tag: str | None
    date: date | None
    driver: str | None
    kernel: str | None
    container_toolkit: str | None
    containerd: str | None


@dataclass(frozen=True, slots=True)
class SeveralDrivers:
    """Releases from `since` on hold a driver of each of `branches`, and a node takes one by its instance family."""

    os: Literal["al2023", "bottlerocket"]
    since: str
    branches: tuple[int, ...]
    source: str

    def branch_for(self, families: Collection[str]) -> int | None:
        """The branch that nodes of these families take; None where no source says."""
        limits = [limit for family in families if (limit := driver_limits(family))]
        fitting = [
            branch
            for branch in self.branches
            if all((one.min_branch or 0) <= branch <= (one.max_branch or branch) for one in limits)
        ]
        return fitting[0] if limits and len(fitting) == 1 and len(limits) == len(families) else None


@cache
def several_drivers() -> tuple[SeveralDrivers, ...]:
    """Releases with more than one driver, oldest first."""
    return _data.records(SeveralDrivers, "eks_amis.json", "several_drivers")


def drivers_of(release: str) -> SeveralDrivers | None:
    """The drivers of an EKS release (``1.36.2-20260917``) that has several; None for one with one."""
    day = release.rpartition("-")[2]
    return next((row for row in several_drivers() if row.os == "al2023" and day >= row.since), None)


@cache
def eks_versions() -> Mapping[str, EksVersion]:
    """Every EKS version by minor (``"1.35"``), oldest first."""
    return _data.keyed(EksVersion, "version", "eks_versions.json")


@cache
def eks_addons() -> Mapping[str, Mapping[str, str]]:
    """The newest known version of each EKS add-on by Kubernetes minor: ``eks_addons()["1.36"]["coredns"]``."""
    minors: dict[str, dict[str, str]] = {}
    for row in _data.rows("eks_addons.json"):
        minors.setdefault(row["kubernetes"], {})[row["addon"]] = row["version"]
    return MappingProxyType(minors)


@cache
def eks_amis() -> tuple[EksAmi, ...]:
    """Every known image: by operating system, newest Kubernetes first, newest release first."""
    return _data.records(EksAmi, "eks_amis.json")


def latest_ami(kubernetes: str, os: Literal["al2023", "bottlerocket"] = "al2023") -> EksAmi | None:
    """The newest known image for a Kubernetes minor, None when there is none."""
    return next((ami for ami in eks_amis() if ami.os == os and ami.kubernetes == kubernetes), None)
