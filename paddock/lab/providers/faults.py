"""Errors and delays on purpose, which a stand-in reads from its environment. A new kind of fault belongs here.

PADDOCK_LAB_FAULTS is a JSON list:
`[{"resource": "*::cluster-system", "operation": "create", "error": "ThrottlingException", "delay": 2, "times": 1}]`.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

VARIABLE = "PADDOCK_LAB_FAULTS"


class FaultError(Exception):
    """The error that a stand-in returns instead of performing an operation."""


@dataclass(frozen=True, slots=True)
class Fault:
    resource: str = "*"
    """Pattern of a URN, or of a function's token."""
    operation: str = "*"
    """create, update, delete, read, invoke, or a pattern."""
    error: str = ""
    delay: float = 0
    """Seconds before the operation."""
    lag: float = 0
    """Seconds between the operation and the answer, in which the cloud has the resource and the engine does not."""
    times: int = 0
    """How often per process; 0 for always."""


class Faults:
    def __init__(self, faults: Sequence[Fault]) -> None:
        self._faults = faults
        self._left = [fault.times for fault in faults]
        self._lock = threading.Lock()

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> Faults:
        faults: list[dict[str, Any]] = json.loads(environment.get(VARIABLE) or "[]")
        return cls([Fault(**fault) for fault in faults])

    def meet(self, operation: str, resource: str) -> float:
        """Wait or raise FaultError for a matching fault; return how long to delay the answer."""
        lag = 0.0
        for index, fault in enumerate(self._faults):
            if not (fnmatchcase(operation, fault.operation) and fnmatchcase(resource, fault.resource)):
                continue
            with self._lock:
                if fault.times:
                    if self._left[index] == 0:
                        continue
                    self._left[index] -= 1
            time.sleep(fault.delay)
            if fault.error:
                raise FaultError(fault.error)
            lag += fault.lag
        return lag
