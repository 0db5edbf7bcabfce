"""A .gguf file of 16 or 32 bits, written again in 8 or 4: as llama.cpp's quantiser does, without llama.cpp.

The numbers are those of the package gguf (`gguf.quants`), by ggml-quants.c's reference. Which tensors are packed is
llama.cpp's choice (src/llama-quant.cpp; read 2026-11-27): matrices of weights, without norms, routers of experts and
convolutions, and rows that blocks of 32 do not divide. Its Q4_0 keeps the output head in Q6_K, which the package does
not write: here it is Q8_0.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from paddock.models import gguf
from paddock.models.errors import error
from paddock.models.ggml_types import GGML_TYPES
from paddock.models.gguf_head import ALIGNMENT, Head, Place, field, read_head, written
from paddock.models.local.kept import Progress, kept, silent

_F32, _F16, _Q4_0, _Q8_0, _BF16 = 0, 1, 2, 8, 30
TYPES: Mapping[str, int] = {"int8": _Q8_0, "int4": _Q4_0}
"""ggml's type of each format."""
_FILE_TYPES: Mapping[int, int] = {_Q8_0: 7, _Q4_0: 2}
"""general.file_type (llama.h, llama_ftype)."""
_BLOCK, _PIECE = 32, 2**22
"""Weights of a block; weights that are packed at a time."""
_WHOLE = (
    "_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj", "position_embd", "token_types",
    "ssm_conv1d.weight", "shortconv.conv.weight", "time_mix_", "attn_rel_b.weight",
)  # fmt: skip
_RULES = "1"
"""Changes with what is written of a file, so that one of former rules is not taken."""


@dataclass(frozen=True, slots=True)
class _Source:
    """A tensor and the file that it is in. `type` is the one that it is written in."""

    file: Path
    start: int
    place: Place
    type: int

    @property
    def weights(self) -> int:
        return math.prod(self.place.sizes)

    @property
    def bytes(self) -> int:
        kind = GGML_TYPES[self.type]
        return self.weights // kind.block * kind.bytes


def packed(
    path: Path, dtype: str, progress: Progress = silent, environ: Mapping[str, str] = os.environ
) -> Path:  # fmt: skip
    """Return a .gguf file's weights in int8 (Q8_0) or int4 (Q4_0): a file of the cache, which is written where needed.

    It is known by the source's head with every tensor's name, place and type, by the size and the time of change of
    each of its files, and by the format: a source that was changed is repacked, and so is a copy with another time.
    Only weights that were changed in place, with the time put back, would not be noticed. Raises ModelError.
    """
    heads = [(file, read_head(file)) for file in gguf.parts(path)]
    sources = list(_sources(heads, TYPES[dtype]))
    head = _head(heads, sources, TYPES[dtype])
    needed = len(head) + sum(-(-source.bytes // ALIGNMENT) * ALIGNMENT for source in sources)
    what = f"{path.name} in {GGML_TYPES[TYPES[dtype]].name}"

    def write(file: BinaryIO) -> None:
        file.write(head)
        done = len(head)
        for source in sources:
            for piece in _pieces(source):
                file.write(piece)
                done += len(piece)
                progress(what, done, needed)
            padding = -source.bytes % ALIGNMENT
            file.write(bytes(padding))
            done += padding

    return kept(f"{path.stem[:80]}-{dtype}-{_key(heads)}.gguf", needed, what, write, progress, environ)


def _key(heads: list[tuple[Path, Head]]) -> str:
    digest = hashlib.sha256(_RULES.encode())
    for file, head in heads:
        state = file.stat()
        digest.update(f"{state.st_size} {state.st_mtime_ns} ".encode())
        with file.open("rb") as opened:
            digest.update(opened.read(head.start))
    return digest.hexdigest()[:24]


def _sources(heads: list[tuple[Path, Head]], wanted: int) -> Iterator[_Source]:
    names = {place.name for _, head in heads for place in head.places}
    output = "output.weight" if "output.weight" in names else "token_embd.weight"
    for file, head in heads:
        for place in head.places:
            kind = place.type
            if _is_packed(place):
                kind = _Q8_0 if place.name == output else wanted
            yield _Source(file, head.start, place, kind)


def _is_packed(place: Place) -> bool:
    matrix = len(place.sizes) > 1 and place.sizes[0] % _BLOCK == 0 and place.type in (_F32, _F16, _BF16)
    return matrix and place.name.endswith("weight") and not any(part in place.name for part in _WHOLE)


def _head(heads: list[tuple[Path, Head]], sources: list[_Source], kind: int) -> bytes:
    """Return what comes before the weights: the fields of the source, but for those of its type and its parts."""
    own = {"general.file_type": _FILE_TYPES[kind], "general.quantization_version": 2, "general.alignment": ALIGNMENT}
    file, first = heads[0]
    with file.open("rb") as opened:
        data = opened.read(first.start)
    kept_ones = [data[a:b] for name, (a, b) in first.spans.items() if name not in own and name[:6] != "split."]
    tensors = [(source.place.name, source.place.sizes, source.type, source.bytes) for source in sources]
    return written([*(field(name, value) for name, value in own.items()), *kept_ones], tensors)


def _pieces(source: _Source) -> Iterator[bytes]:
    """Yield the bytes of a tensor in its new type, a few rows at a time."""
    kind, columns = GGML_TYPES[source.place.type], source.place.sizes[0]
    same = source.type == source.place.type
    most = _PIECE if same else max(1, _PIECE // columns) * columns * kind.bytes
    left = source.weights // kind.block * kind.bytes
    with source.file.open("rb") as file:
        file.seek(source.start + source.place.offset)
        while left:
            data = file.read(min(left, most))
            if not data:
                raise error(f"{source.file} ends within {source.place.name}", "one whole .gguf file")
            left -= len(data)
            yield data if same else _quantised(data, source, columns)


def _quantised(data: bytes, source: _Source, columns: int) -> bytes:
    try:
        import numpy as np
        from gguf import GGMLQuantizationType
        from gguf.quants import quantize
    except ModuleNotFoundError as absent:
        raise error(
            f"weights cannot be packed here: {absent.name} is not installed",
            fix="./inv in a checkout installs it, or pip install gguf numpy",
        ) from None
    values: Any
    if source.place.type == _BF16:
        values = (np.frombuffer(data, np.uint16).astype(np.uint32) << 16).view(np.float32)
    else:
        values = np.frombuffer(data, np.float16 if source.place.type == _F16 else np.float32).astype(np.float32)
    return bytes(quantize(values.reshape(-1, columns), GGMLQuantizationType(source.type)).tobytes())
