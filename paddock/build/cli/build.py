"""Implementations of `inv runner.build`, `inv images.build` and `inv runner.push`, without Invoke."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from paddock.build.cuda import builder, manifest
from paddock.build.docker import Built, Docker, progress_of
from paddock.build.errors import BuildInputError
from paddock.build.images import delivery, ecr, image_inventory, runner, size, slurm
from paddock.build.options import BuildOptions
from paddock.build.pin import pin
from paddock.build.recipes import bases, recipe
from paddock.build.recipes.bases import Base
from paddock.build.recipes.recipe import Architecture, Prepared
from paddock.fleet import Stack, load
from paddock.image_reference import BadReference, Reference
from paddock.terminal import NO_JSON, JsonOutput, json_errors

_PYTORCH_UBUNTU = "24.04"
_TORCH_SIZE = "5.7 GB"
"""Of the lock `torch`, unpacked, with CUDA's libraries; half of it is downloaded."""


@json_errors
def build_runner(root: Path, options: BuildOptions, *, json: JsonOutput = NO_JSON) -> None:
    """Build the runner image unless this content was built before; push and pin it if asked. Raises BuildError."""
    _deliver(_Request(root, runner.NAME, options, json))


@json_errors
def build_image(root: Path, name: str, options: BuildOptions, *, json: JsonOutput = NO_JSON) -> None:
    """Build the image of any folder in `images/` unless this content was built before. Raises BuildError."""
    if name == slurm.NAME:
        options = replace(options, base=options.base or slurm.default_base(_gpu_type(options.build_args)))
    _deliver(_Request(root, name, options, json))


@json_errors
def build_slurm(root: Path, gpu_type: str, options: BuildOptions, *, json: JsonOutput = NO_JSON) -> None:
    """Build the image of a Slurm node for GPUs of a type unless this content was built before. Raises BuildError."""
    kind = slurm.gpu_type(gpu_type)
    base, build_args = options.base or slurm.default_base(kind), [f"GPU_TYPE={kind}", *(options.build_args or ())]
    _deliver(_Request(root, slurm.NAME, replace(options, base=base, build_args=build_args), json))


def _gpu_type(build_args: Sequence[str] | None) -> slurm.GpuType:
    """Return the type among arguments of the Dockerfile. Raises BuildInputError."""
    values = dict(word.partition("=")[::2] for word in build_args or ())
    return slurm.gpu_type(values.get("GPU_TYPE", "none"))


@json_errors
def push_runner(root: Path, options: BuildOptions, *, json: JsonOutput = NO_JSON) -> None:
    """Push the runner image that was built of this content, and pin it if asked. Raises BuildError."""
    _deliver(_Request(root, runner.NAME, options, json, build=False))


@dataclass(frozen=True, slots=True)
class _Request:
    root: Path
    name: str
    options: BuildOptions
    json: JsonOutput
    build: bool = True

    @property
    def torch(self) -> bool:
        return self.options.with_ == "torch"

    @property
    def pushes(self) -> bool:
        return self.options.push or bool(self.options.pin) or not self.build


def _deliver(request: _Request) -> None:
    with delivery.resumable():
        _build_and_push(request)


