"""Where the room in an image goes."""

from __future__ import annotations

import re
from collections.abc import Sequence

from paddock.build.docker import Layer

_SHOWN = 100_000
"""Bytes from which a layer is worth a line."""


def total(layers: Sequence[Layer]) -> int:
    """Unpacked. Of an image containerd's store tells the packed size."""
    return sum(each.size_bytes for each in layers)


def lines(layers: Sequence[Layer]) -> list[str]:
    """The layers by size, the largest first, each with what made it."""
    large = sorted((each for each in layers if each.size_bytes >= _SHOWN), key=lambda each: -each.size_bytes)
    return [f"{shown(each.size_bytes):>9}  {made_by(each)}" for each in large]


def shown(size_bytes: int) -> str:
    """Decimal, as registries and `docker images` count."""
    return f"{size_bytes / 1e9:.2f} GB" if size_bytes >= 1e9 else f"{size_bytes / 1e6:.1f} MB"


def made_by(layer: Layer) -> str:
    """The instruction, without what BuildKit writes around it: `RUN bash /mnt/packages.sh`."""
    said = " ".join(layer.created_by.split())
    # RUN |1 NAME=value /bin/bash -c --mount=... command # buildkit
    said = re.sub(r"^(RUN )?(\|\d+ .*?)?/bin/\w*sh (?:-\w+ |pipefail )+", "RUN ", said)
    said = re.sub(r"--mount=\S+ ", "", said).removesuffix(" # buildkit")
    said = re.sub(r"^RUN #\(nop\) ", "", said)
    return (said if len(said) <= 80 else f"{said[:79]}…") or "files of the base"
