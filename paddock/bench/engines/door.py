"""The door of an engine: what it is asked to load, what it says of itself, and its calls."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

from paddock.models import sources
from paddock.models.model import Model
from paddock.models.shapes import Shape


@dataclass(frozen=True, slots=True)
class BenchJob:
    """One model in one dtype, to be measured in every batch and prompt length: what a worker's engine loads.

    `source` is a checkpoint's folder or a .gguf file; without one the weights are random, of `seed`. `device` is
    torch's name for its kind. `mode` is the name of the resource mode, `policy` its limits as the fields of a policy;
    both empty for none. `in_turn` is the port at which it meets the benchmark with which it takes turns. No `threads`
    are those that the engine chooses, no `cache` is the engine's own type of cached numbers.
    """

    shape: Shape
    dtype: str
    device: str
    batches: tuple[int, ...]
    prompts: tuple[int, ...]
    new: int
    runs: int
    warm_up: int
    engine: str
    source: str = ""
    seed: int = 0
    memory_fraction: float = 1.0
    uuids: tuple[str, ...] = ()
    mode: str = ""
    policy: Mapping[str, Any] | None = None
    application: str = ""
    user: str = ""
    in_turn: int | None = None
    threads: int | None = None
    cache: str = ""

    @property
    def batch(self) -> int:
        """The most rows at once."""
        return max(self.batches)

    @property
    def length(self) -> int:
        """The most tokens of a row, of prompt and new together."""
        return max(self.prompts) + self.new


@dataclass(frozen=True, slots=True)
class Info:
    """The loaded model: `weight_bytes` is what one decode step reads, `cache_element` bytes of a cached number.

    `computed` is the format in which long prompts are multiplied, empty where no roof of it can be measured.
    `quantise_s` are the seconds that packing or writing random weights took, which are not part of `load_s`.
    """

    kernel: str
    computed: str
    weight_bytes: int
    cache_element: float
    load_s: float
    quantise_s: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """An engine that is ready for one batch and length."""

    compile_s: float
    step: str
    """Form of a decode step: eager, or as a graph."""
    eager_because: str = ""
    """Why it is eager where this device has graphs."""


class Timer:
    """Seconds of steps by the wall clock, for engines that have done their work when a call returns."""

    def __init__(self, synchronise: Callable[[], Any] = lambda: None) -> None:
        self._synchronise = synchronise

    def start(self, steps: int) -> None:
        self._synchronise()
        self._marks = [time.perf_counter()]

    def wait(self) -> None:
        """Wait for what the device has not done when a call returns."""
        self._synchronise()

    def mark(self) -> None:
        self._marks.append(time.perf_counter())

    def finish(self) -> list[float]:
        """Return the seconds between marks."""
        return [after - before for before, after in pairwise(self._marks)]

    def timed(self, work: Callable[[], object], repeats: int) -> list[float]:
        """Return the seconds of each repeat."""
        self.start(repeats)
        for _ in range(repeats):
            work()
            self.wait()
            self.mark()
        return self.finish()


class Roof(Protocol):
    """The limits of a device, measured with the model."""

    @property
    def nbytes(self) -> int:
        """Bytes that it keeps, which are not the model's."""

    def read_gbs(self) -> list[float]:
        """Return GB/s of each pass over a buffer, best last; none where there is too little memory for one."""

    def tflops(self, dtype: str) -> float:
        """Return the TFLOP/s of the best GEMM in a format, accumulated in fp32."""


class Engine(Protocol):
    """A model on a device. Prompts are numpy's int64 [batch, prompt]; a token is what the engine takes it to be."""

    def load(self, job: BenchJob) -> Info:
        """Load the model. Raises BenchError, and BenchInputError for what cannot be loaded."""

    def prepare(self, batch: int, length: int) -> Prepared:
        """Get ready for `batch` rows of up to `length` tokens: what takes its time once is done here, and not later."""

    def prefill(self, ids: Any) -> Any:
        """Read the prompts into an empty cache and return the first new token of each row."""

    def decode(self, token: Any) -> Any:
        """Return the next token of each row. Raises BenchError where the engine sees that it failed."""

    def finish(self) -> Mapping[str, float]:
        """End the request after its last step. Return what the engine says of it: `decode_s`, or nothing."""

    def timer(self) -> Timer:
        """Return the clock of its steps."""

    def roof(self) -> Roof:
        """Return the measures of its device."""

    def forget_peak(self) -> None:
        """Reset the peak of the memory: loading, and larger batches before this one, do not count."""

    def memory(self) -> int:
        """Return the bytes that this process has of the machine, or the most that it had of a GPU."""

    def check(self) -> None:
        """Raise BenchError where a logit of any step so far was not a finite number, as far as the engine tells."""

    def unload(self) -> None:
        """Give the memory back."""


def process_bytes() -> int:
    """Return the bytes that this process has of the machine, or the most that it had where the system tells no more."""
    import resource

    import psutil

    try:
        return int(psutil.Process().memory_info().rss)
    except psutil.Error:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@lru_cache(maxsize=8)
def model_of(shape: Shape, source: str) -> Model:
    """Return what a checkpoint or file is, or the model of random weights. Raises ModelError."""
    return sources.of_path(Path(source), where="--model") if source else shape.model
