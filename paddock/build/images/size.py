"""Disk use of an image, by layer."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paddock.build.docker import Layer

_SMALLEST_LISTED = 100_000
"""Bytes from which a layer is worth a line."""


def total(layers: Sequence[Layer]) -> int:
    """Unpacked. Of an image containerd's store tells the packed size."""
    return sum(layer.size_bytes for layer in layers)


def lines(layers: Sequence[Layer]) -> list[str]:
    """The layers by size, the largest first, each with what made it."""
    large = sorted(
        (layer for layer in layers if layer.size_bytes >= _SMALLEST_LISTED), key=lambda layer: -layer.size_bytes
    )
    return [f"{format_bytes(layer.size_bytes):>9}  {made_by(layer)}" for layer in large]


def format_bytes(size_bytes: int) -> str:
    """Decimal, as registries and `docker images` count."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def made_by(layer: Layer) -> str:
    """The instruction, without what BuildKit writes around it: `RUN bash /mnt/packages.sh`."""
    command = " ".join(layer.created_by.split())
    # RUN |1 NAME=value /bin/bash -c --mount=... command # buildkit
    command = re.sub(r"^(RUN )?(\|\d+ .*?)?/bin/\w*sh (?:-\w+ |pipefail )+", "RUN ", command)
    command = re.sub(r"--mount=\S+ ", "", command).removesuffix(" # buildkit")
    command = re.sub(r"^RUN #\(nop\) ", "", command)
    return (command if len(command) <= 80 else f"{command[:79]}…") or "files of the base"
