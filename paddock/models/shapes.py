"""Shapes of models: the numbers of which layers are built, for random weights and for torch."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

from paddock.models import config as configurations
from paddock.models import formula
from paddock.models.model import Model
from paddock.models.presets import preset


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
        same: dict[str, Any] = {field.name: getattr(model, field.name, None) for field in fields(cls)}
        return cls(**same | {"layers": len(model.layers), "rope_theta": model.rope.theta, "max_length": model.context})

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


def cache_element(dtype: str) -> int:
    """Return the bytes of one number in the cache that torch keeps of weights in a format."""
    return 4 if dtype == "fp32" else 2
