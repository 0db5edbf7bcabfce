"""Stand-in for a CUDA stream: a processor that launches work, and a GPU that does it in its turn, on made-up clocks."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


@dataclass
class Stream:
    """Times in seconds; `free` is when the GPU has done all that was launched."""

    now: float = 0.0
    free: float = 0.0

    def perf_counter(self) -> float:
        return self.now

    def launch(self, processor: float, gpu: float) -> None:
        """Spend time on the processor, and then give the GPU work of so many seconds."""
        self.now += processor
        self.free = max(self.free, self.now) + gpu

    @property
    def cuda(self) -> Any:
        """What the benchmark calls of torch.cuda."""

        class Event:
            def __init__(event, enable_timing: bool) -> None:
                event.at = 0.0

            def record(event) -> None:
                event.at = max(self.now, self.free)

            def elapsed_time(event, other: Any) -> float:
                return 1000 * (other.at - event.at)

        def synchronize() -> None:
            self.now = max(self.now, self.free)

        return SimpleNamespace(Event=Event, synchronize=synchronize)
