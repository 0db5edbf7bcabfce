"""Whether this machine's driver and GPUs run a CUDA toolkit, and the cheapest thing to do where they do not."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paddock.gpu.catalog_match import known
from paddock.gpu.errors import GpuInputError
from paddock.gpu.model import Gpu, Inventory

if TYPE_CHECKING:
    from paddock.catalog.cuda_match import Outcome

SCHEMA = 1
_RANK: tuple[Outcome, ...] = ("ok", "minor-version", "unknown", "needs-compat", "impossible")
_VERSION = re.compile(r"\d{1,2}\.\d{1,2}(\.\d{1,3})*", re.ASCII)
_DRIVER = re.compile(r"\d{1,9}(\.\d{1,9})+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Fix:
    """`kind` says what has to change; the first of several fixes is the cheapest."""

    kind: Literal["toolkit", "compat-package", "driver", "gpu"]
    text: str


@dataclass(frozen=True, slots=True)
class GpuMatch:
    """`newest` is the newest toolkit of which every feature works on this GPU with this driver."""

    uuid: str | None
    name: str | None
    compute_capability: str | None
    verdict: Outcome
    why: str
    newest: str | None


@dataclass(frozen=True, slots=True)
class Compatibility:
    """minor-version: runs, without new driver features and without compiling PTX of the toolkit. needs-compat: runs
    with the forward-compatibility package alone. unknown: some fact is in no source.
    """

    toolkit: str | None
    path: str | None
    """Where the toolkit was found; None where it was asked about."""
    driver: str | None
    verdict: Outcome
    why: str
    newest: str | None
    """The newest toolkit of which every feature works on all GPUs."""
    fixes: tuple[Fix, ...] = ()
    gpus: tuple[GpuMatch, ...] = ()
    schema: int = SCHEMA


def judge(inventory: Inventory, toolkit: str | None = None) -> Compatibility:
    """Of the toolkit named (`12.8`, `12.4.1`), else of the machine's own. Raises GpuInputError for no version."""
    if toolkit is not None and not _VERSION.fullmatch(toolkit):
        raise GpuInputError(
            f"{toolkit!r} is no CUDA version\n    expected: a number such as 12.8 or 12.4.1\n"
            f"    fix: one of {', '.join(_versions())}"
        )
    found = inventory.toolkit if toolkit is None else None
    wanted = toolkit or (found.version if found else None)
    driver = inventory.driver.version if inventory.driver else None
    usable = inventory.usable

    def unknown(why: str, newest: str | None = None) -> Compatibility:
        return Compatibility(wanted, found.path if found else None, driver, "unknown", why, newest)

    if not usable:
        return unknown(inventory.reason or "no GPU of this machine answers")
    if any(gpu.vendor != "nvidia" for gpu in usable):
        return _elsewhere(inventory, toolkit)
    if driver is None or not _DRIVER.fullmatch(driver):
        return unknown("the driver does not tell its version")
    full = [_full(gpu, driver) for gpu in usable]
    newest = _last(frozenset.intersection(*full))
    if wanted is None:
        upto = f"; its driver {driver} runs all of CUDA {newest}" if newest else ""
        return unknown(f"this machine has no CUDA toolkit{upto}", newest)
    if not _VERSION.fullmatch(wanted):
        return unknown(f"the toolkit of this machine says of itself that it is {wanted!r}", newest)
    matches = tuple(_match(gpu, wanted, driver, _last(fits)) for gpu, fits in zip(usable, full, strict=True))
    worst = max(matches, key=lambda match: _RANK.index(match.verdict))
    fixes = _fixes(inventory, wanted, driver, worst, newest)
    return Compatibility(
        wanted, found.path if found else None, driver, worst.verdict, worst.why, newest, fixes, matches
    )


def _match(gpu: Gpu, toolkit: str, driver: str, newest: str | None) -> GpuMatch:
    verdict, why = max(_judged(gpu, toolkit, driver), key=lambda judged: _RANK.index(judged[0]))
    return GpuMatch(gpu.uuid, gpu.name, gpu.compute_capability, verdict, why, newest)


def _judged(gpu: Gpu, toolkit: str, driver: str) -> tuple[tuple[Outcome, str], ...]:
    """What the driver says of a toolkit, and what the GPU says of it."""
    from paddock.catalog.cuda_match import on_capability, on_driver, on_gpu

    model, name, capability = known(gpu), gpu.name or "a GPU without a name", gpu.compute_capability
    runs = on_driver(toolkit, driver, model)
    if model:
        built = on_gpu(toolkit, model)
    elif capability and _DRIVER.fullmatch(capability):
        built = on_capability(toolkit, capability, name)
    else:
        return (runs.outcome, runs.why), ("unknown", f"{name} does not tell its compute capability")
    return (runs.outcome, runs.why), (built.outcome, built.why)


def _full(gpu: Gpu, driver: str) -> frozenset[str]:
    """The toolkits of which every feature works."""
    return frozenset(
        toolkit for toolkit in _versions() if all(outcome == "ok" for outcome, _ in _judged(gpu, toolkit, driver))
    )


def _fixes(inventory: Inventory, toolkit: str, driver: str, worst: GpuMatch, newest: str | None) -> tuple[Fix, ...]:
    """From the cheapest: what changes an image, then what changes this machine."""
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
        if there and needs and _number(there) >= _number(needs):
            path = f"{inventory.toolkit.path}/compat" if inventory.toolkit else ""
            fixes.append(Fix("compat-package", f"{package} is there ({there}): put {path} first in LD_LIBRARY_PATH"))
        else:
            fixes.append(Fix("compat-package", f"install {package} in the image: no reboot, data-centre GPUs only"))
    if newest and newest != toolkit:
        fixes.append(Fix("toolkit", f"use CUDA {newest}, the newest of which every feature works here"))
    if needs and verdict != "impossible" and _number(driver) < _number(needs):
        where = "the host, not of this container" if inventory.machine.container else "this machine"
        fixes.append(Fix("driver", f"upgrade the driver of {where} from {driver} to {needs} or newer, and reboot"))
    if verdict == "impossible" and gpu and not newest:
        try:
            least = cuda_toolkit(toolkit).min_compute_capability
        except UnknownCuda:
            return tuple(fixes)
        fixes.append(Fix("gpu", f"use a GPU of compute capability {least} or newer"))
    return tuple(fixes)


def _elsewhere(inventory: Inventory, toolkit: str | None) -> Compatibility:
    """GPUs that know no CUDA."""
    makers = sorted({{"amd": "AMD", "apple": "Apple"}.get(gpu.vendor, "NVIDIA") for gpu in inventory.usable})
    instead = "Metal (`mps`)" if makers == ["Apple"] else "ROCm"
    found = inventory.toolkit if toolkit is None else None
    driver = inventory.driver.version if inventory.driver else None
    what = f"CUDA runs on NVIDIA GPUs only, and these are of {' and '.join(makers)}"
    if toolkit:
        fix = Fix("toolkit", f"use a build for {instead}")
        return Compatibility(toolkit, None, driver, "impossible", what, None, (fix,))
    why = f"{what}; of {instead} the catalogue has no table"
    return Compatibility(found.version if found else None, found.path if found else None, driver, "unknown", why, None)


def _last(versions: frozenset[str]) -> str | None:
    return max(versions, key=_number, default=None)


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)))


def _versions() -> list[str]:
    from paddock.catalog import cuda_toolkits

    return list(cuda_toolkits())
