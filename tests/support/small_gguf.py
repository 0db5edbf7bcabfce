"""A small model with random weights, a real tokenizer and a chat template, written once a session."""

from __future__ import annotations

from pathlib import Path

from paddock.models import random_gguf
from paddock.models.shapes import shape


def small_gguf(folder: Path) -> Path:
    """Write the model `tiny` as a .gguf file of 8 bits, and return its path."""
    path = folder / "tiny.gguf"
    random_gguf.write(path, shape("tiny"), "q8_0")
    return path
