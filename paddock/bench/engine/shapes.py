"""Shapes of models: what they weigh and compute, before anything is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from paddock.bench.errors import BenchInputError
from paddock.errors import did_you_mean

BITS: Mapping[str, float] = MappingProxyType({"fp32": 32, "fp16": 16, "bf16": 16, "int8": 8, "int4": 4.5})
"""Bits a weight; int4 with bf16 scale and zero for each 64."""

PLAIN = ("fp32", "fp16", "bf16")
"""Formats in which weights are not packed."""
LLAMA_KIND = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures with the modules of Llama: they have a short step on the processor, and can run in stages."""
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts")
_ABSURD = 10_000_000
"""Above any size of a model; tokens of a vocabulary are the most, some 250,000."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Shape of a decoder: a transformers configuration in the numbers that decide memory and time.

    `linear_parameters` are the weights of all Linear layers with the output head, which one decode step reads; the
    lookup in the embedding is not among them.
    """

    name: str
    architecture: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    tied: bool
    rope_theta: float = 10000.0
    max_length: int = 4096

    @property
    def head_parameters(self) -> int:
        return self.vocabulary * self.hidden

    @property
    def linear_parameters(self) -> int:
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate) + self.head_parameters

    @property
    def parameters(self) -> int:
        """All weights but those of norms and biases, which are less than a thousandth."""
        return self.linear_parameters + (0 if self.tied else self.head_parameters)

    def weight_bytes(self, dtype: str, tp: int = 1) -> int:
        """Return the bytes that a decode step reads of the weights, on each of `tp` devices.

        The output head is whole on each: tensor parallelism divides the layers alone.
        """
        shared = (self.linear_parameters - self.head_parameters) / tp
        return round((shared + self.head_parameters) * BITS[dtype] / 8)

    def loaded_bytes(self, dtype: str, tp: int = 1) -> int:
        """Return the bytes of the loaded weights on each device, with the embedding unpacked, whole on each."""
        unpacked = 4 if dtype == "fp32" else 2
        embedding = 0 if self.tied and dtype in PLAIN else self.head_parameters * unpacked
        return self.weight_bytes(dtype, tp) + embedding

    def loading_bytes(self, dtype: str, tp: int = 1) -> int:
        """Return the most bytes on each device while the weights load: the largest is whole until it is cut or packed.

        An int4 weight takes as many bytes again on its way, as whole numbers and in halves of a byte.
        """
        loaded = self.loaded_bytes(dtype, tp)
        if dtype in PLAIN:
            return loaded if tp == 1 else loaded + self.hidden * self.intermediate * (4 if dtype == "fp32" else 2)
        return loaded + max(self.head_parameters, self.hidden * self.intermediate) * (4 if dtype == "int4" else 2)

    def cache_bytes(self, element: int, tp: int = 1) -> int:
        """Return the bytes of the key and value cache of one token: ``2 L n_kv d_h`` elements of that many bytes."""
        return 2 * self.layers * max(1, self.kv_heads // tp) * self.head_dim * element

    def config(self) -> dict[str, Any]:
        """Return the arguments of the transformers configuration."""
        return {
            "model_type": self.architecture,
            "hidden_size": self.hidden,
            "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "num_key_value_heads": self.kv_heads,
            "head_dim": self.head_dim,
            "vocab_size": self.vocabulary,
            "tie_word_embeddings": self.tied,
            "rope_parameters": {"rope_type": "default", "rope_theta": self.rope_theta},
            "max_position_embeddings": self.max_length,
        }

    @classmethod
    def of(cls, name: str, config: Mapping[str, Any]) -> Shape:
        """Return the shape of a transformers configuration (a `config.json`). Raises BenchInputError."""
        try:
            heads, hidden = int(config["num_attention_heads"]), int(config["hidden_size"])
            rope = config.get("rope_parameters") or {}
            sizes = (
                hidden,
                int(config["intermediate_size"]),
                int(config["num_hidden_layers"]),
                heads,
                int(config.get("num_key_value_heads") or heads),
                int(config.get("head_dim") or hidden // heads),
                int(config["vocab_size"]),
            )
            if min(sizes) < 1 or max(sizes) > _ABSURD:
                raise ValueError(f"sizes of 1 to {_ABSURD} make a model, not {min(sizes)} and {max(sizes)}")
            if any(int(config.get(key) or 0) > 1 for key in _EXPERTS):
                raise ValueError("it is a mixture of experts, whose weights are not sized here")
            return cls(
                name,
                str(config["model_type"]),
                *sizes,
                bool(config.get("tie_word_embeddings", False)),
                float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
                int(config.get("max_position_embeddings") or 4096),
            )
        except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError) as error:
            raise BenchInputError(
                f"{name}: config.json is of no decoder that this benchmark knows: {error}\n"
                "    expected: a configuration of a causal language model, such as llama, qwen3 or mistral"
            ) from None


_SHAPES = (
    # hidden, intermediate, layers, heads, kv heads, head dim, vocabulary, tied
    Shape("tiny", "llama", 256, 768, 4, 8, 4, 32, 4096, True),
    Shape("qwen3-0.6b", "qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True, 1e6, 40960),
    Shape("tinyllama-1.1b", "llama", 2048, 5632, 22, 32, 4, 64, 32000, False, 10000.0, 2048),
    Shape("llama-3.2-1b", "llama", 2048, 8192, 16, 32, 8, 64, 128256, True, 5e5, 131072),
    Shape("qwen3-8b", "qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False, 1e6, 40960),
    Shape("llama-3.1-8b", "llama", 4096, 14336, 32, 32, 8, 128, 128256, False, 5e5, 131072),
    Shape("llama-3.1-70b", "llama", 8192, 28672, 80, 64, 8, 128, 128256, False, 5e5, 131072),
)
SHAPES: Mapping[str, Shape] = MappingProxyType({shape.name: shape for shape in _SHAPES})
"""Shapes by name, from the models' published `config.json`; they run with random weights."""


def shape(name: str, where: str = "--model") -> Shape:
    """Return the shape of that name; `where` begins a message. Raises BenchInputError with the nearest name."""
    try:
        return SHAPES[name]
    except KeyError:
        expected = did_you_mean(name, SHAPES, f"one of {', '.join(SHAPES)}, or a folder or .gguf file")
        raise BenchInputError(f"{where}: there is no model {name!r}\n    expected: {expected}") from None


def cache_element(dtype: str, *, processor: bool) -> int:
    """Return the bytes of one number in the cache: the processor computes in fp32 unless the weights are fp16."""
    return 4 if dtype == "fp32" or (processor and dtype != "fp16") else 2


def tensor_parallel(shape: Shape, devices: int) -> int:
    """Return the largest degree up to `devices` that divides heads, key-value heads and the inner size.

    Each device then has whole heads, and its own part of the cache.
    """
    return max(
        degree
        for degree in range(1, devices + 1)
        if shape.heads % degree == 0 and shape.kv_heads % degree == 0 and shape.intermediate % degree == 0
    )
