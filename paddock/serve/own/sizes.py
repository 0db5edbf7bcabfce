"""Sizes of what the engine holds: of a checkpoint, of a file, or of random weights."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from paddock.models import sources
from paddock.models.model import Model
from paddock.models.shapes import Shape


def as_loaded(model: Model) -> Model:
    """Return the model as this engine holds it: weights of a .gguf file are unpacked, and packed anew."""
    return replace(model, quantised=False) if model.facts == "file" else model


@lru_cache(maxsize=8)
def loaded_model(shape: Shape, source: str) -> Model:
    """Return what the engine holds of a checkpoint or file, or of random weights. Raises ModelError."""
    return as_loaded(sources.of_path(Path(source), where="--model") if source else shape.model)
