"""The door of an engine: what `bench` asks of it, and what it says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from paddock.models.shapes import Shape


@dataclass(frozen=True, slots=True)
class Spec:
    """Model to load and the largest work it will be given: `batch` rows of `length` tokens, prompt and new together."""

    shape: Shape
    dtype: str
    device: str
    batch: int
    length: int
    source: str = ""
    seed: int = 0
    memory_fraction: float = 1.0
    threads: int | None = None
    cache: str = ""


@dataclass(frozen=True, slots=True)
class Info:
    """The loaded model: `weight_bytes` is what one decode step reads, `cache_element` bytes of a cached number."""

    engine: str
    version: str
    kernel: str
    weight_bytes: int
    cache_element: float
    load_s: float
    quantise_s: float
    threads: int | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Prepared:
    """An engine that is ready for one batch and length."""

    compile_s: float
    step: str
    eager_because: str = ""


class Roof(Protocol):
    """The roof of a device, measured beside the model."""

    @property
    def nbytes(self) -> int: ...

    def read_gbs(self) -> list[float]: ...

    def tflops(self, dtype: str) -> float | None: ...


class Engine(Protocol):
    """A model on a device."""

    def load(self, spec: Spec) -> Info: ...

    def prepare(self, batch: int, length: int) -> Prepared: ...

    def prefill(self, ids: Any) -> Any: ...

    def decode(self, token: Any) -> Any: ...

    def finish(self) -> Mapping[str, float]: ...

    def memory(self) -> int: ...

    def roof(self) -> Roof: ...

    def check(self) -> None: ...

    def unload(self) -> None: ...
