"""Waiting for what another process or thread does, for as long as a busy machine may need."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def until(true: Callable[[], Any], seconds: float = 60) -> Any:
    """Wait for a condition and return its result."""
    deadline = time.monotonic() + seconds
    while not (result := true()):
        assert time.monotonic() < deadline, f"not so after {seconds} s"
        time.sleep(0.05)
    return result
