"""Compatibility of software: CUDA on drivers and GPUs, drivers on instances, images on Kubernetes, ARC with GitHub.

`check` compares the stack with the catalogue and says for each pair what it rests on. It never guesses: a fact that
neither the stack nor the catalogue states makes the verdict unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date

from paddock import catalog
from paddock.catalog import version
from paddock.catalog.cuda_match import Drives, best_toolkit, drives, on_driver, on_gpu
from paddock.fleet import Fleet
from paddock.fleet.model.pool import EksManaged, GpuPool
from paddock.fleet.model.runner import Runner
from paddock.fleet.software import driver, image_cuda
from paddock.plan.compatibility import faults, lifecycle
from paddock.plan.compatibility.verdict import Verdict, findings
from paddock.plan.finding import Edit, put

__all__ = ["Verdict", "check", "findings"]


def check(fleet: Fleet, today: date) -> tuple[Verdict, ...]:
    """Return every verdict, runner by runner, pool by pool, then cluster and controller."""
    verdicts: list[Verdict] = []
    without_cuda = []
    for runner in fleet.runners.values():
        if image_cuda(fleet, runner).version is None:
            without_cuda.append(runner)
        else:
            verdicts += _runner(fleet, runner)
    verdicts += _unknown_cuda(fleet, without_cuda)
    if fleet.owns_nodes:
        for pool in fleet.pools.values():
            verdicts += _pool(fleet, pool)
        verdicts += lifecycle.images(fleet, today)
    verdicts += faults.check(fleet)
    verdicts += lifecycle.drivers({name: driver(fleet, pool).version for name, pool in fleet.pools.items()}, today)
    verdicts += lifecycle.kubernetes(fleet, today)
    if fleet.holds("runners"):
        verdicts += lifecycle.controller(fleet, today)
    return tuple(verdicts)


def _runner(fleet: Fleet, runner: Runner) -> Iterator[Verdict]:
    pool = fleet.pools[runner.pool]
    gpu, cuda, has = pool.gpu, image_cuda(fleet, runner), driver(fleet, pool)
    subject = f"runners.{runner.name}"
    numbers: dict[str, str | int | None] = {
        "cuda": cuda.version,
        "cuda_read_from": cuda.where,
        "driver": has.version,
        "driver_read_from": has.where,
        "gpu": gpu.key,
        "compute_capability": gpu.compute_capability,
    }
    newest = best_toolkit(has.version, gpu) if has.version else None
    if cuda.version is None:
        return
    built = on_gpu(cuda.version, gpu)
    yield Verdict(
        "CMP002",
        subject,
        built.outcome,
        f"{built.why} (read from {cuda.where})",
        numbers | {"cuda_first": gpu.cuda_first, "cuda_last": gpu.cuda_last},
        "" if built.outcome == "ok" else _other_image(fleet, runner, newest),
        concern="warning" if built.outcome == "unknown" else None,
    )
    if has.version is None:
        yield Verdict(
            "CMP001", subject, "unknown", f"the driver of pool {pool.name} is not known: {has.where}", numbers
        )
        return
    match = on_driver(cuda.version, has.version, gpu)
    fix, edits = _newer_driver(fleet, pool, match.needs)
    yield Verdict(
        "CMP001",
        subject,
        match.outcome,
        f"{match.why} (CUDA read from {cuda.where}, driver from {has.where})",
        numbers | {"driver_for_all_features": match.needs, "least_driver": match.floor, "newest_cuda": newest},
        "" if match.outcome == "ok" else fix or _other_image(fleet, runner, newest),
        edits=edits if match.outcome != "ok" else (),
    )


def _unknown_cuda(fleet: Fleet, runners: list[Runner]) -> Iterator[Verdict]:
    """Report runners whose CUDA version is not stated, together where the reason is the same."""
    reasons: dict[str, list[Runner]] = {}
    for runner in runners:
        reasons.setdefault(image_cuda(fleet, runner).where, []).append(runner)
    for where, affected in reasons.items():
        newest = {}
        for pool in map(fleet.pools.__getitem__, dict.fromkeys(runner.pool for runner in affected)):
            has = driver(fleet, pool).version
            newest[pool.name] = best_toolkit(has, pool.gpu) if has else None
        up_to = ", ".join(f"{cuda} on {name}" for name, cuda in newest.items() if cuda)
        own = where.startswith("runners.")
        yield Verdict(
            "CMP001",
            f"runners.{affected[0].name}.image" if own else "images.cuda",
            "unknown",
            f"which CUDA the jobs of {', '.join(runner.name for runner in affected)} use is not known: {where}"
            + (f". The drivers run any up to {up_to}" if up_to else ""),
            {"cuda": None, "cuda_read_from": where, **{f"newest_cuda.{name}": cuda for name, cuda in newest.items()}},
            "a tag that states it, such as runner:cuda12.8" if own else 'images.cuda: "<what the jobs use>"',
        )


def _pool(fleet: Fleet, pool: GpuPool) -> Iterator[Verdict]:
    """Check that the driver drives the pool's GPUs and instance families."""
    has = driver(fleet, pool)
    gpu, subject = pool.gpu, f"pools.{pool.name}"
    families = sorted({instance.family for instance in pool.types})
    limits = [limit for family in families if (limit := catalog.driver_limits(family))]
    numbers: dict[str, str | int | None] = {
        "driver": has.version,
        "driver_read_from": has.where,
        "gpu": gpu.key,
        "compute_capability": gpu.compute_capability,
        "first_cuda_of_gpu": gpu.cuda_first,
        "least_branch": max((limit.min_branch for limit in limits if limit.min_branch), default=None),
        "last_branch": min((limit.max_branch for limit in limits if limit.max_branch), default=None),
    }
    unknown = Drives("unknown", f"the driver on its nodes is not known: {has.where}")
    known = has.version or (str(has.branch) if has.branch else None)
    match = drives(known, gpu, families) if known else unknown
    why = f"{match.why} of {', '.join(families)}" if match.outcome == "ok" else match.why
    fix, edits = _driven_by(fleet, pool, match)
    yield Verdict("CMP003", subject, match.outcome, why, numbers, fix, edits=edits)