def _build_and_push(request: _Request) -> None:
    # What can be wrong with the request is said before anything is downloaded or built.
    _check(request)
    progress = progress_of(request.options.progress, quiet=request.json.replaces_text)
    to_pin = load(request.root, request.options.pin) if request.options.pin else None
    stack = load(request.root, request.options.stack) if request.options.stack else to_pin
    architecture = _architecture(request, to_pin or stack)
    if to_pin:
        recipe.check_writable(to_pin.path.resolve().parent)
    named = bases.named(request.options.cuda or _cuda(request, to_pin or stack), _ubuntu(request), request.options.base)
    docker = Docker.find(os.environ)
    registry = _registry(request, stack, docker) if request.pushes else None
    base = named or bases.custom(docker, str(request.options.base), f"linux/{architecture}", progress)

    with tempfile.TemporaryDirectory(prefix="paddock-build-") as folder:
        prepared = _prepare(request, base, architecture, Path(folder))
        programs = manifest.programs(prepared.context / "cuda")
        target = prepared.remote(registry) if registry else None
        digest = delivery.find(docker, prepared, target, no_cache=request.options.no_cache) if target else None
        in_registry, built = digest is not None, None
        if not in_registry and request.build:
            if request.torch and not request.json.replaces_text:
                sys.stderr.write(f"PyTorch {runner.torch_version(request.root)} makes the image {_TORCH_SIZE} larger\n")
            built = delivery.build(
                docker,
                prepared,
                request.root,
                no_cache=request.options.no_cache,
                cache_from=[stack.fleet.images.runner] if stack and stack.fleet.images.runner else [],
                progress=progress,
                verify=_verification(request, docker, base),
            )
        if request.name == slurm.NAME and not in_registry:
            slurm.name(docker, prepared)
        if target and not in_registry:
            digest = delivery.push(docker, prepared, target, progress)
    if to_pin:
        _pin(to_pin, f"{target}@{digest}", prepared)
    image = f"{target}@{digest}" if target else prepared.local
    _report(request, docker, prepared, image, built, programs, in_registry=in_registry)


def _verification(request: _Request, docker: Docker, base: Base) -> Callable[[str], None] | None:
    """Return the check of a built image, if there is one for it."""
    if request.name == slurm.NAME:
        return functools.partial(slurm.verify, docker)
    if request.name != runner.NAME:
        return None
    torch = runner.torch_version(request.root) if request.torch else None
    return functools.partial(runner.verify, docker, base=base, torch=torch)


def _prepare(request: _Request, base: Base, architecture: Architecture, scratch: Path) -> Prepared:
    parts = {".": recipe.folder(request.root, request.name)}
    match request.name:
        case runner.NAME:
            plan = runner.make(request.root, base, architecture, request.options.build_args or (), torch=request.torch)
            parts = runner.parts(request.root, architecture, scratch, torch=request.torch)
        case slurm.NAME:
            plan = slurm.make(request.root, base, architecture, "none", request.options.build_args or ())
            parts = slurm.parts(request.root, architecture, scratch)
        case builder.NAME:
            plan = builder.make(request.root, base, architecture, request.options.build_args or ())
        case name:
            plan = recipe.plain(request.root, name, base, architecture, request.options.build_args or ())
    return recipe.prepare(plan, parts, scratch / request.name)


def _check(request: _Request) -> None:
    """Raises BuildInputError for flags that are no sense together."""
    recipe.arguments(recipe.folder(request.root, request.name) / "Dockerfile", {}, request.options.build_args or ())
    if request.options.pin and request.name != runner.NAME:
        raise BuildInputError(
            f"{request.name} cannot be pinned: a stack names the image of its runners alone"
            f"\n    expected: --pin with {runner.NAME}\n    fix: leave --pin out"
        )
    if request.options.with_ and not (request.torch and request.name == runner.NAME):
        raise BuildInputError(
            f"--with {request.options.with_}: there is no such part of {request.name}"
            f"\n    expected: --with torch, with {runner.NAME}\n    fix: leave --with out"
        )
    if request.torch and request.options.ubuntu == "22.04":
        raise BuildInputError(
            "--with torch: Ubuntu 22.04 has Python 3.10\n    expected: 3.11 or newer, which PyTorch's lock needs"
            "\n    fix: --ubuntu 24.04"
        )
    if request.options.registry and not request.pushes:
        raise BuildInputError(
            "--registry says where to push, and nothing is to be pushed\n    expected: --push\n    fix: add --push"
        )
    if request.options.registry:
        try:
            Reference.parse(f"{_plain(request.options.registry)}/{request.name}")
        except BadReference:
            raise BuildInputError(
                f"--registry {request.options.registry!r} names no registry"
                "\n    expected: HOST[/PREFIX], the prefix in lower case\n    fix: for example --registry ghcr.io/acme"
            ) from None
    if request.pushes and not (request.options.registry or request.options.stack or request.options.pin):
        raise BuildInputError(
            "there is nowhere to push to\n    expected: a registry, or a stack that has one"
            "\n    fix: --registry HOST/PREFIX, or --stack dev"
        )


