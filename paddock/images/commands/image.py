"""An image of images/, from what was asked for to the engine, a registry and a stack file."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from infra.versions import GATEWAY_BASE
from paddock.console.parameters import Parameters, parameter
from paddock.console.project import root
from paddock.console.report import Report
from paddock.fleet import Stack, load
from paddock.image_reference import BadReference, Reference
from paddock.images import delivery, ecr, gateway, image_inventory, runner, size, slurm
from paddock.images.cuda import builder, manifest
from paddock.images.docker import Built, Docker, Progress
from paddock.images.errors import BuildInputError
from paddock.images.pin import pin
from paddock.images.recipes import bases, recipe
from paddock.images.recipes.bases import Base
from paddock.images.recipes.recipe import Architecture, Prepared
from paddock.images.size import LayerSize

_PYTORCH_UBUNTU = "24.04"
_TORCH_SIZE = "5.7 GB"
"""Of the lock `torch`, unpacked, with CUDA's libraries; half of it is downloaded."""
_SHORT = {"runner": runner.NAME}


def folder_name(name: str) -> str:
    """Return the folder in images/ that is called so: `runner` is short for `runner-gpu`."""
    return _SHORT.get(name, name)


@dataclass(frozen=True, kw_only=True)
class OfImage(Parameters):
    """Parameters of what builds an image, and of what pushes one."""

    cuda: str = parameter("", "the CUDA toolkit, such as 12.8")
    ubuntu: str = parameter("", "the Ubuntu below it: 22.04 or 24.04")
    base: str = parameter("", "any image of the Debian family, in place of NVIDIA's with --cuda on --ubuntu")
    with_: str = parameter("", "torch: PyTorch too, for the Python of jobs; runner images only")
    platform: str = parameter(
        "", "linux/amd64 or linux/arm64; by default that of the stack's nodes, without a stack this machine's"
    )
    registry: str = parameter(
        "", "push to HOST[/PREFIX]; by default the stack's ECR, in the account of the AWS credentials"
    )
    stack: str = parameter("", "whose registry and CUDA are the defaults")
    pin: str = parameter("", "the stack whose runners or gateway should use it: pushes, then writes its digest there")
    progress: Literal["auto", "plain", "quiet"] = parameter("auto", "how steps are shown: auto, plain or quiet")
    build_arg: tuple[str, ...] = parameter(
        (), "NAME=VALUE for an argument of the Dockerfile; may be given again", repeats=True
    )

    @property
    def shown(self) -> Progress:
        """Display of the engine's steps: none where JSON takes the place of text."""
        return "quiet" if self.json.replaces_text else self.progress


@dataclass(frozen=True, kw_only=True)
class ImageDelivered(Report):
    """An image that is there now, in the engine or a registry. None is what is not known or was not to be done."""

    SCHEMA = 1
    image: str
    content: str
    cuda: str | None
    cuda_programs: tuple[str, ...] | None
    base: str
    platform: str
    built: Built | None
    pushed: bool
    """Whether it was pushed now: the registry may have had it."""
    pinned: str | None
    size_bytes: int | None
    layers: tuple[LayerSize, ...]

    def text(self) -> Iterator[str]:
        yield f"image   {self.image}"
        built = self.built
        yield "built   " + (
            f"{built.steps} steps, {built.cached} of them cached, {built.seconds:.1f} s"
            if built
            else "before: unchanged"
        )
        if f"/{runner.NAME}:" in self.image and not self.cuda_programs:
            make = f"./inv images.build {builder.NAME} --run --platform {self.platform}"
            yield f"cuda    without programs, since there is no {manifest.FOLDER}/; to make it: {make}"
        if "@" in self.image:  # a digest, which a registry gives
            yield f"pushed  {'now' if self.pushed else 'before: the registry has it'}"
        if self.pinned:
            yield f"pinned  Pulumi.{self.pinned}.yaml"
        if self.size_bytes is not None:
            yield f"size    {size.format_bytes(self.size_bytes)} unpacked"
            yield from size.lines(self.layers)


@dataclass(frozen=True, slots=True)
class Request:
    """An image that is asked for."""

    name: str
    """Its folder in images/."""
    parameters: OfImage
    build: bool = True
    push: bool = False
    no_cache: bool = False

    @property
    def torch(self) -> bool:
        return self.parameters.with_ == "torch"

    @property
    def pushes(self) -> bool:
        return self.push or bool(self.parameters.pin) or not self.build

    @property
    def base(self) -> str:
        """The base by its name; empty for NVIDIA's."""
        if self.name == slurm.NAME:
            return self.parameters.base or slurm.default_base(_gpu_type(self.parameters))
        return self.parameters.base or (GATEWAY_BASE if self.name == gateway.NAME else "")


