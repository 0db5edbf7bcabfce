"""CUDA toolkits and the drivers that run them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date


class UnknownCuda(_data.UnknownName):
    """No CUDA toolkit of that version; `suggestions` are the nearest versions."""

    kind = "CUDA toolkit"


@dataclass(frozen=True, slots=True)
class CudaToolkit:
    """One minor release of the CUDA toolkit.

    `driver` is the Linux driver bundled with its first release: from there every feature works. `updates` are the
    drivers of update 1, 2, ... `minimum_driver` is the floor of the whole major (minor-version compatibility): down to
    there programs run, without new driver features and without compiling PTX from a newer toolkit.
    None is not known. The compute-capability range is that of the compiler.
    """

    version: str
    driver: str | None
    updates: tuple[str, ...]
    minimum_driver: str
    min_compute_capability: str
    max_compute_capability: str | None


@dataclass(frozen=True, slots=True)
class DriverBranch:
    """One driver branch (580 is R580). `max_cuda` is the CUDA version the driver itself supports.

    `end_of_support` is the last day of the month NVIDIA names, None when not known.
    """

    branch: int
    kind: Literal["lts", "production", "new-feature"]
    max_cuda: str
    end_of_support: date | None
    min_compute_capability: str
    note: str | None

    def drives(self, compute_capability: str) -> bool:
        """Return whether the branch still drives GPUs of that compute capability (by age; see `note` for cards)."""
        return _data.version(compute_capability) >= _data.version(self.min_compute_capability)


@cache
def cuda_toolkits() -> Mapping[str, CudaToolkit]:
    """Every toolkit by minor version (``"12.8"``), oldest first."""
    floors = {row["major"]: row["minimum_driver"] for row in _data.rows("cuda.json", "majors")}
    return MappingProxyType(
        {
            row["version"]: CudaToolkit(
                **row | {"updates": tuple(row["updates"]), "minimum_driver": floors[_data.version(row["version"])[0]]}
            )
            for row in _data.rows("cuda.json", "toolkits")
        }
    )


@cache
def _older_toolkits() -> Mapping[str, CudaToolkit]:
    """Toolkits before those of `cuda_toolkits`: their bundled drivers are not known, and nothing offers them."""
    return MappingProxyType(
        {row["version"]: CudaToolkit(driver=None, updates=(), **row) for row in _data.rows("cuda.json", "older")}
    )


def cuda_toolkit(version: str) -> CudaToolkit:
    """The toolkit of that version, also one too old to be offered; an update (``"12.4.1"``) is its minor.

    Raises UnknownCuda with the nearest ones.
    """
    minor = ".".join(version.split(".")[:2])
    toolkit = cuda_toolkits().get(minor) or _older_toolkits().get(minor)
    if toolkit is None:
        raise UnknownCuda(version, cuda_toolkits())
    return toolkit


@cache
def driver_branches() -> Mapping[int, DriverBranch]:
    """Every driver branch by number, oldest first."""
    return _data.keyed(DriverBranch, "branch", "cuda.json", "branches")


def driver_branch(driver: str) -> DriverBranch | None:
    """The branch of a driver version (``"580.159.03"``), None for a branch the catalogue does not hold."""
    return driver_branches().get(_data.version(driver)[0])


@dataclass(frozen=True, slots=True)
class DriverLimits:
    """The driver branches that drive an EC2 instance family; None: no source names a limit."""

    family: str
    min_branch: int | None
    max_branch: int | None
    source: str


@cache
def driver_limits(family: str) -> DriverLimits | None:
    """The limits of an instance family (``"g7"``); None when no source names any."""
    return _data.keyed(DriverLimits, "family", "cuda.json", "families").get(family)
