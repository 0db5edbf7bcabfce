"""Faults that a test injects into the stand-in for GitHub, and the log of its requests."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from paddock.lab.github.model import Object, Refused

KEPT_REQUESTS = 2000


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
        self._lock = threading.Lock()
        self._open: list[Fault] = []
        self._over = threading.Event()

    def add(self, order: Mapping[str, Any]) -> Object:
        """Add a fault. Raises Refused for an invalid one."""
        try:
            fault = Fault(**order)
        except TypeError:
            fields = ", ".join(Fault.__slots__)
            raise Refused(400, "BadRequest", f"a fault has {fields}; not {', '.join(order)}") from None
        for name, low, high in (("seconds", 0, 3600), ("times", 1, 1_000_000), ("status", 0, 599)):
            value = getattr(fault, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
                raise Refused(400, "BadRequest", f"a fault's {name} cannot be {value!r}; expected: {low} to {high}")
        if fault.status and fault.status < 400:
            raise Refused(400, "BadRequest", f"a fault's status cannot be {fault.status}; expected: 400 to 599")
        with self._lock:
            self._open.append(fault)
        return asdict(fault)

    def pending(self) -> list[Object]:
        with self._lock:
            return [asdict(fault) for fault in self._open]

    def clear(self) -> None:
        """Remove all faults, and release requests that they delay."""
        with self._lock:
            self._open.clear()
            self._over.set()
            self._over = threading.Event()

    def meet(self, method: str, path: str) -> Fault | None:
        """Return the fault of a request, after its delay."""
        with self._lock:
            fault = next(
                (candidate for candidate in self._open if candidate.path in path and candidate.method in ("", method)),
                None,
            )
            if fault is None:
                return None
            fault.times -= 1
            if fault.times <= 0:
                self._open.remove(fault)
            over = self._over
        over.wait(fault.seconds)
        return fault


class RequestLog:
    """The latest requests with the status of their answers, without tokens."""

    def __init__(self) -> None:
        self._requests: deque[Object] = deque(maxlen=KEPT_REQUESTS)

    def add(self, method: str, path: str, status: int, agent: str, body: object) -> None:
        request = {"at": time.time(), "method": method, "path": path, "status": status, "agent": agent}
        self._requests.append({**request, "body": body})

    def requests(self) -> list[Object]:
        return list(self._requests)

    def clear(self) -> None:
        self._requests.clear()
