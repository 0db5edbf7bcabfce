"""Choice of a framework's image or wheels for these GPUs and this driver, among those of the catalogue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from paddock.gpu.errors import GpuError, GpuInputError
from paddock.gpu.health.cuda import evaluate
from paddock.gpu.model import Inventory

if TYPE_CHECKING:
    from paddock.catalog.cuda_match import Outcome
    from paddock.catalog.ml_images import Image, Wheels

FRAMEWORKS = ("pytorch", "tensorflow", "jax", "none")
_ACCEPTED: tuple[Outcome, ...] = ("ok", "minor-version", "unknown")
"""From best to undecided; builds with other outcomes do not run."""


@dataclass(frozen=True, slots=True)
class Pick:
    """The chosen build; None where the user named an image. `verdict` is that of `paddock.gpu.health.cuda`."""

    build: Image | Wheels | None
    image: str | None
    cuda: str | None
    verdict: Outcome
    why: str


@dataclass(frozen=True, slots=True)
class _Candidate:
    build: Image | Wheels
    verdict: Outcome
    why: str
    fix: str


def pick(
    framework: str, inventory: Inventory, *, contained: bool, cuda: str | None = None, image: str | None = None
) -> Pick:
    """Return the newest build that runs with every feature, else the newest that runs.

    The inventory holds only the GPUs to run on. `contained` selects images, else wheels. Raises GpuError with the
    cheapest fix where none runs, and GpuInputError for an image without a fixed tag or an unknown CUDA.
    """
    if image is not None:
        return _pick_image(framework, inventory, image, cuda)
    builds = _builds(framework, inventory, contained, cuda)
    candidates = [_evaluate_build(build, inventory) for build in builds]
    for verdict in _ACCEPTED:
        for candidate in candidates:
            if candidate.verdict == verdict:
                build = candidate.build
                return Pick(build, getattr(build, "image", None), build.cuda, verdict, candidate.why)
    first = candidates[0]
    build = first.build
    raise GpuError(
        f"{build.framework} {build.version} for CUDA {build.cuda} does not run here: {first.why}"
        "\n    expected: a driver and a GPU that run it"
        f"\n    fix: {_alternative(framework, inventory, contained, cuda) or first.fix}"
    )


def _builds(framework: str, inventory: Inventory, contained: bool, cuda: str | None) -> list[Image | Wheels]:
    from paddock.catalog.ml_images import images, wheels

    vendor = inventory.usable[0].vendor
    if vendor == "apple" and contained:
        raise GpuError(
            "an Apple GPU cannot be given to a container\n    expected: a program of macOS, where Metal is available"
            "\n    fix: --target venv"
        )
    attribute = {"nvidia": "cuda", "amd": "rocm", "apple": "metal"}[vendor]
    builds: Sequence[Image | Wheels] = images() if contained else wheels()
    matching = [build for build in builds if build.framework == framework and getattr(build, attribute)]
    kind = "image" if contained else "wheels"
    if not matching:
        frameworks = sorted({build.framework for build in builds if getattr(build, attribute)})
        expected = " or ".join(frameworks) if frameworks else "another target"
        raise GpuInputError(f"the catalogue has no {kind} of {framework} for {vendor} GPUs\n    expected: {expected}")
    if cuda is None:
        return matching
    if vendor != "nvidia":
        raise GpuInputError(f"CUDA {cuda} for {vendor} GPUs\n    expected: none, since CUDA is NVIDIA's")
    minor = ".".join(cuda.split(".")[:2])
    fitting = [build for build in matching if build.cuda == minor]
    if not fitting:
        versions = ", ".join(dict.fromkeys(build.cuda for build in matching if build.cuda))
        raise GpuInputError(
            f"the catalogue has no {kind} of {framework} with CUDA {cuda}\n    expected: one of {versions}"
            "\n    fix: name an image with --image"
        )
    return fitting


def _evaluate_build(build: Image | Wheels, inventory: Inventory) -> _Candidate:
    if build.cuda is None:
        maker = "ROCm" if build.rocm else "macOS"
        return _Candidate(build, "unknown", f"the catalogue has no table for {maker} and its drivers", "")
    for gpu in inventory.usable:
        if gpu.compute_capability and not build.runs_on(gpu.compute_capability):
            low, high = build.min_compute_capability or "any", build.max_compute_capability or "any"
            why = f"it is built for compute capability {low} to {high}, and {gpu.name} has {gpu.compute_capability}"
            return _Candidate(build, "impossible", why, "use a GPU that it is built for")
    verdict, why, fix = _evaluate_cuda(build.cuda, inventory)
    return _Candidate(build, verdict, why, fix)


def _evaluate_cuda(cuda: str, inventory: Inventory) -> tuple[Outcome, str, str]:
    """Return the verdict, its reason and the cheapest fix."""
    from paddock.catalog import version
    from paddock.catalog.cuda_match import on_driver

    result = evaluate(inventory, cuda)
    verdict = result.verdict
    if result.gpus and result.driver and verdict == "unknown":
        # No source covers this forward-compatibility package; without one the build does not run.
        floor = on_driver(cuda, result.driver, None).floor
        verdict = "needs-compat" if floor and version(result.driver) < version(floor) else verdict
    return verdict, result.why, result.fixes[0].text if result.fixes else ""


def _alternative(framework: str, inventory: Inventory, contained: bool, cuda: str | None) -> str:
    """Suggest a CUDA that runs, where the requested one does not."""
    if cuda is None:
        return ""
    try:
        other = pick(framework, inventory, contained=contained)
    except GpuError:
        return ""
    return f"--cuda {other.cuda}, which runs here"


def _pick_image(framework: str, inventory: Inventory, image: str, cuda: str | None) -> Pick:
    from paddock.catalog.cuda_match import tag_cuda
    from paddock.gpu.render.fields import image_reference

    image_reference(image)
    tag = "" if "@" in image else image.rpartition("/")[2].partition(":")[2]
    if "@" not in image and (not tag or "latest" in tag.split("-")):
        try:
            fix = pick(framework, inventory, contained=True, cuda=cuda).image
        except GpuError:
            fix = "a tag with versions in it"
        raise GpuInputError(
            f"{image} changes over time\n    expected: a tag that names versions, or a digest\n    fix: {fix}"
        )
    has = tag_cuda(image)
    if has is None:
        return Pick(None, image, None, "unknown", "the image's tag does not name its CUDA version")
    if cuda and has.split(".")[:2] != cuda.split(".")[:2]:
        raise GpuInputError(f"{image} holds CUDA {has}\n    expected: {cuda}, as requested")
    verdict, why, fix = _evaluate_cuda(has, inventory)
    if verdict not in _ACCEPTED:
        raise GpuError(
            f"{image} does not run here: {why}\n    expected: another CUDA\n    fix: {fix or 'another image'}"
        )
    return Pick(None, image, has, verdict, why)
