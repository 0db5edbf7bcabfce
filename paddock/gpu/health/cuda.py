"""Compatibility of this machine's driver and GPUs with a CUDA toolkit, and the cheapest fix where they do not match."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paddock.gpu.catalog_match import catalog_entry
from paddock.gpu.errors import GpuInputError
from paddock.gpu.model import SCHEMA, Gpu, Inventory

if TYPE_CHECKING:
    from paddock.catalog.cuda_match import Outcome

_WORST_LAST: tuple[Outcome, ...] = ("ok", "minor-version", "unknown", "needs-compat", "impossible")
_VERSION = re.compile(r"\d{1,2}\.\d{1,2}(\.\d{1,3})*", re.ASCII)
_DRIVER = re.compile(r"\d{1,9}(\.\d{1,9})+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that makes the toolkit run: `kind` is the part to change; of several fixes the first is the cheapest."""

    kind: Literal["toolkit", "compat-package", "driver", "gpu"]
    text: str


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """Result for one GPU: `newest` is the newest toolkit all of whose features work on it with this driver."""

    uuid: str | None
    name: str | None
    compute_capability: str | None
    verdict: Outcome
    why: str
    newest: str | None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """Result for the machine. minor-version: runs, without new driver features and without compiling the toolkit's PTX.
    needs-compat: runs only with the forward-compatibility package. unknown: a fact is in no source.
    """

    toolkit: str | None
    path: str | None
    """Folder of the installed toolkit; None where the version was an argument."""
    driver: str | None
    verdict: Outcome
    why: str
    newest: str | None
    """The newest toolkit all of whose features work on all GPUs."""
    fixes: tuple[Fix, ...] = ()
    gpus: tuple[GpuMatch, ...] = ()
    schema: int = SCHEMA


def evaluate(inventory: Inventory, toolkit: str | None = None) -> Compatibility:
    """Evaluate a toolkit version (`12.8`), by default the machine's own. Raises GpuInputError for other text."""
    if toolkit is not None and not _VERSION.fullmatch(toolkit):
        raise GpuInputError(
            f"{toolkit!r} is not a CUDA version\n    expected: a number such as 12.8 or 12.4.1\n"
            f"    fix: one of {', '.join(_versions())}"
        )
    installed = inventory.toolkit if toolkit is None else None
    version = toolkit or (installed.version if installed else None)
    driver = inventory.driver.version if inventory.driver else None
    usable = inventory.usable

    def undecided(why: str, newest: str | None = None) -> Compatibility:
        return Compatibility(version, installed.path if installed else None, driver, "unknown", why, newest)

    if not usable:
        return undecided(inventory.reason or "no GPU of this machine answers")
    if any(gpu.vendor != "nvidia" for gpu in usable):
        return _not_nvidia(inventory, toolkit)
    if driver is None or not _DRIVER.fullmatch(driver):
        return undecided("the driver does not report its version")
    supported = [_fully_supported(gpu, driver) for gpu in usable]
    newest = _newest(frozenset.intersection(*supported))
    if version is None:
        newest_text = f"; its driver {driver} runs all of CUDA {newest}" if newest else ""
        return undecided(f"this machine has no CUDA toolkit{newest_text}", newest)
    if not _VERSION.fullmatch(version):
        return undecided(f"the toolkit of this machine gives its version as {version!r}", newest)
    matches = tuple(_match(gpu, version, driver, _newest(fits)) for gpu, fits in zip(usable, supported, strict=True))
    worst = max(matches, key=lambda match: _WORST_LAST.index(match.verdict))
    fixes = _fixes(inventory, version, driver, worst, newest)
    return Compatibility(
        version, installed.path if installed else None, driver, worst.verdict, worst.why, newest, fixes, matches
    )


def _match(gpu: Gpu, toolkit: str, driver: str, newest: str | None) -> GpuMatch:
    verdict, why = max(_outcomes(gpu, toolkit, driver), key=lambda outcome: _WORST_LAST.index(outcome[0]))
    return GpuMatch(gpu.uuid, gpu.name, gpu.compute_capability, verdict, why, newest)


