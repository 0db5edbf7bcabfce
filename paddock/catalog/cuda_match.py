"""Verdict on whether a CUDA toolkit runs on a driver and a GPU, as pure arithmetic on versions.

The procedure is NVIDIA's (CUDA release notes and CUDA compatibility guide): a driver at least as new as the one bundled
with the toolkit is fine; one at least as new as the floor of the toolkit's major runs it with limits; below that only
the forward-compatibility package helps, which exists for data-centre GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from paddock import catalog
from paddock.catalog import CudaToolkit, Gpu, UnknownCuda, version

Outcome = Literal["ok", "minor-version", "needs-compat", "impossible", "unknown"]

_TAGS = (
    re.compile(r"^(1[0-9]\.\d{1,2}(?:\.\d{1,2})?)-runner\d"),
    re.compile(r"(?:^|[^a-z0-9])cuda-?(\d{2}\.\d{1,2}(?:\.\d{1,2})?)(?![\d.]*\d)"),
    re.compile(r"(?:^|[^a-z0-9])cu(1[0-9])(\d)(?![0-9])"),
)
_WITHOUT = re.compile(r":nocuda-runner\d[^/]*$")
_NVIDIA = re.compile(r"^(1[0-9]\.\d{1,2}(?:\.\d{1,2})?)(?:-|$)")


@dataclass(frozen=True, slots=True)
class Match:
    """`needs` is the driver from which every feature works, `floor` that from which programs run at all."""

    outcome: Outcome
    why: str
    needs: str | None = None
    floor: str | None = None


@dataclass(frozen=True, slots=True)
class Drives:
    """`least` and `most` are a family's driver branches, each only where it is what rules the driver out."""

    outcome: Literal["ok", "impossible", "unknown"]
    why: str
    least: int | None = None
    most: int | None = None


def tag_cuda(image: str) -> str | None:
    """The CUDA version that an image's tag states: `cuda12.8`, `cu128`, `12.8-runner2.338.0-<hash>` as this project's
    images have it, or the tag of an image called cuda.

    None when the tag does not say. A number alone is the version of whatever the image is.
    """
    repository, _, tag = image.split("@")[0].rpartition(":")
    if not repository or "/" in tag:
        return None
    for form in _TAGS:
        if match := form.search(tag):
            return ".".join(match.groups())
    nvidia = _NVIDIA.match(tag) if repository.split("/")[-1] == "cuda" else None
    return nvidia[1] if nvidia else None


def tag_denies_cuda(image: str) -> bool:
    """Return whether an image's tag states that it brings no CUDA: `nocuda-runner2.338.0-<hash>`, our form."""
    return _WITHOUT.search(image.split("@")[0]) is not None


def on_driver(toolkit: str, driver: str, gpu: Gpu | None) -> Match:
    """Return whether programs of `toolkit` (`12.8.1`) run on `driver` (`580.159.03`); None: an uncatalogued GPU."""
    try:
        kit = catalog.cuda_toolkit(toolkit)
    except UnknownCuda:
        return Match("unknown", f"the catalogue has no CUDA {toolkit}")
    needs, floor, has = _bundled(kit, toolkit), kit.minimum_driver, version(driver)
    branch = catalog.driver_branch(driver)
    supports = f"R{branch.branch} supports CUDA {branch.max_cuda}" if branch else f"driver {driver}"
    if needs and has >= version(needs):
        return Match("ok", f"{driver} is at least {needs}, which CUDA {toolkit} is bundled with", needs, floor)
    if not needs and branch and version(branch.max_cuda) >= version(kit.version):
        return Match("ok", supports, needs, floor)
    if has >= version(floor):
        return Match(
            "minor-version",
            f"{supports}: CUDA {toolkit} runs in minor-version compatibility, from {floor} on, without new driver "
            f"features and without compiling its PTX (all of it from {needs or 'a driver no source names'})",
            needs,
            floor,
        )
    below = f"{driver} is below {floor}, the least that any CUDA {kit.version.split('.')[0]} runs on"
    package = compat_package(kit.version)
    if gpu is None or gpu.key.startswith("rtx-") or branch is None or branch.kind == "new-feature":
        reason = f"whether {package} supports {gpu.name if gpu else 'this GPU'} with this driver, no source says"
        return Match("unknown", f"{below}; {reason}", needs, floor)
    return Match("needs-compat", f"{below}, so the image must bring {package}", needs, floor)


