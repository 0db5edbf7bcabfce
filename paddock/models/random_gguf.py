"""Models without weights: a .gguf file of random numbers in a public shape, with a tokenizer that reads any text."""

from __future__ import annotations

import hashlib
import itertools
import math
import shutil
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, BinaryIO, NamedTuple

from paddock.errors import did_you_mean
from paddock.files import replacing
from paddock.models.errors import error
from paddock.models.ggml_types import GGML_TYPES
from paddock.models.gguf_head import ALIGNMENT, field, written
from paddock.models.shapes import Shape

MEANS_NOTHING = "weights are random numbers: what it says means nothing"
"""What a file says of itself (general.description)."""

_ARCHITECTURES: Mapping[str, str] = MappingProxyType(
    {"llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3"}
)
"""Architecture in llama.cpp of each in transformers."""
_SPREAD = 0.02
"""Standard deviation of the weights, as most models are initialised."""
_POOL = 2**25
"""Bytes of random numbers of a type, which each tensor takes from another place: beyond any CPU's cache."""


class _Blocks(NamedTuple):
    """A quantised type: where the fp16 scale of a block is, its spread at scale 1, and where the offset's scale is.

    The offset's scale is `ratio` times the other one, which makes the mean zero. From llama.cpp's ggml-common.h
    (block_q4_0 …) and the formulas of ggml-quants.c for whole numbers that are equally likely.
    """

    scale: int
    spread: float
    offset: int | None = None
    ratio: float = 0.0


_F32, _F16, _BF16 = 0, 1, 30
_BLOCKS: Mapping[int, _Blocks] = MappingProxyType(
    {
        2: _Blocks(0, 4.61), 3: _Blocks(0, 4.61, 2, -7.5), 6: _Blocks(0, 9.23), 7: _Blocks(0, 9.23, 2, -15.5),
        8: _Blocks(0, 73.9), 10: _Blocks(80, 13.9, 82, 1.5), 11: _Blocks(108, 43.3), 12: _Blocks(0, 258.0, 2, 7.5),
        13: _Blocks(0, 527.0, 2, 15.5), 14: _Blocks(208, 1366.0),
    }
)  # fmt: skip
_NARROW: Mapping[int, int] = MappingProxyType({10: 2, 11: 2, 12: 6, 13: 7, 14: 8})
"""Type for rows that blocks of 256 do not divide (llama.cpp, src/llama-quant.cpp, tensor_type_fallback)."""
_FILE_TYPES: Mapping[int, int] = MappingProxyType(
    {0: 0, 1: 1, 2: 2, 3: 3, 6: 8, 7: 9, 8: 7, 10: 10, 11: 12, 12: 14, 13: 16, 14: 18, 30: 32}
)
"""general.file_type of a file that is mostly of a type (llama.h, llama_ftype)."""
TYPES: Mapping[str, int] = MappingProxyType(
    {"fp32": _F32, "fp16": _F16, "bf16": _BF16, "int8": 8, "int4": 2}
    | {GGML_TYPES[number].name.lower(): number for number in _BLOCKS}
)
"""Number of ggml's type for each format; int8 is its Q8_0, int4 its Q4_0."""

