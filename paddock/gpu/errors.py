"""Errors of the GPU library, with messages for users."""

from __future__ import annotations

from threading import Thread

from paddock.errors import PaddockError


class GpuError(PaddockError):
    """Base of all GPU errors; the message names the problem and the fix."""


class GpuInputError(GpuError):
    """Raised for an invalid request or file."""

    exit_code = 2


class NoGpu(GpuError):
    """Raised where there is no GPU, or none is available."""


class DriverHangs(NoGpu):
    """Raised where the driver does not answer in time; the message names the call.

    `thread` is the one that still waits for it, where it is one of this process.
    """

    thread: Thread | None = None