def drives(driver: str, gpu: Gpu, families: Iterable[str]) -> Drives:
    """Return whether `driver` (`580.159.03`, or its branch `580`) drives a GPU on each of these instance families."""
    branch = catalog.driver_branch(driver)
    if branch is None:
        return Drives("unknown", f"the catalogue has no branch of driver {driver}")
    for limits in filter(None, map(catalog.driver_limits, families)):
        least, most, has = limits.min_branch, limits.max_branch, f"and its image has {driver}"
        if least and branch.branch < least:
            return Drives("impossible", f"{limits.family} needs driver R{least} or newer, {has}", least=least)
        if most and branch.branch > most:
            return Drives("impossible", f"R{most} is the last driver for {limits.family}, {has}", most=most)
    subject = f"{gpu.name} (compute capability {gpu.compute_capability}, from CUDA {gpu.cuda_first} on)"
    if not branch.drives(gpu.compute_capability):
        return Drives("impossible", f"driver {driver} no longer drives {subject}")
    if version(branch.max_cuda) < version(gpu.cuda_first):
        return Drives("impossible", f"driver {driver} does not yet drive {subject}: it supports CUDA {branch.max_cuda}")
    return Drives("ok", f"driver {driver} drives {gpu.name}")


def on_gpu(toolkit: str, gpu: Gpu) -> Match:
    """Return whether the compiler of `toolkit` makes programs for `gpu`, by compute capability."""
    try:
        kit = catalog.cuda_toolkit(toolkit)
    except UnknownCuda:
        return Match("unknown", f"the catalogue has no CUDA {toolkit}")
    subject = f"{gpu.name} (compute capability {gpu.compute_capability})"
    if gpu.runs_cuda(toolkit):
        return Match("ok", f"CUDA {toolkit} compiles for {subject}")
    if gpu.cuda_last and version(kit.version) > version(gpu.cuda_last):
        return Match("impossible", f"CUDA {kit.version.split('.')[0]} dropped {subject}; {gpu.cuda_last} is its last")
    # PTX would let some programs start, but the toolkit's own libraries hold no code for this GPU.
    why = f"CUDA {toolkit} is older than {subject}: {gpu.cuda_first} is the first to compile for it"
    return Match("impossible", why)


def on_capability(toolkit: str, capability: str, name: str) -> Match:
    """The same for a GPU of no catalogue, by its compute capability (`8.9`) and the compiler's range."""
    try:
        kit = catalog.cuda_toolkit(toolkit)
    except UnknownCuda:
        return Match("unknown", f"the catalogue has no CUDA {toolkit}")
    subject, has, most = f"{name} (compute capability {capability})", version(capability), kit.max_compute_capability
    if has < version(kit.min_compute_capability):
        return Match("impossible", f"CUDA {toolkit} compiles for {kit.min_compute_capability} on: no {subject}")
    if most is None or has > version(most):
        upto = f"compiles up to {most}" if most else "has an end of its range that no source names"
        return Match("unknown", f"CUDA {toolkit} {upto}, and this is {subject}: programs need PTX to start")
    return Match("ok", f"CUDA {toolkit} compiles for {subject}")


def best_toolkit(driver: str, gpu: Gpu) -> str | None:
    """The newest CUDA with which every feature works on this driver and GPU; None when there is none."""
    fits = [
        kit.version
        for kit in catalog.cuda_toolkits().values()
        if gpu.runs_cuda(kit.version) and on_driver(kit.version, driver, gpu).outcome == "ok"
    ]
    return max(fits, key=version, default=None)


def compat_package(toolkit: str) -> str:
    """The name of its forward-compatibility package."""
    return f"cuda-compat-{'-'.join(toolkit.split('.')[:2])}"


def _bundled(kit: CudaToolkit, toolkit: str) -> str | None:
    """The driver bundled with a toolkit, or with its update where one is named (`12.4.1`)."""
    update = version(toolkit)[2:3]
    if update and 0 < update[0] <= len(kit.updates):
        return kit.updates[update[0] - 1]
    return kit.driver
