"""Stand-in for a CUDA stream: a processor that launches work, and a GPU that does it in its turn, on made-up clocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

MIB = 1 << 20


@dataclass
class Stream:
    """Times in seconds; `free` is when the GPU has done all that was launched. Also the memory of an allocator."""

    now: float = 0.0
    free: float = 0.0
    allocated: int = 0
    peak: int = 0
    fraction: float = 1.0
    calls: list[str] = field(default_factory=list)

    def perf_counter(self) -> float:
        return self.now

    def launch(self, processor: float, gpu: float) -> None:
        """Spend time on the processor, and then give the GPU work of so many seconds."""
        self.now += processor
        self.free = max(self.free, self.now) + gpu

    def allocate(self, size: int) -> None:
        self.allocated += size
        self.peak = max(self.peak, self.allocated)

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

        def reset_peak_memory_stats() -> None:
            self.calls.append("reset")
            self.peak = self.allocated

        return SimpleNamespace(
            Event=Event,
            synchronize=synchronize,
            reset_peak_memory_stats=reset_peak_memory_stats,
            max_memory_allocated=lambda: self.peak,
        )
