"""`images.build cuda-builder --run` and `--native`: the CUDA programs and their manifest, in a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.catalog.cuda_match import tag_cuda
from paddock.console.project import root
from paddock.console.report import Report
from paddock.errors import Interrupted
from paddock.images import delivery, size
from paddock.images.commands.image import OfImage
from paddock.images.cuda import builder, manifest
from paddock.images.cuda.manifest import Manifest
from paddock.images.docker import Docker
from paddock.images.recipes import bases, recipe


@dataclass(frozen=True, kw_only=True)
class CudaPrograms(Report):
    """Programs that were compiled, with where they are."""

    SCHEMA = 1
    image: str | None
    """The image that compiled them; None where this machine did."""
    built: bool
    folder: str
    manifest: Manifest

    def text(self) -> Iterator[str]:
        compiled = self.manifest
        before = "" if self.built else " (built before: unchanged)"
        yield f"image     {self.image}{before}" if self.image else "here      without an image"
        yield f"for       {compiled.platform}"
        architectures = " ".join(f"sm_{number}" for number in compiled.architectures)
        yield f"compiled  by CUDA {compiled.toolkit} for {architectures}"
        yield f"needs     glibc {compiled.glibc} or newer"
        for name, file in compiled.files.items():
            yield f"program   {Path(self.folder, name)}, {size.format_bytes(file.bytes)}"

    def document(self) -> dict[str, Any]:
        own = self.manifest.model_dump(mode="json", by_alias=True)
        head = {"schema": self.SCHEMA, "image": self.image, "built": self.built}
        return {**head, "folder": self.folder, "manifest": own}


def compile_in_image(
    parameters: OfImage, architectures: Sequence[str], output: Path | None, *, no_cache: bool
) -> CudaPrograms:
    """Compile in the image and leave the programs in `output`, by default the checkout's own folder.

    Of the parameters those of base, platform and progress count. Raises BuildError.
    """
    folder, progress = output or root() / manifest.FOLDER, parameters.shown
    with delivery.resumable():
        recipe.check_writable(folder)
        architecture = recipe.architecture(parameters.platform or None)
        named = bases.named(parameters.cuda, parameters.ubuntu, parameters.base)
        # What cannot be compiled is refused before an engine is looked for.
        if says := named.cuda if named else tag_cuda(parameters.base):
            builder.architectures(says, architectures)
        docker = Docker.find(os.environ)
        chosen = named or bases.custom(docker, parameters.base, f"linux/{architecture}", progress)
        with tempfile.TemporaryDirectory(prefix="paddock-cuda-") as scratch:
            plan = builder.make(root(), chosen, architecture, requested=architectures)
            prepared = recipe.prepare(plan, {".": recipe.folder(root(), plan.name)}, Path(scratch, plan.name))
            built = delivery.build(docker, prepared, root(), no_cache=no_cache, progress=progress) is not None
        compiled = builder.run(docker, prepared.local, folder)
    return CudaPrograms(image=prepared.local, built=built, folder=str(folder), manifest=compiled)


def compile_here(architectures: Sequence[str], output: Path | None) -> CudaPrograms:
    """Compile with the toolkit of this machine, without Docker. Raises BuildError."""
    folder = output or root() / manifest.FOLDER
    recipe.check_writable(folder)
    try:
        compiled = builder.compile_here(root(), folder, architectures)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {folder} stays as it was: the same command compiles again") from None
    return CudaPrograms(image=None, built=True, folder=str(folder), manifest=compiled)
