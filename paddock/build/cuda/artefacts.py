"""The CUDA programs that `cuda-build/` of a checkout holds for images."""

from __future__ import annotations

from pathlib import Path

from paddock.build.cuda import manifest
from paddock.build.errors import BuildInputError

FOLDER = "cuda-build"


def of_checkout(root: Path, platform: str) -> dict[str, Path]:
    """The programs for `platform` and their manifest by name, sums checked; none where nothing was built.

    Raises BuildInputError, also where they are for another platform.
    """
    folder = root / FOLDER
    if not (folder / manifest.NAME).is_file():
        return {}
    programs_manifest = manifest.read(folder)
    if programs_manifest.platform != platform:
        raise BuildInputError(
            f"the CUDA programs in {folder} are for {programs_manifest.platform}, and the image is for {platform}"
            f"\n    expected: programs for {platform}, or no such folder"
            f"\n    fix: ./inv build-image cuda-builder --run --platform {platform}, or remove the folder"
        )
    return {name: folder / name for name in (*programs_manifest.files, manifest.NAME)}


def programs(folder: Path) -> list[str]:
    """Return the programs that a staged folder holds, by name."""
    return sorted(path.name for path in folder.glob("*") if path.name != manifest.NAME)