def deliver(request: Request) -> ImageDelivered:
    """Build the image unless its content was built before; push it and pin it where asked. Raises BuildError."""
    with delivery.resumable():
        return _deliver(request)


def _deliver(request: Request) -> ImageDelivered:
    # A wrong request fails before anything is downloaded or built.
    _check(request)
    asked, progress = request.parameters, request.parameters.shown
    to_pin = load(root(), asked.pin) if asked.pin else None
    stack = load(root(), asked.stack) if asked.stack else to_pin
    architecture = _architecture(request, to_pin or stack)
    if to_pin:
        recipe.check_writable(to_pin.path.resolve().parent)
        if request.name == gateway.NAME and to_pin.fleet.serving is None:
            raise BuildInputError(
                f"{to_pin.path.name} has no serving:, whose gateway the image is\n    expected: --push, which names the"
                f" image\n    fix: leave --pin out, and write it as {image_inventory.GATEWAY}"
            )
    named = bases.named(asked.cuda or _cuda(request, to_pin or stack), _ubuntu(request), request.base)
    docker = Docker.find(os.environ)
    registry = _registry(asked, stack, docker) if request.pushes else None
    base = named or bases.custom(docker, request.base, f"linux/{architecture}", progress)

    with tempfile.TemporaryDirectory(prefix="paddock-build-") as folder:
        prepared = _prepare(request, base, architecture, Path(folder))
        programs = manifest.programs(prepared.context / "cuda")
        target = prepared.remote(registry) if registry else None
        digest = delivery.find(docker, prepared, target, no_cache=request.no_cache) if target else None
        in_registry, built = digest is not None, None
        if not in_registry and request.build:
            if request.torch and not asked.json.replaces_text:
                sys.stderr.write(f"PyTorch {runner.torch_version(root())} makes the image {_TORCH_SIZE} larger\n")
            built = delivery.build(
                docker,
                prepared,
                root(),
                no_cache=request.no_cache,
                cache_from=[stack.fleet.images.runner] if stack and stack.fleet.images.runner else [],
                progress=progress,
                verify=_verification(request, docker, base),
            )
        if request.name == slurm.NAME and not in_registry:
            slurm.name(docker, prepared)
        if target and not in_registry:
            digest = delivery.push(docker, prepared, target, progress)
    image = f"{target}@{digest}" if target else prepared.local
    if to_pin:
        _pin(to_pin, image, prepared)
    return _report(docker, prepared, image, built, pushed=request.pushes and not in_registry, programs=programs,
        pinned=asked.pin or None)  # fmt: skip


def _verification(request: Request, docker: Docker, base: Base) -> Callable[[str], None] | None:
    """Return the check of a built image, if there is one for it."""
    if request.name == slurm.NAME:
        return functools.partial(slurm.verify, docker)
    if request.name == gateway.NAME:
        return functools.partial(gateway.verify, docker)
    if request.name != runner.NAME:
        return None
    torch = runner.torch_version(root()) if request.torch else None
    return functools.partial(runner.verify, docker, base=base, torch=torch)


def _prepare(request: Request, base: Base, architecture: Architecture, scratch: Path) -> Prepared:
    project, build_args = root(), request.parameters.build_arg
    parts = {".": recipe.folder(project, request.name)}
    match request.name:
        case runner.NAME:
            plan = runner.make(project, base, architecture, build_args, torch=request.torch)
            parts = runner.parts(project, architecture, scratch, torch=request.torch)
        case slurm.NAME:
            plan = slurm.make(project, base, architecture, _gpu_type(request.parameters), build_args)
            parts = slurm.parts(project, architecture, scratch)
        case gateway.NAME:
            plan = gateway.make(project, base, architecture, build_args)
            parts = gateway.parts(project, architecture, scratch)
        case builder.NAME:
            plan = builder.make(project, base, architecture, build_args)
        case name:
            plan = recipe.plain(project, name, base, architecture, build_args)
    return recipe.prepare(plan, parts, scratch / request.name)


def _gpu_type(parameters: OfImage) -> slurm.GpuType:
    """Return the type of GPUs of a Slurm node, which may be an argument of the Dockerfile. Raises BuildInputError."""
    values = dict(word.partition("=")[::2] for word in parameters.build_arg)
    return slurm.gpu_type(values.get("GPU_TYPE", getattr(parameters, "gpu_type", "none")))


