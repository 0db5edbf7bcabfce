"""From sources to programs in a folder of the host, by an image with the toolkit."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from paddock import catalog, files
from paddock.errors import did_you_mean, nearest, printable
from paddock.images.cuda import manifest
from paddock.images.docker import Docker
from paddock.images.errors import BuildError, BuildInputError
from paddock.images.recipes import recipe
from paddock.images.recipes.bases import Base
from paddock.images.recipes.recipe import Architecture, Recipe

NAME = "cuda-builder"
_WRITTEN = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)", re.ASCII)


def compiled(base: Base, requested: Sequence[str]) -> tuple[str, ...]:
    """The architectures to compile for. Raises BuildInputError.

    Of a base that does not say which CUDA it holds the build finds out: then none means all, and none is refused here.
    """
    return architectures(base.cuda, requested) if base.cuda else numbers(requested)


def make(
    root: Path, base: Base, architecture: Architecture, build_args: Sequence[str] = (), requested: Sequence[str] = ()
) -> Recipe:
    """Return the recipe for these architectures, or all. `build_args` are NAME=VALUE. Raises BuildInputError."""
    return recipe.plain(
        root, NAME, base, architecture, build_args, own={"ARCHITECTURES": " ".join(compiled(base, requested))}
    )


def run(docker: Docker, image: str, output: Path) -> manifest.Manifest:
    """Leaves the image's programs and their manifest in `output`, which is made, as files of this user.

    Raises BuildError.
    """
    output.mkdir(parents=True, exist_ok=True)
    finished = docker.run(image, volumes={output.resolve(): "/output"}, user=f"{os.getuid()}:{os.getgid()}")
    if finished.code:
        raise BuildError(f"no programs came out of {image}: {finished.stderr.strip()}")
    return manifest.read(output)


def compile_here(root: Path, output: Path, requested: Sequence[str] = ()) -> manifest.Manifest:
    """Compile with the toolkit of this machine, and leave the programs and then their manifest in `output`.

    For the architectures of `requested`, or all that the toolkit has. Raises BuildError.
    """
    environ = {**os.environ, "ARCHITECTURES": " ".join(numbers(requested)), "CUDA": ""}
    environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/cuda/bin"])
    if shutil.which("nvcc", path=environ["PATH"]) is None:
        raise BuildInputError(
            "there is no nvcc on PATH or in /usr/local/cuda/bin"
            "\n    expected: NVIDIA's CUDA toolkit, and a C++ compiler"
            "\n    fix: install them, or leave --native out and add --run: the image brings them"
        )
    with tempfile.TemporaryDirectory(prefix="paddock-cuda-") as scratch:
        script = root / "images" / NAME / "compile.sh"
        finished = subprocess.run([script, scratch], env=environ, capture_output=True, text=True, check=False)
        if finished.returncode:
            raise BuildError(f"the CUDA programs do not compile here:\n{printable(finished.stderr.strip())}")
        compiled = manifest.read(Path(scratch))
        output.mkdir(parents=True, exist_ok=True)
        for name in (*compiled.files, manifest.NAME):
            source = Path(scratch, name)
            files.write(output / name, source.read_bytes(), mode=source.stat().st_mode & 0o777)
    return compiled


def architectures(toolkit: str, requested: Sequence[str] = ()) -> tuple[str, ...]:
    """Return nvcc's numbers ("90" is compute capability 9.0), ascending: all of the toolkit's, or the requested ones.

    An architecture may be asked for as `90`, `9.0` or `sm_90`. Raises BuildInputError for a toolkit or an architecture
    that the catalogue does not hold, and for one that the toolkit dropped or does not know yet.
    """
    if toolkit.split(".")[:2] not in [version.split(".") for version in catalog.cuda_toolkits()]:
        raise BuildInputError(
            f"there is no CUDA {toolkit}\n    expected: one of {', '.join(catalog.cuda_toolkits())}"
            f"\n    fix: {did_you_mean(toolkit, catalog.cuda_toolkits(), 'choose one of these')}"
        )
    chosen = numbers(requested) or tuple(number for number in _catalogued() if _has(toolkit, number))
    for number in chosen:
        if not _has(toolkit, number):
            raise _refused(toolkit, number)
    return chosen


def numbers(requested: Iterable[str]) -> tuple[str, ...]:
    """The architectures asked for as nvcc numbers them, ascending. Raises BuildInputError for anything else."""
    return tuple(sorted({_number(text) for text in requested}, key=int))


def _catalogued() -> list[str]:
    """Return the architectures of every GPU of the catalogue, ascending."""
    return sorted({gpu.compute_capability.replace(".", "") for gpu in catalog.gpus().values()}, key=int)


def _gpus(architecture: str) -> list[catalog.Gpu]:
    return [gpu for gpu in catalog.gpus().values() if gpu.compute_capability.replace(".", "") == architecture]


def _has(toolkit: str, architecture: str) -> bool:
    return any(gpu.runs_cuda(toolkit) for gpu in _gpus(architecture))


def _number(text: str) -> str:
    written = _WRITTEN.fullmatch(text.strip())
    number = "".join(written.groups()) if written else text
    if number in _catalogued():
        return number
    near = nearest(number, _catalogued(), 0.5)
    raise BuildInputError(
        f"no GPU of the catalogue has the architecture {text}\n    expected: of {_sm_list(_catalogued())}"
        f"\n    fix: {f'did you mean sm_{near}?' if near else 'leave it out for all of them'}"
    )


def _refused(toolkit: str, architecture: str) -> BuildInputError:
    have = [version for version in catalog.cuda_toolkits() if _has(version, architecture)]
    dropped = catalog.version(toolkit) > catalog.version(have[-1])
    why = "no longer compiles" if dropped else "does not yet compile"
    which = f"the last that does is {have[-1]}" if dropped else f"the first that does is {have[0]}"
    names = ", ".join(gpu.name for gpu in _gpus(architecture))
    return BuildInputError(
        f"CUDA {toolkit} {why} for sm_{architecture} ({names}): {which}"
        f"\n    expected: one of CUDA {', '.join(have)}, or of {_sm_list(architectures(toolkit))}"
        f"\n    fix: --cuda {have[-1] if dropped else have[0]}, or leave sm_{architecture} out"
    )


def _sm_list(numbers: Iterable[str]) -> str:
    return " ".join(f"sm_{number}" for number in numbers)
