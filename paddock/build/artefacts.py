"""The CUDA programs that `cuda-build/` of a checkout holds for images."""

from __future__ import annotations

from pathlib import Path

from paddock.build.cuda import manifest

FOLDER = "cuda-build"


def of_checkout(root: Path) -> dict[str, Path]:
    """The programs and their manifest by name, sums checked; none where nothing was built. Raises BuildInputError."""
    folder = root / FOLDER
    if not (folder / manifest.NAME).is_file():
        return {}
    return {name: folder / name for name in (*manifest.read(folder).files, manifest.NAME)}
