"""Towers of images next to a language model, and the projectors between them, by formula."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

from paddock.models.config import DATA, Configuration
from paddock.models.errors import error
from paddock.models.model import Model

Piece = tuple[str, int, bool]
"""Name and parameters of a tensor, and whether it is a matrix."""
Pieces = Iterator[Piece]


def _vision(config: Configuration, tower: str) -> Callable[[str], int]:
    defaults = json.loads((DATA / "towers.json").read_bytes())[tower]
    values: Any = config.whole.get("vision_config")

    def number(key: str) -> int:
        value = values.get(key) if isinstance(values, Mapping) else None
        value = defaults[key] if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 10_000_000:
            raise error(f"{config.where}: vision_config.{key}: {str(value)[:60]!r} is not valid", "a whole number")
        return value

    return number


def _siglip(config: Configuration, model: Model) -> Pieces:
    """Gemma 3's tower, SigLIP, and its projector."""
    number = _vision(config, "gemma3")
    width, inner, patch = number("hidden_size"), number("intermediate_size"), number("patch_size")
    layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    yield "vision_tower.encoder.weight", number("num_hidden_layers") * layer, True
    yield "vision_tower.embeddings.weight", 3 * patch * patch * width + width, True
    yield "vision_tower.positions.weight", (number("image_size") // patch) ** 2 * width, True
    yield "vision_tower.post_layernorm.weight", 2 * width, False
    yield "multi_modal_projector.weight", width * model.hidden + width, True


def _pixtral(config: Configuration, model: Model) -> Pieces:
    """Mistral 3's tower, Pixtral, and its projector, which merges squares of patches."""
    number = _vision(config, "mistral3")
    width, patch = number("hidden_size"), number("patch_size")
    merge = config.whole.get("spatial_merge_size", 2)
    merge = merge if isinstance(merge, int) and 0 < merge < 100 else 2
    layer = 4 * width * width + 3 * width * number("intermediate_size") + 2 * width
    yield "vision_tower.transformer.weight", number("num_hidden_layers") * layer, True
    yield "vision_tower.patch_conv.weight", 3 * patch * patch * width + width, True
    yield "multi_modal_projector.merger.weight", width * merge**2 * width + width, True
    yield "multi_modal_projector.linear.weight", width * model.hidden + model.hidden**2, True


def _llama4_vision(config: Configuration, model: Model) -> Pieces:
    """Llama 4's tower and its two projectors."""
    number = _vision(config, "llama4")
    width, inner, patch = number("hidden_size"), number("intermediate_size"), number("patch_size")
    layer = 4 * (width * width + width) + 2 * width * inner + inner + width + 4 * width
    patches = (number("image_size") // patch) ** 2 + 1
    yield "vision_model.layers.weight", number("num_hidden_layers") * layer, True
    yield "vision_model.embeddings.weight", (3 * patch * patch + 1 + patches) * width, True
    yield "vision_model.norms.weight", 4 * width, False
    adapter = inner * number("projector_input_dim") + number("projector_output_dim") ** 2
    yield "vision_model.vision_adapter.weight", adapter, True
    yield "multi_modal_projector.linear_1.weight", number("vision_output_dim") * model.hidden, True


def _qwen2_5_vision(config: Configuration, model: Model) -> Pieces:
    """Qwen2.5-VL's tower, and its merger of squares of patches."""
    number = _vision(config, "qwen2_5_vl")
    width, inner, merged = number("hidden_size"), number("intermediate_size"), number("spatial_merge_size") ** 2
    layer = 4 * width * width + 4 * width + 3 * width * inner + 2 * inner + width + 2 * width
    yield "visual.blocks.weight", number("depth") * layer, True
    yield "visual.patch_embed.weight", 3 * number("temporal_patch_size") * number("patch_size") ** 2 * width, True
    merger = (merged * width) ** 2 + merged * width + merged * width * number("out_hidden_size")
    yield "visual.merger.weight", merger + number("out_hidden_size") + width, True


TOWERS: Mapping[str, Callable[[Configuration, Model], Pieces]] = MappingProxyType(
    {"gemma3": _siglip, "mistral3": _pixtral, "llama4": _llama4_vision, "qwen2_5_vl": _qwen2_5_vision}
)
