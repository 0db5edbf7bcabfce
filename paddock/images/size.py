"""Disk use of an image, by layer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from paddock.images.docker import Layer

_SMALLEST_LISTED = 100_000
"""Bytes from which a layer is worth a line."""


@dataclass(frozen=True, slots=True)
class LayerSize:
    """A layer as lists have it."""

    size_bytes: int
    """Unpacked."""
    made_by: str
    """The instruction, without what BuildKit writes around it: `RUN bash /mnt/packages.sh`."""


def sizes(layers: Iterable[Layer]) -> tuple[LayerSize, ...]:
    """Return the layers in their order, each with what made it."""
    return tuple(LayerSize(layer.size_bytes, _made_by(layer.created_by)) for layer in layers)


def total(layers: Iterable[LayerSize]) -> int:
    """Return the unpacked size. Of an image containerd's store tells the packed one."""
    return sum(layer.size_bytes for layer in layers)


def lines(layers: Iterable[LayerSize]) -> list[str]:
    """Return the layers by size, the largest first, each with what made it."""
    large = (layer for layer in layers if layer.size_bytes >= _SMALLEST_LISTED)
    ordered = sorted(large, key=lambda layer: -layer.size_bytes)
    return [f"{format_bytes(layer.size_bytes):>9}  {layer.made_by}" for layer in ordered]


def format_bytes(size_bytes: int) -> str:
    """Return a size in decimal units, as registries and `docker images` count."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def _made_by(command: str) -> str:
    command = " ".join(command.split())
    # RUN |1 NAME=value /bin/bash -c --mount=... command # buildkit
    command = re.sub(r"^(RUN )?(\|\d+ .*?)?/bin/\w*sh (?:-\w+ |pipefail )+", "RUN ", command)
    command = re.sub(r"--mount=\S+ ", "", command).removesuffix(" # buildkit")
    command = re.sub(r"^RUN #\(nop\) ", "", command)
    return (command if len(command) <= 80 else f"{command[:79]}…") or "files of the base"