def _check(request: Request) -> None:
    """Check the flags against one another. Raises BuildInputError."""
    asked = request.parameters
    recipe.arguments(recipe.folder(root(), request.name) / "Dockerfile", {}, asked.build_arg)
    if asked.with_ and not request.torch:
        raise BuildInputError(
            f"--with {asked.with_}: not a part of {request.name}\n    expected: --with torch\n    fix: leave --with out"
        )
    if request.torch and asked.ubuntu == "22.04":
        raise BuildInputError(
            "--with torch: Ubuntu 22.04 has Python 3.10\n    expected: 3.11 or newer, which PyTorch's lock needs"
            "\n    fix: --ubuntu 24.04"
        )
    if asked.registry and not request.pushes:
        raise BuildInputError(
            "--registry says where to push, and nothing is to be pushed\n    expected: --push\n    fix: add --push"
        )
    if asked.registry:
        try:
            Reference.parse(f"{_plain(asked.registry)}/{request.name}")
        except BadReference:
            raise BuildInputError(
                f"--registry {asked.registry!r} does not name a registry"
                "\n    expected: HOST[/PREFIX], the prefix in lower case\n    fix: for example --registry ghcr.io/acme"
            ) from None
    if request.pushes and not (asked.registry or asked.stack or asked.pin):
        raise BuildInputError(
            "there is nowhere to push to\n    expected: a registry, or a stack that has one"
            "\n    fix: --registry HOST/PREFIX, or --stack dev"
        )


def _ubuntu(request: Request) -> str | None:
    """Return the Ubuntu that is asked for, or the one whose Python PyTorch's lock takes."""
    return request.parameters.ubuntu or (_PYTORCH_UBUNTU if request.torch and not request.base else None)


def _cuda(request: Request, stack: Stack | None) -> str | None:
    """Return the fleet's CUDA version, unless the base brings its own."""
    return stack.fleet.images.cuda if stack and not request.base else None


def _architecture(request: Request, stack: Stack | None) -> Architecture:
    """Return the flag's architecture, else the nodes'. Raises BuildInputError for a pin that they cannot run."""
    platform = request.parameters.platform or None
    if stack is None:
        return recipe.architecture(platform)
    runners = [name for name, runner in stack.fleet.runners.items() if not runner.image]
    nodes = image_inventory.processors(stack.fleet, runners)
    if request.name == gateway.NAME:
        nodes = image_inventory.system_processors(stack.fleet)
    chosen = recipe.architecture(platform, [processor for has in nodes.values() for processor in has])
    other = [pool for pool, has in nodes.items() if set(has) != {chosen}]
    if request.parameters.pin and other:
        required = " and ".join(dict.fromkeys(f"linux/{processor}" for processor in nodes[other[0]]))
        raise BuildInputError(
            f"an image for linux/{chosen} cannot be pinned in {stack.path.name}: the nodes of {other[0]} are"
            f" {required}\n    expected: --platform {required}\n    fix: leave --platform out, or leave --pin out"
        )
    return chosen


def _registry(parameters: OfImage, stack: Stack | None, docker: Docker) -> str:
    """HOST[/PREFIX] to push to, logged in where it is ECR."""
    if parameters.registry:
        registry = _plain(parameters.registry)
    else:
        assert stack is not None  # noqa: S101 - _check asks for a stack or a registry
        registry = f"{ecr.account_registry(stack.fleet.region)}/{stack.fleet.name}"
    host = registry.partition("/")[0]
    if ecr.is_ecr(host):
        ecr.login(docker, host)
    return registry


def _plain(registry: str) -> str:
    return registry.removeprefix("https://").rstrip("/")


def _pin(stack: Stack, image: str, prepared: Prepared) -> None:
    if prepared.recipe.name == gateway.NAME:
        pin(stack.path, {("serving", "gateway", "image"): image})
        return
    changes: dict[tuple[str, ...], Any] = {("images", "runner"): image}
    if prepared.recipe.base.cuda != stack.fleet.images.cuda:
        changes["images", "cuda"] = prepared.recipe.base.cuda
    pin(stack.path, changes)


def _report(
    docker: Docker,
    prepared: Prepared,
    image: str,
    built: Built | None,
    *,
    pushed: bool,
    programs: Sequence[str],
    pinned: str | None,
) -> ImageDelivered:
    local = docker.image(prepared.local) is not None
    layers = size.sizes(docker.layers(prepared.local)) if local else ()
    return ImageDelivered(
        image=image,
        content=prepared.content,
        cuda=prepared.recipe.base.cuda,
        cuda_programs=tuple(programs) or None,
        base=prepared.recipe.base.image,
        platform=prepared.recipe.platform,
        built=built,
        pushed=pushed,
        pinned=pinned,
        size_bytes=size.total(layers) if local else None,
        layers=layers,
    )
