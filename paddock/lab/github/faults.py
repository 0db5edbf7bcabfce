"""Faults that a test injects into the stand-in for GitHub."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from paddock.lab.github.model import Refused


@dataclass(slots=True)
class Fault:
    """A fault of the next `times` requests whose path holds `path`: `seconds` of silence, and then `status` if any."""

    path: str = ""
    method: str = ""
    status: int = 0
    seconds: float = 0.0
    times: int = 1
    retry_after: int | None = None


class Faults:
    """Faults that have not happened yet."""

    def __init__(self) -> None:
        self._lock, self._over = threading.Lock(), threading.Event()
        self.pending: list[Fault] = []

    def add(self, order: Mapping[str, Any]) -> None:
        """Add a fault. Raises Refused for one with other fields."""
        try:
            fault = Fault(**order)
        except TypeError:
            raise Refused(400, "BadRequest", f"a fault has {', '.join(Fault.__slots__)}; not {order}") from None
        with self._lock:
            self.pending.append(fault)

    def clear(self) -> None:
        """Remove all faults, and release requests that they delay."""
        with self._lock:
            self.pending.clear()
            self._over.set()
            self._over = threading.Event()

    def meet(self, method: str, path: str) -> Fault | None:
        """Return the fault of a request, after its delay."""
        with self._lock:
            fault = next((item for item in self.pending if item.path in path and item.method in ("", method)), None)
            if fault is None:
                return None
            fault.times -= 1
            if fault.times <= 0:
                self.pending.remove(fault)
            over = self._over
        over.wait(fault.seconds)
        return fault