_Fix = tuple[str, tuple[Edit, ...]]
"""Remedy in words, and as edits where the fleet's owner need not choose."""


def _driven_by(fleet: Fleet, pool: GpuPool, match: Drives) -> _Fix:
    """Return what gives a pool a driver for its GPUs."""
    if match.outcome == "ok":
        return "", ()
    if match.outcome == "unknown":
        return "./inv catalog.refresh, or an image of the catalogue", ()
    if match.least:
        return (
            f"pools.{pool.name}.ami: {{custom: ami-..., driver: {match.least}..., kubernetes: "
            f'"{fleet.kubernetes(pool)}"}}, or instances of another family{_with_several(match.least)}'
        ), ()
    other = "instances of another family" if match.most else "instances with another GPU"
    fix, edits = _eks_image(fleet, pool, most=match.most)
    return fix or other, edits


def _with_several(branch: int) -> str:
    """Return which EKS releases hold a driver of a branch next to that of most families."""
    since = next((row.since for row in catalog.several_drivers() if branch in row.branches), None)
    return f", or an EKS release from {since} on (./inv catalog.refresh)" if since else ""


def _newer_driver(fleet: Fleet, pool: GpuPool, needs: str | None) -> _Fix:
    """Return what brings a driver from `needs` on; empty when the catalogue has no such image."""
    newest = catalog.latest_ami(fleet.kubernetes(pool))
    if not needs or not newest or not newest.driver or version(newest.driver) < version(needs):
        return "", ()
    return _eks_image(fleet, pool)


def _eks_image(fleet: Fleet, pool: GpuPool, most: int | None = None) -> _Fix:
    """Return what selects the newest EKS image, at most of driver branch `most`; empty when there is none."""
    newest = catalog.latest_ami(fleet.kubernetes(pool))
    if not newest or not newest.driver or (most and version(newest.driver)[0] > most):
        return "", ()
    current = fleet.ami(pool)
    if isinstance(current, EksManaged) and current.release == newest.release:
        return "", ()
    edit = put("pools", pool.name, "ami", value={"release": newest.release})
    # Those who chose an image of their own chose more than its driver.
    return f"{edit} (driver {newest.driver})", (edit,) if isinstance(current, EksManaged) else ()


def _other_image(fleet: Fleet, runner: Runner, newest: str | None) -> str:
    if newest is None:
        return ""
    key = f"runners.{runner.name}.image" if runner.image else "images.runner"
    first = fleet.pools[runner.pool].gpu.cuda_first
    return f"{key}: an image with CUDA {newest if first == newest else f'{first} to {newest}'}"
