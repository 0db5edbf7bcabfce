"""Which image or wheels of a framework run on these GPUs with this driver: a pure choice among the catalogue's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.health.cuda import evaluate
from paddock.gpu.model import Inventory

if TYPE_CHECKING:
    from paddock.catalog.cuda_match import Outcome
    from paddock.catalog.ml_images import Build, Image, Wheels

FRAMEWORKS = ("pytorch", "tensorflow", "jax", "none")
_TAKEN: tuple[Outcome, ...] = ("ok", "minor-version", "unknown")
"""From best to what nobody can say; the others do not run."""


@dataclass(frozen=True, slots=True)
class Pick:
    """Of an image that was named, `build` is None. `verdict` is that of `paddock.gpu.health.cuda`."""

    build: Image | Wheels | None
    image: str | None
    cuda: str | None
    verdict: Outcome
    why: str


@dataclass(frozen=True, slots=True)
class _Judged:
    build: Image | Wheels
    verdict: Outcome
    why: str
    fix: str


def pick(
    framework: str, inventory: Inventory, *, contained: bool, cuda: str | None = None, image: str | None = None
) -> Pick:
    """The newest that runs with every feature, else the newest that runs.

    The inventory's GPUs are those to run on. `contained` wants an image, else wheels. Raises GpuError with the
    cheapest fix where none runs, and GpuInputError for an image that moves and a CUDA that there is not.
    """
    if image is not None:
        return _named(framework, inventory, image, cuda)
    builds = _builds(framework, inventory, contained, cuda)
    judged = [_judge(one, inventory) for one in builds]
    for verdict in _TAKEN:
        for one in judged:
            if one.verdict == verdict:
                return Pick(one.build, getattr(one.build, "image", None), one.build.cuda, one.verdict, one.why)
    first = judged[0]
    raise GpuError(
        f"{_called(first.build)} does not run here: {first.why}\n    expected: a driver and a GPU that run it"
        f"\n    fix: {_instead(framework, inventory, contained, cuda) or first.fix}"
    )


def _builds(framework: str, inventory: Inventory, contained: bool, cuda: str | None) -> list[Image | Wheels]:
    from paddock.catalog.ml_images import images, wheels

    vendor = inventory.usable[0].vendor
    if vendor == "apple" and contained:
        raise GpuError(
            "an Apple GPU cannot be given to a container\n    expected: Metal is there for programs of macOS alone"
            "\n    fix: --target venv"
        )
    attribute = {"nvidia": "cuda", "amd": "rocm", "apple": "metal"}[vendor]
    there: Sequence[Image | Wheels] = images() if contained else wheels()
    every = [one for one in there if one.framework == framework and getattr(one, attribute)]
    what = "image" if contained else "wheels"
    if not every:
        others = sorted({one.framework for one in there if getattr(one, attribute)})
        known = " or ".join(others) if others else "another target"
        raise GpuInputError(f"the catalogue has no {what} of {framework} for {vendor} GPUs\n    expected: {known}")
    if cuda is None:
        return every
    if vendor != "nvidia":
        raise GpuInputError(f"CUDA {cuda} for {vendor} GPUs\n    expected: none, since CUDA is NVIDIA's")
    minor = ".".join(cuda.split(".")[:2])
    fitting = [one for one in every if one.cuda == minor]
    if not fitting:
        versions = ", ".join(dict.fromkeys(one.cuda for one in every if one.cuda))
        raise GpuInputError(
            f"the catalogue has no {what} of {framework} with CUDA {cuda}\n    expected: one of {versions}"
            "\n    fix: name an image with --image"
        )
    return fitting


def _judge(build: Image | Wheels, inventory: Inventory) -> _Judged:
    if build.cuda is None:
        maker = "ROCm" if build.rocm else "macOS"
        return _Judged(build, "unknown", f"of {maker} and its drivers the catalogue has no table", "")
    for gpu in inventory.usable:
        if gpu.compute_capability and not build.runs_on(gpu.compute_capability):
            low, high = build.min_compute_capability or "any", build.max_compute_capability or "any"
            why = f"it is built for compute capability {low} to {high}, and {gpu.name} has {gpu.compute_capability}"
            return _Judged(build, "impossible", why, "use a GPU that it is built for")
    verdict, why, fix = _judge_cuda(build.cuda, inventory)
    return _Judged(build, verdict, why, fix)


def _judge_cuda(cuda: str, inventory: Inventory) -> tuple[Outcome, str, str]:
    """The verdict, why, and the cheapest fix."""
    from paddock.catalog import version
    from paddock.catalog.cuda_match import on_driver

    found = evaluate(inventory, cuda)
    verdict = found.verdict
    if found.gpus and found.driver and verdict == "unknown":
        # Whether a forward-compatibility package would help no source says; without one it does not run.
        floor = on_driver(cuda, found.driver, None).floor
        verdict = "needs-compat" if floor and version(found.driver) < version(floor) else verdict
    return verdict, found.why, found.fixes[0].text if found.fixes else ""


def _instead(framework: str, inventory: Inventory, contained: bool, cuda: str | None) -> str:
    """What would run, when it was a CUDA that was asked for which does not."""
    if cuda is None:
        return ""
    try:
        other = pick(framework, inventory, contained=contained)
    except GpuError:
        return ""
    return f"--cuda {other.cuda}, which runs here"


def _named(framework: str, inventory: Inventory, image: str, cuda: str | None) -> Pick:
    from paddock.catalog.cuda_match import tag_cuda

    tag = "" if "@" in image else image.rpartition("/")[2].partition(":")[2]
    if "@" not in image and (not tag or "latest" in tag.split("-")):
        try:
            fix = pick(framework, inventory, contained=True, cuda=cuda).image
        except GpuError:
            fix = "a tag with versions in it"
        raise GpuInputError(
            f"{image} is another image every time\n    expected: a tag that names versions, or a digest\n    fix: {fix}"
        )
    has = tag_cuda(image)
    if has is None:
        return Pick(None, image, None, "unknown", "the image's tag does not say which CUDA it holds")
    if cuda and has.split(".")[:2] != cuda.split(".")[:2]:
        raise GpuInputError(f"{image} holds CUDA {has}\n    expected: {cuda}, as was asked for")
    verdict, why, fix = _judge_cuda(has, inventory)
    if verdict not in _TAKEN:
        raise GpuError(
            f"{image} does not run here: {why}\n    expected: another CUDA\n    fix: {fix or 'another image'}"
        )
    return Pick(None, image, has, verdict, why)


def _called(build: Build) -> str:
    return f"{build.framework} {build.version} for CUDA {build.cuda}"
