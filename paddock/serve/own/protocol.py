"""The four calls of an engine, and what it is asked to load."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from paddock.models.shapes import Shape
from paddock.serve.own.packing.formats import FORMATS

DTYPES = FORMATS


@dataclass(frozen=True, slots=True)
class Spec:
    """Model to load and the largest work it will be given.

    `source` is a folder or a .gguf file; without one the weights are random, of `seed`. `length` is prompt and new
    tokens together.  `layers` are those from the first
    number up to the second, of a stage of a pipeline; None is all.
    """

    shape: Shape
    dtype: str
    device: str
    batch: int
    length: int
    source: str = ""
    seed: int = 0
    memory_fraction: float = 1.0
    layers: tuple[int, int] | None = None

    @property
    def reads_tokens(self) -> bool:
        """Return whether it holds the embedding; a later stage reads hidden states."""
        return self.layers is None or self.layers[0] == 0

    @property
    def gives_tokens(self) -> bool:
        """Return whether it holds the output head; an earlier stage gives hidden states."""
        return self.layers is None or self.layers[1] == self.shape.layers


@dataclass(frozen=True, slots=True)
class Info:
    """The loaded model: `weight_bytes` is what one decode step reads, `cache_element` bytes of a cached number."""

    engine: str
    version: str
    kernel: str
    weight_bytes: int
    cache_element: int
    load_s: float
    quantise_s: float
    notes: tuple[str, ...] = ()


class Engine(Protocol):
    """A model on a device. Token ids are of shape [batch, length]; one token a row is [batch, 1]."""

    def load(self, spec: Spec) -> Info:
        """Load the model. Raises ServeError, and ServeInputError for what cannot be loaded."""

    def prefill(self, ids: Any) -> Any:
        """Read the prompts into an empty cache and return the first new token of each."""

    def decode(self, token: Any) -> Any:
        """Return the next token of each row. Raises ServeError where the engine sees that it failed."""

    def unload(self) -> None:
        """Give the memory back."""
