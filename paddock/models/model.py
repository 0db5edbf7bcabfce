"""A model in numbers: weights by part and format, and what a token takes in the cache of each layer."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal, Protocol

Kind = Literal["full", "sliding", "latent", "recurrent", "none"]
"""Cache of a layer, by what it keeps of the tokens: all, a window, all in a latent form, one state, or nothing."""

BITS: Mapping[str, float] = MappingProxyType({"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "int4": 4.5})
"""Bits of a weight that is loaded in a format of the benchmark; int4 with bf16 scale and zero for each 64."""
FILE_BITS: Mapping[str, float] = MappingProxyType({"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8.5, "int4": 4.5})
"""Bits of a weight that is written in a format into a .gguf file: Q8_0 and Q4_0 have a 16-bit scale for each 32."""
PLAIN = ("fp32", "fp16", "bf16")
"""Formats in which weights are not packed."""


@dataclass(frozen=True, slots=True)
class Weights:
    """Weights of a part: parameters, those of them that one token uses, and bytes as they are in the file."""

    parameters: int = 0
    active: int = 0
    bytes: int = 0

    def __add__(self, other: Weights) -> Weights:
        return Weights(self.parameters + other.parameters, self.active + other.active, self.bytes + other.bytes)

    @property
    def active_bytes(self) -> int:
        """Bytes in the file of what one token uses."""
        return self.bytes * self.active // self.parameters if self.parameters else self.bytes


@dataclass(frozen=True, slots=True)
class Layer:
    """One layer. `cached` are the numbers that a token takes in its cache, `window` the most tokens that it keeps.

    `state` are the numbers of a recurrent layer for a sequence of any length; None where they are not known.
    `kv_heads` are those among which tensor parallelism divides the cache: 1 for a latent one, which each device holds.
    """

    kind: Kind
    cached: int = 0
    window: int | None = None
    state: int | None = 0
    kv_heads: int = 1
    weights: Weights = Weights()

    def numbers(self, tokens: int, degree: int = 1) -> int:
        """Return the numbers that the cache of so many tokens of one sequence holds on one of `degree` devices.

        Full: ``tokens x cached``; sliding: ``min(tokens, window) x cached`` (the window of Mistral 7B, arXiv
        2310.06825, section 2); latent: as full, with ``cached = kv_lora_rank + qk_rope_head_dim`` (DeepSeek-V2, arXiv
        2405.04434, section 2.1.3), whole on each device; recurrent: the state, whatever the tokens.
        """
        kept = tokens if self.window is None else min(tokens, self.window)
        return kept * self.cached * max(1, self.kv_heads // degree) // max(1, self.kv_heads) + (self.state or 0)


@dataclass(frozen=True, slots=True)
class Rope:
    """Rotary positions. `factor` is how far they are stretched, from `original` tokens; 1 and None where they are not.

    `theta` is the base of the frequencies.
    """

    type: str = "default"
    factor: float = 1.0
    original: int | None = None
    theta: float = 10000.0


@dataclass(frozen=True, slots=True)
class Model:
    """A decoder. Parameters count what is shared once; `hidden` and `intermediate` are widths, `context` is in tokens.

    `embedding` is looked up, and read as the output head where it is `tied`, in which case `head` is empty. `rest` is
    what is in no layer: the last norm, towers of images and sound. `source` says what gave the parameters: the file's
    table, transformers on the meta device, or a formula; `weight_source` what gave the bytes, and `facts` what gave
    layers, heads, context and cache.
    """

    name: str
    architecture: str
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    tied: bool
    layers: tuple[Layer, ...]
    embedding: Weights = Weights()
    head: Weights = Weights()
    rest: Weights = Weights()
    rope: Rope = Rope()
    experts: int = 0
    experts_active: int = 0
    format: str = "bf16"
    quantised: bool = False
    plain: str = "bf16"
    """Format of what is not packed, in which packed weights are multiplied too."""
    types: tuple[tuple[str, int], ...] = ()
    """Parameters in each type of the file, most first."""
    source: str = "formula"
    weight_source: str = "formula"
    facts: str = "formula"
    files: int = 1
    """Files that the weights are in."""
    tokenizer: bool | None = None
    """Whether the files have a tokenizer, and a chat template; None is unknown."""
    template: bool | None = None
    notes: tuple[str, ...] = ()
    """Disagreements and unknowns that a reader should know of."""

    @property
    def body(self) -> Weights:
        """Weights of all layers."""
        return sum((layer.weights for layer in self.layers), Weights())

    @property
    def parameters(self) -> int:
        return (self.body + self.embedding + self.head + self.rest).parameters

    @property
    def active_parameters(self) -> int:
        """Parameters without the experts that a token does not use."""
        return (self.body + self.embedding + self.head + self.rest).active

    @property
    def bytes(self) -> int:
        """Bytes of all weights in their own format."""
        return (self.body + self.embedding + self.head + self.rest).bytes

    @property
    def output_parameters(self) -> int:
        """Parameters of the output head, shared or not."""
        return (self.embedding if self.tied else self.head).parameters

    @property
    def step_bytes(self) -> int:
        """Bytes in the file that one decode step of one row reads."""
        return self.body.active_bytes + (self.embedding if self.tied else self.head).bytes

    @property
    def sources(self) -> Mapping[str, str]:
        """Source of each number: the file's table, transformers, or a formula; and config.json or the file's head."""
        return {
            "parameters": self.source,
            "active_parameters": self.source,
            "bytes": self.weight_source,
            **dict.fromkeys(("layers", "heads", "kv_heads", "head_dim", "context", "experts", "cache"), self.facts),
        }

    def weight_bytes(self, dtype: str, degree: int = 1) -> int:
        """Return the bytes that a decode step reads on each of `degree` devices of weights loaded in a format.

        The output head is whole on each: tensor parallelism divides the layers alone.
        """
        return round((self.body.active / degree + self.output_parameters) * BITS[dtype] / 8)

    def loaded_bytes(self, dtype: str, degree: int = 1) -> int:
        """Return the bytes of the loaded weights on each device, with what is in no layer whole on each.

        Quantised weights keep their format. Others are loaded in `dtype`; embedding and towers are not packed.
        """
        if self.quantised:
            return round(self.body.bytes / degree) + (self.embedding + self.head + self.rest).bytes
        unpacked = 4 if dtype == "fp32" else 2
        embedding = 0 if self.tied and dtype in PLAIN else self.embedding.parameters * unpacked
        packed = (self.body.parameters / degree + self.output_parameters) * BITS[dtype] / 8
        return round(packed) + embedding + self.rest.parameters * unpacked

    def file_bytes(self, dtype: str, degree: int = 1) -> int:
        """Return the bytes of the weights as a .gguf file has them in a format, with what is in no layer whole.

        A file that is packed keeps its output head in 8 bits (`paddock.models.local.requantise`).
        """
        bits = FILE_BITS[dtype]
        head = FILE_BITS["int8"] if self.facts == "file" and dtype == "int4" else bits
        embedding = head if self.tied else bits
        outer = self.embedding.parameters * embedding + self.head.parameters * head
        return round((self.body.parameters / degree * bits + outer) / 8) + self.rest.bytes

    def loading_bytes(self, dtype: str) -> int:
        """Return the most bytes on one device while the weights load: the largest is whole until it is cut or packed.

        An int4 weight takes as many bytes again on its way, as whole numbers and in halves of a byte.
        """
        loaded = self.loaded_bytes(dtype)
        if self.quantised or dtype in PLAIN:
            return loaded
        return loaded + max(self.output_parameters, self.hidden * self.intermediate) * (4 if dtype == "int4" else 2)

    def cache_bytes(self, tokens: int, element: int, sequences: int = 1, degree: int = 1) -> int:
        """Return the bytes of the cache of so many sequences of `tokens`, in numbers of `element` bytes, on a device.

        The sum over the layers of `Layer.numbers`; a layer with full attention has ``2 n_kv d_h`` numbers a token.
        """
        return sequences * element * sum(layer.numbers(tokens, degree) for layer in self.layers)

    @property
    def layer_kinds(self) -> str:
        """Layers in words, such as "26 layers: 22 sliding (512 tokens), 4 full"."""
        counts = Counter(
            f"sliding ({layer.window} tokens)" if layer.kind == "sliding" else _WORDS[layer.kind]
            for layer in self.layers
        )
        total = f"{len(self.layers)} layer{'' if len(self.layers) == 1 else 's'}"
        if counts.keys() <= {_WORDS["full"]}:
            return total
        return f"{total}: {', '.join(f'{count} {kind}' for kind, count in counts.items())}"


_WORDS: Mapping[Kind, str] = MappingProxyType(
    {
        "full": "full",
        "sliding": "sliding",
        "latent": "with a latent cache",
        "recurrent": "without attention, with a state",
        "none": "without attention",
    }
)


def billions(count: int) -> str:
    """Return a count of parameters as a reader says it: "30.5 B", "596 M"."""
    if count < 1_000_000_000:
        return f"{count / 1e6:.0f} M" if count >= 10_000_000 else f"{count / 1e6:.1f} M"
    return f"{count / 1e9:.{2 if count < 10_000_000_000 else 1}f} B"


class Divided(Protocol):
    """Sizes that tensor parallelism divides; the inner one is that of an expert where there are experts."""

    @property
    def heads(self) -> int: ...
    @property
    def kv_heads(self) -> int: ...
    @property
    def intermediate(self) -> int: ...


def tensor_parallel(model: Divided, devices: int) -> int:
    """Return the largest degree up to `devices` that divides heads, key-value heads and the inner size.

    Each device then has whole heads, and its own part of the cache. A latent cache has no heads to divide.
    """
    sizes = [size for size in (model.heads, model.kv_heads, model.intermediate) if size]
    return max(degree for degree in range(1, devices + 1) if math.gcd(degree, *sizes) == degree)
