"""The CUDA programs that `cuda-build/` of a checkout holds for images."""

from __future__ import annotations

from pathlib import Path

FOLDER = "cuda-build"


def of_checkout(root: Path) -> Path | None:
    """The folder with programs and manifest, its sums checked; None where nothing was built. Raises BuildInputError."""
    folder = root / FOLDER
    if not (folder / "manifest.json").is_file():
        return None
    from paddock.build.cuda import manifest

    manifest.read(folder)
    return folder
