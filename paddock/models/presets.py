"""Models by name, from their published `config.json`: for plans, and for runs with random weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any

from paddock.errors import did_you_mean
from paddock.models import config, formula
from paddock.models.errors import error
from paddock.models.model import Model


def _decoder(
    architecture: str, hidden: int, intermediate: int, layers: int, heads: int, kv_heads: int, head_dim: int,
    vocabulary: int, tied: bool, theta: float = 10000.0, context: int = 4096,
) -> Mapping[str, Any]:  # fmt: skip
    return {
        "model_type": architecture,
        "hidden_size": hidden,
        "intermediate_size": intermediate,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": head_dim,
        "vocab_size": vocabulary,
        "tie_word_embeddings": tied,
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "max_position_embeddings": context,
    }


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # hidden, intermediate, layers, heads, kv heads, head dim, vocabulary, tied
        "tiny": _decoder("llama", 256, 768, 4, 8, 4, 32, 4096, True),
        "qwen3-0.6b": _decoder("qwen3", 1024, 3072, 28, 16, 8, 128, 151936, True, 1e6, 40960),
        "tinyllama-1.1b": _decoder("llama", 2048, 5632, 22, 32, 4, 64, 32000, False, 10000.0, 2048),
        "llama-3.2-1b": _decoder("llama", 2048, 8192, 16, 32, 8, 64, 128256, True, 5e5, 131072),
        "qwen3-8b": _decoder("qwen3", 4096, 12288, 36, 32, 8, 128, 151936, False, 1e6, 40960),
        "llama-3.1-8b": _decoder("llama", 4096, 14336, 32, 32, 8, 128, 128256, False, 5e5, 131072),
        "llama-3.1-70b": _decoder("llama", 8192, 28672, 80, 64, 8, 128, 128256, False, 5e5, 131072),
    }
)
"""Arguments of their transformers configuration, by name."""


_FACTS = "its published config.json"


@cache
def _preset(name: str) -> Model:
    return replace(formula.model(config.of(PRESETS[name], name), name), facts=_FACTS)


def preset(name: str, where: str = "MODEL") -> Model:
    """Return the model of that name. Raises ModelError, begun by `where`, with the nearest name."""
    if name in PRESETS:
        return _preset(name)
    expected = did_you_mean(name, PRESETS, f"one of {', '.join(PRESETS)}, or a folder or .gguf file")
    raise error(f"{where}: there is no model {name!r}", expected)
