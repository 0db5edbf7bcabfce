"""Shapes of models: what the engine builds its layers of, from what a model is (`paddock.models`)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paddock.models import config as configurations
from paddock.models import formula
from paddock.models.model import PLAIN, Model
from paddock.models.presets import preset

LLAMA_KIND = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Architectures with the modules of Llama: they have a short step on the processor, and can run in stages."""


@dataclass(frozen=True)
class Shape:
    """Shape of a decoder: a transformers configuration in the numbers of which its layers are built."""

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

    @classmethod
    def of(cls, model: Model) -> Shape:
        """Return the shape of a model."""
        return cls(
            model.name,
            model.architecture,
            model.hidden,
            model.intermediate,
            len(model.layers),
            model.heads,
            model.kv_heads,
            model.head_dim,
            model.vocabulary,
            model.tied,
            model.rope.theta,
            model.context,
        )

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

    @cached_property
    def model(self) -> Model:
        """The model with weights of this shape. Raises ModelError for an architecture that has no formula."""
        return formula.model(configurations.of(self.config(), self.name), self.name)


def shape(name: str, where: str = "--model") -> Shape:
    """Return the shape of a model by name. Raises ModelError, begun by `where`, with the nearest name."""
    return Shape.of(preset(name, where))


def stored_dtype(model: Model) -> str | None:
    """Return the engine's format that is nearest to that of a .gguf file; None for any other model."""
    if model.facts != "file":
        return None
    if not model.quantised:
        return model.format if model.format in PLAIN else "bf16"
    return "int8" if model.format.startswith(("Q8", "Q6", "I8")) else "int4"


def cache_element(dtype: str, *, processor: bool) -> int:
    """Return the bytes of one number in the cache: the processor computes in fp32 unless the weights are fp16."""
    return 4 if dtype == "fp32" or (processor and dtype != "fp16") else 2
