"""What `inv build-runner`, `inv build-image` and `inv push-runner` do, without Invoke."""

from __future__ import annotations

import functools
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict, Unpack

from paddock.build.cli.output import print_json, progress_of, told
from paddock.build.cuda import artefacts, builder
from paddock.build.docker import Built, Docker
from paddock.build.docker.names import Reference
from paddock.build.errors import BuildInputError
from paddock.build.images import delivery, ecr, image_inventory, runner, size
from paddock.build.pin import pin
from paddock.build.recipes import bases, recipe
from paddock.build.recipes.bases import Base
from paddock.build.recipes.recipe import Architecture, Prepared
from paddock.fleet import Stack, load


class Flags(TypedDict, total=False):
    """Of all three commands, each as if it were not there when it is None, False or empty."""

    cuda: str | None
    ubuntu: str | None
    base: str | None
    """Any image of the Debian family, in place of NVIDIA's with `cuda` on `ubuntu`."""
    platform: str | None
    """linux/amd64 or linux/arm64; by default that of the stack's nodes, without a stack this machine's."""
    push: bool
    registry: str | None
    """HOST[/PREFIX]; by default the fleet's, in the account of the AWS credentials."""
    stack: str | None
    """Whose registry and CUDA are the defaults."""
    pin: str | None
    """The stack whose runners shall use the image: pushes, then writes its digest there."""
    no_cache: bool
    progress: str
    """auto, plain or quiet."""
    build_args: Sequence[str]
    """NAME=VALUE for arguments of the Dockerfile."""
    as_json: bool


@told
def build_runner(root: Path, **flags: Unpack[Flags]) -> None:
    """Builds the runner image unless this content was built before; pushes and pins when asked. Raises BuildError."""
    _deliver(_Wish(root, runner.NAME, **flags))


@told
def build_image(root: Path, name: str, **flags: Unpack[Flags]) -> None:
    """The same for the image of any folder in `images/`. Raises BuildError."""
    _deliver(_Wish(root, name, **flags))


@told
def push_runner(root: Path, **flags: Unpack[Flags]) -> None:
    """Pushes the runner image that was built of this content, and pins it when asked. Raises BuildError."""
    _deliver(_Wish(root, runner.NAME, build=False, **flags))


@dataclass(frozen=True, slots=True)
class _Wish:
    root: Path
    name: str
    cuda: str | None = None
    ubuntu: str | None = None
    base: str | None = None
    platform: str | None = None
    push: bool = False
    registry: str | None = None
    stack: str | None = None
    pin: str | None = None
    no_cache: bool = False
    progress: str = "auto"
    build_args: Sequence[str] = ()
    as_json: bool = False
    build: bool = True

    @property
    def pushes(self) -> bool:
        return self.push or bool(self.pin) or not self.build


def _deliver(wish: _Wish) -> None:
    # What can be wrong with the wish is said before anything is downloaded or built.
    _check(wish)
    progress = progress_of(wish.progress, wish.as_json)
    to_pin = load(wish.root, wish.pin) if wish.pin else None
    stack = load(wish.root, wish.stack) if wish.stack else to_pin
    architecture = _architecture(wish, to_pin or stack)
    if to_pin:
        recipe.check_writable(to_pin.path.resolve().parent)
    named = bases.named(wish.cuda or _cuda(wish, to_pin or stack), wish.ubuntu, wish.base)
    docker = Docker.find(os.environ)
    registry = _registry(wish, stack, docker) if wish.pushes else None
    base = named or bases.given(docker, str(wish.base), f"linux/{architecture}", progress)

    with tempfile.TemporaryDirectory(prefix="paddock-build-") as folder:
        prepared = _prepare(wish, base, architecture, Path(folder))
        programs = artefacts.programs(prepared.context / "cuda")
        target = prepared.remote(registry) if registry else None
        digest = delivery.find(docker, prepared, target, no_cache=wish.no_cache) if target else None
        found, built = digest is not None, None
        if not found and wish.build:
            built = delivery.build(
                docker,
                prepared,
                wish.root,
                no_cache=wish.no_cache,
                cache_from=[stack.fleet.images.runner] if stack and stack.fleet.images.runner else [],
                progress=progress,
                verify=functools.partial(runner.verify, docker, base=base) if wish.name == runner.NAME else None,
            )
        if target and not found:
            digest = delivery.push(docker, prepared, target, progress)
    if to_pin:
        _pin(to_pin, f"{target}@{digest}", prepared)
    image = f"{target}@{digest}" if target else prepared.local
    _report(wish, docker, prepared, image, built, programs, found=found)


