"""Options of the commands that build an image, declared once for Python and for the command line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


def _option(default: Any, text: str) -> Any:
    return field(default=default, metadata={"help": text})


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildOptions:
    """None, False or empty is the same as no such option."""

    cuda: str | None = _option("", "the CUDA toolkit, such as 12.8")
    ubuntu: str | None = _option("", "the Ubuntu below it: 22.04 or 24.04")
    base: str | None = _option("", "any image of the Debian family, in place of NVIDIA's with --cuda on --ubuntu")
    with_: str | None = _option("", "torch: PyTorch too, for the Python of jobs; runner images only")
    platform: str | None = _option(
        "", "linux/amd64 or linux/arm64; by default that of the stack's nodes, without a stack this machine's"
    )
    push: bool = _option(False, "push it, unless the registry has it")
    registry: str | None = _option(
        "", "push to HOST[/PREFIX]; by default the stack's ECR, in the account of the AWS credentials"
    )
    stack: str | None = _option("", "whose registry and CUDA are the defaults")
    pin: str | None = _option("", "the stack whose runners shall use it: pushes, then writes its digest there")
    no_cache: bool = _option(False, "build every step again")
    progress: str = _option("auto", "auto, plain or quiet")
    build_args: Sequence[str] | None = _option(None, "NAME=VALUE for an argument of the Dockerfile; may be given again")