def _ubuntu(request: _Request) -> str | None:
    """Return the Ubuntu that is asked for, or the one whose Python PyTorch's lock takes."""
    return request.options.ubuntu or (_PYTORCH_UBUNTU if request.torch and not request.options.base else None)


def _cuda(request: _Request, stack: Stack | None) -> str | None:
    """Return the fleet's CUDA version, unless the base brings its own."""
    return stack.fleet.images.cuda if stack and not request.options.base else None


def _architecture(request: _Request, stack: Stack | None) -> Architecture:
    """Return the flag's architecture, else the nodes'. Raises BuildInputError for a pin that they cannot run."""
    if stack is None:
        return recipe.architecture(request.options.platform or None)
    runners = [name for name, runner in stack.fleet.runners.items() if not runner.image]
    nodes = image_inventory.processors(stack.fleet, runners)
    chosen = recipe.architecture(
        request.options.platform or None, [processor for has in nodes.values() for processor in has]
    )
    other = [pool for pool, has in nodes.items() if set(has) != {chosen}]
    if request.options.pin and other:
        required = " and ".join(dict.fromkeys(f"linux/{processor}" for processor in nodes[other[0]]))
        raise BuildInputError(
            f"an image for linux/{chosen} cannot be pinned in {stack.path.name}: the nodes of pool {other[0]} are"
            f" {required}\n    expected: --platform {required}\n    fix: leave --platform out, or leave --pin out"
        )
    return chosen


def _registry(request: _Request, stack: Stack | None, docker: Docker) -> str:
    """HOST[/PREFIX] to push to, logged in where it is ECR."""
    if request.options.registry:
        registry = _plain(request.options.registry)
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
    changes: dict[tuple[str, ...], Any] = {("images", "runner"): image}
    if prepared.recipe.base.cuda != stack.fleet.images.cuda:
        changes["images", "cuda"] = prepared.recipe.base.cuda
    pin(stack.path, changes)


def _report(
    request: _Request,
    docker: Docker,
    prepared: Prepared,
    image: str,
    built: Built | None,
    programs: Sequence[str],
    *,
    in_registry: bool,
) -> None:
    local = docker.image(prepared.local)
    layers = docker.layers(prepared.local) if local else ()
    request.json.write(
        {
            "image": image,
            "content": prepared.content,
            "cuda": prepared.recipe.base.cuda,
            "cuda_programs": programs or None,
            "base": prepared.recipe.base.image,
            "platform": prepared.recipe.platform,
            "built": {"seconds": built.seconds, "steps": built.steps, "cached": built.cached} if built else None,
            "pushed": request.pushes and not in_registry,
            "pinned": request.options.pin,
            "size_bytes": size.total(layers) if local else None,
            "layers": [{"size_bytes": layer.size_bytes, "made_by": size.made_by(layer)} for layer in layers],
        }
    )
    if request.json.replaces_text:
        return
    how = f"{built.steps} steps, {built.cached} of them cached, {built.seconds:.1f} s" if built else "before: unchanged"
    lines = [f"image   {image}", f"built   {how}"]
    if request.name == runner.NAME and not programs:
        make = f"./inv images.build {builder.NAME} --run --platform {prepared.recipe.platform}"
        lines.append(f"cuda    without programs, since there is no {manifest.FOLDER}/; to make it: {make}")
    if request.pushes:
        lines.append(f"pushed  {'before: the registry has it' if in_registry else 'now'}")
    if request.options.pin:
        lines.append(f"pinned  Pulumi.{request.options.pin}.yaml")
    if local:
        lines += [f"size    {size.format_bytes(size.total(layers))} unpacked", *size.lines(layers)]
    sys.stdout.write("\n".join(lines) + "\n")
