"""Whether a machine image fits the pools that would boot it, and the images their runners start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paddock import catalog
from paddock.build.ami.images import MachineImage
from paddock.catalog import version
from paddock.catalog.cuda_match import on_driver
from paddock.fleet import Fleet
from paddock.fleet.pool import Custom, GpuPool
from paddock.fleet.stated import image_cuda


@dataclass(frozen=True, slots=True)
class Fit:
    """One comparison, with its numbers. `fits` is None where neither stack, image nor catalogue say enough."""

    subject: str
    """`pools.t4` or `runners.gpu`."""
    fits: bool | None
    text: str


def compare(fleet: Fleet, image: MachineImage, pin: Custom, pools: Iterable[str]) -> tuple[Fit, ...]:
    """Everything that must hold, pool by pool, each with its runners."""
    found: list[Fit] = []
    for name in pools:
        found += [Fit(f"pools.{name}", fits, text) for fits, text in _pool(fleet, fleet.pools[name], image, pin)]
        for runner, _ in fleet.runners_on(name):
            fits, text = _runner(fleet, runner, pin.driver)
            found.append(Fit(f"runners.{runner}", fits, text))
    return tuple(found)


def _pool(fleet: Fleet, pool: GpuPool, image: MachineImage, pin: Custom) -> Iterator[tuple[bool | None, str]]:
    minor = fleet.cluster.version
    if pin.kubernetes == minor:
        yield True, f"kubelet {pin.kubernetes}, as the cluster"
    else:
        newer = version(pin.kubernetes) > version(minor)
        why = (
            "a kubelet may not be newer than the API server" if newer else "nodes of a pool are of the cluster's minor"
        )
        yield False, f"kubelet {pin.kubernetes}, the cluster runs {minor}: {why}"
    if others := sorted({each.arch for each in pool.types} - {image.arch}):
        yield False, f"the image is for {image.arch or 'an unknown architecture'}, the instances are {others[0]}"
    if image.root_gib * 1024 > pool.root_disk.size:
        has = pool.root_disk.size / 1024
        yield (
            False,
            f"the image's root volume is {image.root_gib} GiB, the pool's disk {has:g} GiB: no node would start",
        )
    yield _drives(pin.driver, pool)


def _drives(driver: str, pool: GpuPool) -> tuple[bool | None, str]:
    """Whether the driver drives the pool's GPU on each of its instance families."""
    branch, gpu = catalog.driver_branch(driver), pool.gpu
    if branch is None:
        return None, f"the catalogue has no branch of driver {driver}: whether it drives {gpu.name} is not known"
    for family in sorted({instance.family for instance in pool.types}):
        limit = catalog.driver_limits(family)
        if limit and limit.min_branch and branch.branch < limit.min_branch:
            return False, f"driver {driver}, and {family} needs R{limit.min_branch} or newer"
        if limit and limit.max_branch and branch.branch > limit.max_branch:
            return False, f"driver {driver}, and R{limit.max_branch} is the last for {family}"
    what = f"{gpu.name} (compute capability {gpu.compute_capability}, from CUDA {gpu.cuda_first} on)"
    if not branch.drives(gpu.compute_capability):
        return False, f"driver {driver} no longer drives {what}: it begins at {branch.min_compute_capability}"
    if version(branch.max_cuda) < version(gpu.cuda_first):
        return False, f"driver {driver} does not yet drive {what}: it speaks CUDA {branch.max_cuda}"
    return True, f"driver {driver} drives {gpu.name}"


def _runner(fleet: Fleet, runner: str, driver: str) -> tuple[bool | None, str]:
    """Whether the CUDA of the runner's image starts on the driver."""
    cuda = image_cuda(fleet, runner)
    if cuda.version is None:
        return None, f"which CUDA its jobs use is not known: {cuda.where}"
    match = on_driver(cuda.version, driver, fleet.pools[fleet.runners[runner].pool].gpu)
    below = match.floor is not None and version(driver) < version(match.floor)
    fits = False if below else None if match.outcome == "unknown" else True
    return fits, f"CUDA {cuda.version} ({cuda.where}): {match.why}"
