"""Checks that a machine image fits the pools that would boot it and the images their runners start. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paddock.catalog import version
from paddock.catalog.cuda_match import drives, on_driver
from paddock.fleet import Fleet, Runner
from paddock.fleet.model.pool import MINORS_BEHIND, Custom, GpuPool, minors_behind
from paddock.fleet.software import image_cuda, runner_image
from paddock.images.ami.images import MachineImage


@dataclass(frozen=True, slots=True)
class Fit:
    """One comparison, with its numbers. `fits` is None for a note, which refuses nothing."""

    subject: str
    """`pools.t4`, `runners.gpu`, `images.runner` or `images.ami`."""
    fits: bool | None
    text: str


def compare(fleet: Fleet, image: MachineImage, pin: Custom, pools: Iterable[str]) -> tuple[Fit, ...]:
    """Everything that must hold, pool by pool, each with its runners."""
    fits_found: list[Fit] = []
    for name in pools:
        fits_found += [Fit(f"pools.{name}", fits, text) for fits, text in _pool(fleet, fleet.pools[name], image, pin)]
        for runner in fleet.runners_on(fleet.pools[name]):
            fits, text = _runner(fleet, runner, pin.driver)
            fits_found.append(Fit(f"runners.{runner.name}", fits, text))
    held, starts = image.fact("runner-image"), runner_image(fleet)
    if held != starts and (held or fleet.images.ami.pre_pull):
        text = f"the image holds {held or 'no runner image'}, and runners start {starts or 'the one of GitHub'}"
        fits_found.append(Fit("images.runner", None, f"{text}: the first job on a node pulls it"))
    if not held:
        text = "it contained no runner image, so its tests proved neither CUDA nor a GPU in a container"
        fix = "write images.runner with a digest and images.ami.prePull: true, and build again"
        fits_found.append(Fit("images.ami", None, f"{text}: {fix}"))
    return tuple(fits_found)


def _pool(fleet: Fleet, pool: GpuPool, image: MachineImage, pin: Custom) -> Iterator[tuple[bool | None, str]]:
    minor = fleet.cluster.version
    behind, differs = minors_behind(pin.kubernetes, minor), f"kubelet {pin.kubernetes}, the cluster runs {minor}"
    if behind == 0:
        yield True, f"kubelet {pin.kubernetes}, as the cluster"
    elif behind < 0:
        yield False, f"{differs}: a kubelet may not be newer than the API server"
    elif behind > MINORS_BEHIND:
        yield False, f"{differs}: a kubelet may be at most {MINORS_BEHIND} minors older than the API server"
    else:
        yield None, f"{differs}: that works until an image of {minor} follows, for at most {MINORS_BEHIND} minors"
    if other_archs := sorted({instance_type.arch for instance_type in pool.types} - {image.arch}):
        yield False, f"the image is for {image.arch or 'an unknown architecture'}, the instances are {other_archs[0]}"
    if image.root_gib * 1024 > pool.root_disk.size:
        has = pool.root_disk.size / 1024
        yield (
            False,
            f"the image's root volume is {image.root_gib} GiB, the pool's disk {has:g} GiB: no node would start",
        )
    match = drives(pin.driver, pool.gpu, sorted({instance_type.family for instance_type in pool.types}))
    fits = {"ok": True, "impossible": False, "unknown": None}[match.outcome]
    yield fits, match.why


def _runner(fleet: Fleet, runner: Runner, driver: str) -> tuple[bool | None, str]:
    """Return whether the CUDA of the runner's image starts on the driver."""
    cuda = image_cuda(fleet, runner)
    if cuda.version is None:
        return None, f"which CUDA its jobs use is not known: {cuda.where}"
    match = on_driver(cuda.version, driver, fleet.pools[runner.pool].gpu)
    below = match.floor is not None and version(driver) < version(match.floor)
    fits = False if below else None if match.outcome == "unknown" else True
    return fits, f"CUDA {cuda.version} ({cuda.where}): {match.why}"