def _outcomes(gpu: Gpu, toolkit: str, driver: str) -> tuple[tuple[Outcome, str], ...]:
    """Return the outcome for the driver and the outcome for the GPU, each with its reason."""
    from paddock.catalog.cuda_match import on_capability, on_driver, on_gpu

    model, name, capability = catalog_entry(gpu), gpu.name or "a GPU without a name", gpu.compute_capability
    runs = on_driver(toolkit, driver, model)
    if model:
        built = on_gpu(toolkit, model)
    elif capability and _DRIVER.fullmatch(capability):
        built = on_capability(toolkit, capability, name)
    else:
        return (runs.outcome, runs.why), ("unknown", f"{name} does not report its compute capability")
    return (runs.outcome, runs.why), (built.outcome, built.why)


def _fully_supported(gpu: Gpu, driver: str) -> frozenset[str]:
    """Return the toolkits all of whose features work."""
    return frozenset(
        toolkit for toolkit in _versions() if all(outcome == "ok" for outcome, _ in _outcomes(gpu, toolkit, driver))
    )


def _fixes(inventory: Inventory, toolkit: str, driver: str, worst: GpuMatch, newest: str | None) -> tuple[Fix, ...]:
    """Return fixes from the cheapest: changes of an image, then changes of this machine."""
    from paddock.catalog import UnknownCuda, cuda_toolkit
    from paddock.catalog.cuda_match import compat_package, on_driver

    verdict = worst.verdict
    if verdict == "ok":
        return ()
    gpu = next((gpu for gpu in inventory.usable if gpu.uuid == worst.uuid), None)
    needs = on_driver(toolkit, driver, None).needs
    fixes = []
    if verdict == "needs-compat":
        there = inventory.toolkit.compat if inventory.toolkit else None
        package = compat_package(toolkit)
        if there and needs and _version_key(there) >= _version_key(needs):
            path = f"{inventory.toolkit.path}/compat" if inventory.toolkit else ""
            fixes.append(Fix("compat-package", f"{package} is there ({there}): put {path} first in LD_LIBRARY_PATH"))
        else:
            fixes.append(Fix("compat-package", f"install {package} in the image: no reboot, data-centre GPUs only"))
    if newest and newest != toolkit:
        fixes.append(Fix("toolkit", f"use CUDA {newest}, the newest whose features all work here"))
    if needs and verdict != "impossible" and _version_key(driver) < _version_key(needs):
        where = "the host, not of this container" if inventory.machine.container else "this machine"
        fixes.append(Fix("driver", f"upgrade the driver of {where} from {driver} to {needs} or newer, and reboot"))
    if verdict == "impossible" and gpu and not newest:
        try:
            least = cuda_toolkit(toolkit).min_compute_capability
        except UnknownCuda:
            return tuple(fixes)
        fixes.append(Fix("gpu", f"use a GPU of compute capability {least} or newer"))
    return tuple(fixes)


def _not_nvidia(inventory: Inventory, toolkit: str | None) -> Compatibility:
    """Return the result for GPUs of other vendors, which do not run CUDA."""
    vendors = sorted({{"amd": "AMD", "apple": "Apple"}.get(gpu.vendor, "NVIDIA") for gpu in inventory.usable})
    alternative = "Metal (`mps`)" if vendors == ["Apple"] else "ROCm"
    installed = inventory.toolkit if toolkit is None else None
    driver = inventory.driver.version if inventory.driver else None
    problem = f"CUDA runs on NVIDIA GPUs only, and these are of {' and '.join(vendors)}"
    if toolkit:
        fix = Fix("toolkit", f"use a build for {alternative}")
        return Compatibility(toolkit, None, driver, "impossible", problem, None, (fix,))
    why = f"{problem}; the catalogue has no table for {alternative}"
    return Compatibility(
        installed.version if installed else None, installed.path if installed else None, driver, "unknown", why, None
    )


def _newest(versions: frozenset[str]) -> str | None:
    return max(versions, key=_version_key, default=None)


def _version_key(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _versions() -> list[str]:
    from paddock.catalog import cuda_toolkits

    return list(cuda_toolkits())