def _prepare(wish: _Wish, base: Base, architecture: Architecture, scratch: Path) -> Prepared:
    parts = {".": recipe.folder(wish.root, wish.name)}
    match wish.name:
        case runner.NAME:
            plan = runner.make(wish.root, base, architecture, wish.build_args)
            parts = runner.parts(wish.root, architecture, scratch)
        case builder.NAME:
            plan = builder.make(wish.root, base, architecture, wish.build_args)
        case name:
            plan = recipe.plain(wish.root, name, base, architecture, wish.build_args)
    return recipe.prepare(plan, parts, scratch / wish.name)


def _check(wish: _Wish) -> None:
    """Raises BuildInputError for flags that are no sense together."""
    recipe.arguments(recipe.folder(wish.root, wish.name) / "Dockerfile", {}, wish.build_args)
    if wish.pin and wish.name != runner.NAME:
        raise BuildInputError(
            f"{wish.name} cannot be pinned: a stack names the image of its runners alone"
            f"\n    expected: --pin with {runner.NAME}\n    fix: leave --pin out"
        )
    if wish.registry and not wish.pushes:
        raise BuildInputError(
            "--registry says where to push, and nothing is to be pushed\n    expected: --push\n    fix: add --push"
        )
    if wish.registry:
        try:
            Reference.read(f"{_plain(wish.registry)}/{wish.name}")
        except BuildInputError:
            raise BuildInputError(
                f"--registry {wish.registry!r} names no registry\n    expected: HOST[/PREFIX], the prefix in lower case"
                "\n    fix: for example --registry ghcr.io/acme"
            ) from None
    if wish.pushes and not (wish.registry or wish.stack or wish.pin):
        raise BuildInputError(
            "there is nowhere to push to\n    expected: a registry, or a stack that has one"
            "\n    fix: --registry HOST/PREFIX, or --stack dev"
        )


def _cuda(wish: _Wish, stack: Stack | None) -> str | None:
    """That of the fleet, unless the base brings its own."""
    return stack.fleet.images.cuda if stack and not wish.base else None


def _architecture(wish: _Wish, stack: Stack | None) -> Architecture:
    """As the flag says, else what the stack's nodes are. Raises BuildInputError for a pin that they cannot run."""
    if stack is None:
        return recipe.architecture(wish.platform)
    runners = [name for name, runner in stack.fleet.runners.items() if not runner.image]
    nodes = image_inventory.processors(stack.fleet, runners)
    chosen = recipe.architecture(wish.platform, [each for has in nodes.values() for each in has])
    other = [pool for pool, has in nodes.items() if set(has) != {chosen}]
    if wish.pin and other:
        wanted = " and ".join(dict.fromkeys(f"linux/{each}" for each in nodes[other[0]]))
        raise BuildInputError(
            f"an image for linux/{chosen} cannot be pinned in {stack.path.name}: the nodes of pool {other[0]} are"
            f" {wanted}\n    expected: --platform {wanted}\n    fix: leave --platform out, or leave --pin out"
        )
    return chosen


def _registry(wish: _Wish, stack: Stack | None, docker: Docker) -> str:
    """HOST[/PREFIX] to push to, logged in where it is ECR."""
    if wish.registry:
        registry = _plain(wish.registry)
    else:
        assert stack is not None  # noqa: S101 - _check
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
    wish: _Wish,
    docker: Docker,
    prepared: Prepared,
    image: str,
    built: Built | None,
    programs: Sequence[str],
    *,
    found: bool,
) -> None:
    local = docker.image(prepared.local)
    layers = docker.layers(prepared.local) if local else ()
    if wish.as_json:
        print_json(
            {
                "image": image,
                "content": prepared.content,
                "cuda": prepared.recipe.base.cuda,
                "cuda_programs": programs or None,
                "base": prepared.recipe.base.image,
                "platform": prepared.recipe.platform,
                "built": {"seconds": built.seconds, "steps": built.steps, "cached": built.cached} if built else None,
                "pushed": wish.pushes and not found,
                "pinned": wish.pin,
                "size_bytes": size.total(layers) if local else None,
                "layers": [{"size_bytes": each.size_bytes, "made_by": size.made_by(each)} for each in layers],
            }
        )
        return
    how = f"{built.steps} steps, {built.cached} of them cached, {built.seconds:.1f} s" if built else "before: unchanged"
    lines = [f"image   {image}", f"built   {how}"]
    if wish.name == runner.NAME and not programs:
        make = f"./inv build-image {builder.NAME} --run --platform {prepared.recipe.platform}"
        lines.append(f"cuda    without programs, since there is no {artefacts.FOLDER}/; to make it: {make}")
    if wish.pushes:
        lines.append(f"pushed  {'before: the registry has it' if found else 'now'}")
    if wish.pin:
        lines.append(f"pinned  Pulumi.{wish.pin}.yaml")
    if local:
        lines += [f"size    {size.shown(size.total(layers))} unpacked", *size.lines(layers)]
    sys.stdout.write("\n".join(lines) + "\n")
