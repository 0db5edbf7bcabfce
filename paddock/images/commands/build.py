"""`images.build`: an image of images/, what an image compiles, or the wheel of nodes."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from paddock.console.command import command
from paddock.console.output import BadFlag, caller_path
from paddock.console.parameters import parameter
from paddock.console.project import root
from paddock.console.report import Report
from paddock.images import gateway, runner, slurm
from paddock.images.commands import cuda
from paddock.images.commands.image import ImageDelivered, OfImage, Request, deliver, folder_name
from paddock.images.cuda import builder
from paddock.images.recipes import recipe, wheels

WHEEL = "wheel"
_ONLY = {
    "with_": (runner.NAME,),
    "pin": (runner.NAME, gateway.NAME),
    "gpu_type": (slurm.NAME,),
    "run": (builder.NAME,),
    "native": (builder.NAME,),
    "architectures": (builder.NAME,),
    "output": (builder.NAME, WHEEL),
}
"""Parameters that say something to some images alone."""
_OWN_BASE = (slurm.NAME, gateway.NAME)
"""Images that are not built on CUDA."""
_ENGINE = ("base", "cuda", "ubuntu", "platform", "no_cache")
"""Parameters of what an engine builds."""
_DELIVERY = ("push", "registry", "stack", "build_arg")
"""Parameters of an image that stays."""


@dataclass(frozen=True, kw_only=True)
class Build(OfImage):
    """Parameters of `images.build`."""

    name: str = parameter(..., "runner, slurm, gateway, cuda-builder or another folder of images/; or wheel")
    push: bool = parameter(False, "push it, unless the registry has it")
    no_cache: bool = parameter(False, "build every step again")
    gpu_type: Literal["nvidia", "amd", "none"] = parameter(
        "none",
        "slurm only: nvidia, amd or none: the base, and Slurm's plugin for it where the distribution has one",
    )
    run: bool = parameter(False, "cuda-builder only: compile, and leave the programs and their manifest in cuda-build/")
    native: bool = parameter(False, "cuda-builder only: compile with this machine's CUDA toolkit, without Docker")
    architectures: tuple[str, ...] = parameter((), "with --run or --native: only these, such as 75,90")
    output: Path | None = parameter(None, "the folder for what is compiled, or for the wheel: dist by default")


@dataclass(frozen=True, kw_only=True)
class WheelBuilt(Report):
    """The wheel that a node installs: the GPU commands, smoke test, benchmark and catalogue, as in runner images."""

    SCHEMA = 1
    wheel: str
    bytes: int

    def text(self) -> Iterator[str]:
        yield self.wheel
        yield f"to install it: uv tool install {self.wheel}, or pipx install {self.wheel}"


@command()
def build(parameters: Build) -> ImageDelivered | cuda.CudaPrograms | WheelBuilt:
    """Build what has the name. Raises BuildError, and BadFlag for a flag that does not apply to it."""
    name = folder_name(parameters.name)
    if name != WHEEL:
        recipe.folder(root(), name)
    _check(name, parameters)
    if name == WHEEL:
        return _wheel(parameters.output or caller_path("dist"))
    if parameters.native:
        return cuda.compile_here(parameters.architectures, parameters.output)
    if parameters.run:
        return cuda.compile_in_image(
            parameters, parameters.architectures, parameters.output, no_cache=parameters.no_cache
        )
    return deliver(Request(name, parameters, push=parameters.push, no_cache=parameters.no_cache))


def _check(name: str, parameters: Build) -> None:
    given = parameters.changed() - {"name"}
    silent = given - {"output"} if name == WHEEL else {flag for flag in given if name not in _ONLY.get(flag, (name,))}
    if name in _OWN_BASE:
        silent |= given & {"cuda", "ubuntu"}
    for flag in sorted(silent):
        images = " or ".join(_ONLY.get(flag, ("another image of images/",)))
        raise BadFlag(
            f"{_flag(flag)} does not apply to {name}\n    expected: {_flag(flag)} with {images}"
            f"\n    fix: leave {_flag(flag)} out"
        )
    if parameters.run or parameters.native:
        way = "--native" if parameters.native else "--run"
        for flag in (*_DELIVERY, *(_ENGINE if parameters.native else ())):
            if flag in given:
                raise BadFlag(f"{_flag(flag)} and {way} exclude each other\n    fix: leave one of them out")
    elif name == builder.NAME:
        for flag in ("architectures", "output"):
            if flag in given:
                raise BadFlag(
                    f"--{flag} says what the image's run does\n    fix: add --run or --native, or leave --{flag} out"
                )


def _flag(name: str) -> str:
    return f"--{name.removesuffix('_').replace('_', '-')}"


def _wheel(folder: Path) -> WheelBuilt:
    recipe.check_writable(folder)
    with tempfile.TemporaryDirectory(prefix="paddock-dist-") as scratch:
        built = wheels.of_project(root(), Path(scratch))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / built.name
        path.write_bytes(built.read_bytes())
    return WheelBuilt(wheel=str(path), bytes=path.stat().st_size)
