"""What a user is told when the GPU library cannot do what was asked."""

from __future__ import annotations

from paddock.errors import PaddockError


class GpuError(PaddockError):
    """Something about the GPUs failed; the message says what and how to go on."""


class GpuInputError(GpuError):
    """The request or a file is wrong."""

    exit_code = 2


class NoGpu(GpuError):
    """There is no GPU, or none that may be had."""
