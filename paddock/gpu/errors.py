"""Errors of the GPU library, with messages for users."""

from __future__ import annotations

from threading import Thread
from typing import Any

from paddock.errors import PaddockError


class GpuError(PaddockError):
    """Base of all GPU errors; the message names the problem and the fix."""


class GpuInputError(GpuError):
    """Raised for an invalid request or file.

    Where `parameter` is not empty, the message begins with this name of what has a wrong value.
    """

    exit_code = 2

    def __init__(self, message: str, parameter: str = "") -> None:
        super().__init__(f"{parameter}{message}")
        self.parameter = parameter
        self._message = message

    def named(self, name: str) -> GpuInputError:
        """Return the error with another name of the parameter, such as that of its flag."""
        return GpuInputError(self._message, name)


class NoGpu(GpuError):
    """Raised where there is no GPU, or none is available."""

    @property
    def document(self) -> dict[str, Any]:
        """Return what the document of a failed command has besides the error."""
        return {"schema": 1, "reason": str(self), "gpus": []}


class DriverHangs(NoGpu):
    """Raised where the driver does not answer in time; the message names the call.

    `thread` is the one that still waits for it, where it is one of this process.
    """

    thread: Thread | None = None
