"""Implementation of `inv images.build cuda-builder --run`, without Invoke."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from paddock.build.cuda import builder, manifest
from paddock.build.docker import Docker, progress_of
from paddock.build.images import delivery, size
from paddock.build.options import BuildOptions
from paddock.build.recipes import bases, recipe
from paddock.errors import Interrupted
from paddock.terminal import NO_JSON, JsonOutput, json_errors


@json_errors
def run(
    root: Path,
    options: BuildOptions,
    *,
    architectures: Sequence[str] = (),
    output: Path | None = None,
    json: JsonOutput = NO_JSON,
) -> None:
    """Compile the CUDA programs and leave them with their manifest in `output`, by default the checkout's own folder.

    Of `options` those of base, platform, cache and progress count. Raises BuildError.
    """
    with delivery.resumable():
        _run(root, options, architectures, output or root / manifest.FOLDER, json)


def _run(root: Path, options: BuildOptions, architectures: Sequence[str], folder: Path, json: JsonOutput) -> None:
    shown_progress = progress_of(options.progress, quiet=json.replaces_text)
    recipe.check_writable(folder)
    architecture = recipe.architecture(options.platform or None)
    named = bases.named(options.cuda, options.ubuntu, options.base)
    if named:
        builder.compiled(named, architectures)  # what it refuses is said before an engine is looked for
    docker = Docker.find(os.environ)
    chosen = named or bases.custom(docker, str(options.base), f"linux/{architecture}", shown_progress)
    with tempfile.TemporaryDirectory(prefix="paddock-cuda-") as scratch:
        plan = builder.make(root, chosen, architecture, requested=architectures)
        prepared = recipe.prepare(plan, {".": recipe.folder(root, plan.name)}, Path(scratch, plan.name))
        built = delivery.build(docker, prepared, root, no_cache=options.no_cache, progress=shown_progress) is not None
    compiled = builder.run(docker, prepared.local, folder)
    plain = compiled.model_dump(mode="json", by_alias=True)
    json.write({"image": prepared.local, "built": built, "folder": str(folder), "manifest": plain})
    if json.replaces_text:
        return
    _show(f"image     {prepared.local}{'' if built else ' (built before: unchanged)'}", compiled, folder)


@json_errors
def run_native(
    root: Path, *, architectures: Sequence[str] = (), output: Path | None = None, json: JsonOutput = NO_JSON
) -> None:
    """Compile the CUDA programs with the toolkit of this machine, without Docker. Raises BuildError."""
    folder = output or root / manifest.FOLDER
    recipe.check_writable(folder)
    try:
        compiled = builder.compile_here(root, folder, architectures)
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {folder} stays as it was: the same command compiles anew") from None
    plain = compiled.model_dump(mode="json", by_alias=True)
    json.write({"image": None, "built": True, "folder": str(folder), "manifest": plain})
    if not json.replaces_text:
        _show("here      without an image", compiled, folder)


def _show(first: str, compiled: manifest.Manifest, folder: Path) -> None:
    lines = [
        first,
        f"for       {compiled.platform}",
        f"compiled  by CUDA {compiled.toolkit} for {' '.join(f'sm_{number}' for number in compiled.architectures)}",
        f"needs     glibc {compiled.glibc} or newer",
        *(f"program   {folder / name}, {size.format_bytes(file.bytes)}" for name, file in compiled.files.items()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")
