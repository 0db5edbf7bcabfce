"""What `inv build-image cuda-builder --run` does, without Invoke."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

from paddock.build import artefacts, bases, size
from paddock.build.cuda import builder
from paddock.build.docker import Docker, Progress
from paddock.build.told import print_json, told


@told
def run(
    root: Path,
    *,
    cuda: str | None = None,
    ubuntu: str | None = None,
    base: str | None = None,
    architectures: Sequence[str] = (),
    output: Path | None = None,
    no_cache: bool = False,
    progress: Progress = "auto",
    as_json: bool = False,
) -> None:
    """Compiles the CUDA programs and leaves them with their manifest in `output`, by default the checkout's own folder.

    On `base`, any image with nvcc, or NVIDIA's of `cuda` on `ubuntu`. Raises BuildError.
    """
    folder = output or root / artefacts.FOLDER
    if base is None:
        chosen = bases.published(cuda or bases.DEFAULT_CUDA, ubuntu or bases.DEFAULT_UBUNTU)
        builder.compiled(chosen, architectures)  # said before an engine is looked for
        docker = Docker.find(os.environ)
    else:
        docker = Docker.find(os.environ)
        chosen = bases.given(docker, base)
    prepared, built, manifest = builder.programs(
        root, docker, chosen, architectures, folder, no_cache=no_cache, progress="quiet" if as_json else progress
    )
    if as_json:
        plain = manifest.model_dump(mode="json", by_alias=True)
        print_json({"image": prepared.local, "built": built, "folder": str(folder), "manifest": plain})
        return
    lines = [
        f"image     {prepared.local}{'' if built else ' (built before: unchanged)'}",
        f"compiled  by CUDA {manifest.toolkit} for {' '.join(f'sm_{each}' for each in manifest.architectures)}",
        f"needs     glibc {manifest.glibc} or newer",
        *(f"program   {folder / name}, {size.shown(file.bytes)}" for name, file in manifest.files.items()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