_PRINTED = " etaoinshrdlcumwfgypbvkjxqzETAOINSHRDLCUMWFGYPBVKJXQZ0123456789.,'\"-?!:;()[]{}/*=+_<>#@&%$|~^`\\"
"""Printable characters of ASCII, those first that texts have most often."""
_CONTROL = ("<|begin|>", "<|im_start|>", "<|im_end|>")
_SILENT = 256 - len(_PRINTED) + len(_CONTROL)
"""Tokens, the first ones, that are never the most likely: single bytes which are not text alone, and control tokens."""
LEAST_VOCABULARY = 256 + len(_CONTROL)
"""Tokens without which not every text can be read."""
_TEMPLATE = (
    "{% if tools %}<|im_start|>system\n{{ tools | tojson }}<|im_end|>\n{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] or '' }}"
    "{% for call in message['tool_calls'] or [] %}"
    '{"name": "{{ call.function.name }}", "parameters": {{ call.function.arguments | tojson }}}{% endfor %}'
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""Messages between the control tokens, and a call of a tool as plain JSON, which no token of its own begins."""


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor: the numbers of a row, its rows (None for a vector), ggml's type, and the value of a plain vector."""

    name: str
    columns: int
    rows: int | None = None
    type: int = _F32
    value: float = 1.0

    @property
    def sizes(self) -> tuple[int, ...]:
        return (self.columns,) if self.rows is None else (self.columns, self.rows)

    @property
    def row_bytes(self) -> int:
        kind = GGML_TYPES[self.type]
        return self.columns // kind.block * kind.bytes

    @property
    def bytes(self) -> int:
        return self.row_bytes * (self.rows or 1)


def nbytes(shape: Shape, dtype: str) -> int:
    """Return the bytes of the weights of a file. Raises ModelError for a shape or format that is not written."""
    return sum(tensor.bytes for tensor in _tensors(shape, dtype))


def write(path: Path, shape: Shape, dtype: str, seed: int = 0) -> int:
    """Write a file as `write_to` does, and return its bytes. Whatever ends it, no part of a file stays."""
    try:
        with replacing(path, sync=False) as file:
            write_to(file, path.parent, shape, dtype, seed)
            return file.tell()
    except OSError as failed:
        raise error(f"cannot write {path}: {failed.strerror or failed}", fix="name another folder") from None


def write_to(file: BinaryIO, folder: Path, shape: Shape, dtype: str, seed: int = 0) -> None:
    """Write a model of random weights into a new file of a folder. The same seed gives the same bytes.

    Every matrix is of `dtype`, also embedding and output head, with those exceptions that llama.cpp's own quantiser
    makes for rows which blocks do not divide. Raises ModelError for a shape or format that is not written, and where
    the disk has too little room, and OSError.
    """
    tensors = _tensors(shape, dtype)
    head = _head(shape, tensors, TYPES[dtype])
    total = sum(tensor.bytes for tensor in tensors)
    needed, free = len(head) + total, shutil.disk_usage(folder).free
    if free < needed:
        raise error(
            f"random weights of {shape.name} take {needed / 1e9:.1f} GB, and {folder} has {free / 1e9:.1f} free",
            "room for the whole file",
            "make room there, or take a smaller model or format",
        )
    pools: dict[int, memoryview] = {}
    size = min(_POOL, max(tensor.bytes for tensor in tensors))
    file.write(head)
    for tensor in tensors:
        for piece in _numbers(tensor, pools, size, seed):
            file.write(piece)
        file.write(bytes(-file.tell() % ALIGNMENT))


def _tensors(shape: Shape, dtype: str) -> list[_Tensor]:
    """Return the tensors that llama.cpp's loader wants (src/models/llama.cpp, qwen2.cpp, qwen3.cpp)."""
    if dtype not in TYPES:
        raise error(f"random weights in {dtype!r} are not written", did_you_mean(dtype, TYPES, ", ".join(TYPES)))
    if shape.architecture not in _ARCHITECTURES:
        raise error(
            f"random weights of the architecture {shape.architecture!r} are not written",
            f"one of {', '.join(_ARCHITECTURES)}",
            "name a .gguf file of that model",
        )
    if shape.vocabulary < LEAST_VOCABULARY:
        raise error(f"a vocabulary of {shape.vocabulary} reads no text", f"at least {LEAST_VOCABULARY} tokens")
    wanted, architecture = TYPES[dtype], shape.architecture
    hidden, inner = shape.hidden, shape.intermediate
    heads, cached = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim

    def matrix(name: str, columns: int, rows: int) -> _Tensor:
        return _Tensor(f"{name}.weight", columns, rows, _fitting(wanted, columns))

    tensors = [matrix("token_embd", hidden, shape.vocabulary), _Tensor("output_norm.weight", hidden)]
    if not shape.tied:
        tensors.append(matrix("output", hidden, shape.vocabulary))
    for number in range(shape.layers):
        layer = f"blk.{number}"
        tensors += [
            _Tensor(f"{layer}.attn_norm.weight", hidden),
            matrix(f"{layer}.attn_q", hidden, heads),
            matrix(f"{layer}.attn_k", hidden, cached),
            matrix(f"{layer}.attn_v", hidden, cached),
            matrix(f"{layer}.attn_output", heads, hidden),
            _Tensor(f"{layer}.ffn_norm.weight", hidden),
            matrix(f"{layer}.ffn_gate", hidden, inner),
            matrix(f"{layer}.ffn_up", hidden, inner),
            matrix(f"{layer}.ffn_down", inner, hidden),
        ]
        if architecture == "qwen2":
            widths = {"attn_q": heads, "attn_k": cached, "attn_v": cached}
            tensors += [_Tensor(f"{layer}.{name}.bias", width, value=0.0) for name, width in widths.items()]
        if architecture == "qwen3":
            tensors += [_Tensor(f"{layer}.{name}_norm.weight", shape.head_dim) for name in ("attn_q", "attn_k")]
    return tensors


def _fitting(wanted: int, columns: int) -> int:
    for kind in (wanted, _NARROW.get(wanted, wanted)):
        if columns % GGML_TYPES[kind].block == 0:
            return kind
    return _F16


def _numbers(tensor: _Tensor, pools: dict[int, memoryview], size: int, seed: int) -> Iterator[memoryview | bytes]:
    """Yield the bytes of a tensor. Rows of silent tokens are zeros, and so are their logits."""
    if tensor.rows is None:
        yield struct.pack("<f", tensor.value) * tensor.columns
        return
    if tensor.type not in pools:
        pools[tensor.type] = memoryview(_random(tensor.type, size, seed)).cast("B")
    pool, block = pools[tensor.type], GGML_TYPES[tensor.type].bytes
    digest = hashlib.sha256(f"{seed} {tensor.name}".encode()).digest()
    start = int.from_bytes(digest[:7]) % (len(pool) // block) * block
    left = tensor.bytes
    if tensor.name in ("token_embd.weight", "output.weight"):
        yield bytes(_SILENT * tensor.row_bytes)
        left -= _SILENT * tensor.row_bytes
    while left:
        piece = pool[start : start + left]
        yield piece
        left -= len(piece)
        start = 0


def _random(kind: int, size: int, seed: int) -> Any:
    """Return about `size` bytes of random numbers of a type, all finite, of mean 0 and standard deviation `_SPREAD`."""
    import numpy as np

    rng = np.random.default_rng((seed, kind))
    if kind not in _BLOCKS:
        most = _SPREAD * math.sqrt(3)  # of uniform ones
        values = rng.random(size // 4, dtype=np.float32) * (2 * most) - most
        if kind == _BF16:
            return (values.view(np.uint32) >> 16).astype(np.uint16)
        return values.astype(np.float16) if kind == _F16 else values
    block, place = GGML_TYPES[kind].bytes, _BLOCKS[kind]
    count = max(1, size // block)
    blocks = np.frombuffer(bytearray(rng.bytes(count * block)), np.uint8).reshape(count, block)
    scales = rng.uniform(0.7, 1.3, count) * rng.choice((-1.0, 1.0), count) * (_SPREAD / place.spread)
    for at, factor in ((place.scale, 1.0), (place.offset, place.ratio)):
        if at is not None:
            blocks[:, at : at + 2] = (scales * factor).astype(np.float16).view(np.uint8).reshape(count, 2)
    return blocks


def _vocabulary(size: int) -> tuple[list[str], list[str]]:
    """Return tokens and merges of a byte-level BPE: control tokens, the bytes, then strings of printable characters.

    All strings of two characters come before those of three: each is the merge of one that is there and a character.
    Characters stand for bytes as in GPT-2 (encoder.py, bytes_to_unicode).
    """
    plain = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = itertools.count(256)
    letters = {byte: chr(byte if byte in plain else next(others)) for byte in range(256)}
    printed = [letters[ord(character)] for character in _PRINTED]
    silent = [letters[byte] for byte in range(256) if chr(byte) not in _PRINTED]
    tokens = [*_CONTROL, *silent, *printed]
    strings = itertools.chain.from_iterable(itertools.product(printed, repeat=length) for length in itertools.count(2))
    added = list(itertools.islice(strings, size - len(tokens)))
    tokens += ["".join(string) for string in added]
    return tokens, ["".join(string[:-1]) + " " + string[-1] for string in added]


def _head(shape: Shape, tensors: Sequence[_Tensor], kind: int) -> bytes:
    """Return what comes before the weights (github.com/ggml-org/ggml, docs/gguf.md, version 3)."""
    architecture = _ARCHITECTURES[shape.architecture]
    tokens, merges = _vocabulary(shape.vocabulary)
    fields: dict[str, Any] = {
        "general.architecture": architecture,
        "general.type": "model",
        "general.name": f"{shape.name} with random weights",
        "general.description": MEANS_NOTHING,
        "general.file_type": _FILE_TYPES[kind],
        "general.quantization_version": 2,
        "general.alignment": ALIGNMENT,
        f"{architecture}.block_count": shape.layers,
        f"{architecture}.context_length": shape.max_length,
        f"{architecture}.embedding_length": shape.hidden,
        f"{architecture}.feed_forward_length": shape.intermediate,
        f"{architecture}.attention.head_count": shape.heads,
        f"{architecture}.attention.head_count_kv": shape.kv_heads,
        f"{architecture}.attention.key_length": shape.head_dim,
        f"{architecture}.attention.value_length": shape.head_dim,
        f"{architecture}.attention.layer_norm_rms_epsilon": 1e-6,
        f"{architecture}.rope.freq_base": float(shape.rope_theta),
        f"{architecture}.rope.dimension_count": shape.head_dim,
        f"{architecture}.vocab_size": shape.vocabulary,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3] * len(_CONTROL) + [1] * (len(tokens) - len(_CONTROL)),
        "tokenizer.ggml.merges": merges,
        "tokenizer.ggml.bos_token_id": 0,
        "tokenizer.ggml.eos_token_id": _CONTROL.index("<|im_end|>"),
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": _TEMPLATE,
    }
    table = [(tensor.name, tensor.sizes, tensor.type, tensor.bytes) for tensor in tensors]
    return written([field(name, value) for name, value in fields.items()], table)
