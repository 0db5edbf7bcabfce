"""The CUDA programs that `cuda-build/` of a checkout holds for images, and their manifest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from paddock.images.errors import BuildInputError

FOLDER = "cuda-build"
NAME = "manifest.json"

FileName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9-]*$")]


class File(BaseModel):
    """One program."""

    model_config = ConfigDict(frozen=True)

    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
    bytes: int


class Manifest(BaseModel):
    """Programs of one build. `architectures` are those of their machine code, as nvcc numbers them ("90" is 9.0)."""

    model_config = ConfigDict(frozen=True)

    version: Literal[2] = Field(alias="schema")
    platform: str
    """Docker's name of the platform: linux/amd64, linux/arm64."""
    toolkit: str
    architectures: tuple[str, ...]
    glibc: str
    """The oldest C library that runs them."""
    files: Mapping[FileName, File]


def read(folder: Path) -> Manifest:
    """The manifest of `folder`, once every file that it names is there and has its checksum. Raises BuildInputError."""
    path = folder / NAME
    try:
        manifest = Manifest.model_validate_json(path.read_bytes())
    except OSError as error:
        raise _bad(path, f"cannot be read: {error.strerror}", "the manifest of CUDA programs") from None
    except ValidationError as error:
        wrong = error.errors(include_url=False)
        if any(detail["loc"] == ("schema",) for detail in wrong):
            raise _bad(path, "is of another version of Paddock", "a manifest of schema 2") from None
        at = ".".join(str(part) for part in wrong[0]["loc"])
        raise _bad(path, f"is not a manifest: {at + ': ' if at else ''}{wrong[0]['msg']}", "JSON of schema 2") from None
    for name, file in manifest.files.items():
        try:
            content = (folder / name).read_bytes()
        except OSError as error:
            raise _bad(folder / name, f"cannot be read: {error.strerror}", f"the program that {path} names") from None
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise _bad(folder / name, "is not what was built", f"{file.bytes} bytes with sha256 {file.sha256}")
    return manifest


def of_checkout(root: Path, platform: str) -> dict[str, Path]:
    """The programs for `platform` and their manifest by name, checksums checked; none where nothing was built.

    Raises BuildInputError, also where they are for another platform.
    """
    folder = root / FOLDER
    if not (folder / NAME).is_file():
        return {}
    programs_manifest = read(folder)
    if programs_manifest.platform != platform:
        raise BuildInputError(
            f"the CUDA programs in {folder} are for {programs_manifest.platform}, and the image is for {platform}"
            f"\n    expected: programs for {platform}, or no such folder"
            f"\n    fix: ./inv images.build cuda-builder --run --platform {platform}, or remove the folder"
        )
    return {name: folder / name for name in (*programs_manifest.files, NAME)}


def programs(folder: Path) -> list[str]:
    """Return the programs that a staged folder holds, by name."""
    return sorted(path.name for path in folder.glob("*") if path.name != NAME)


def _bad(path: Path, mistake: str, expected: str) -> BuildInputError:
    return BuildInputError(
        f"{path} {mistake}\n    expected: {expected}"
        f"\n    fix: ./inv images.build cuda-builder --run, or rm -r {path.parent} to build without CUDA programs"
    )
