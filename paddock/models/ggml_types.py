"""Types of tensors in GGUF files: weights in a block, and the block's bytes.

From llama.cpp's ggml.h and its package gguf 0.19 (gguf/constants.py, GGML_QUANT_SIZES; read 2026-11-27).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple


class GgmlType(NamedTuple):
    """A type: its name, weights in a block, bytes of a block."""

    name: str
    block: int
    bytes: int


_FILE = Path(__file__).with_name("data") / "ggml_types.json"
GGML_TYPES: Mapping[int, GgmlType] = MappingProxyType(
    {int(number): GgmlType(*kind) for number, kind in json.loads(_FILE.read_bytes()).items()}
)
