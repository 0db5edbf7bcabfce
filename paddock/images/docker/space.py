"""Check that the engine's disk has room for a build."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.images.errors import BuildInputError

CONTAINERD = Path("/var/lib/containerd")
"""Folder of containerd as its own service, which keeps images for an engine that leaves them to it."""
_LEAVES_THEM = ["driver-type", "io.containerd.snapshotter.v1"]


def check(info: Mapping[str, Any], needed_bytes: int, action: str) -> None:
    """`info` is of `docker info`. An engine elsewhere is not asked. Raises BuildInputError."""
    for folder in _folders(info):
        free = shutil.disk_usage(folder).free
        if free < needed_bytes:
            raise BuildInputError(
                f"{action}: {free / 1e9:.1f} GB are free in {folder}, and it needs about {needed_bytes / 1e9:.1f} GB"
                "\n    expected: room for the image, its layers and the build cache"
                "\n    fix: docker builder prune, then docker image prune; docker system df shows what takes the room"
            )


def _folders(info: Mapping[str, Any]) -> Iterator[Path]:
    root = Path(info.get("DockerRootDir") or "")
    # An engine of another machine, or of a virtual one on this, has a name of its own.
    if info.get("Name") != platform.node() or not root.is_dir():
        return
    yield root
    if _LEAVES_THEM in (info.get("DriverStatus") or ()) and CONTAINERD.is_dir():
        yield CONTAINERD
