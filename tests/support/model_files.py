"""Files of models written byte by byte, with a hole for the weights: their tables are real, and take no disk."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.models.ggml_types import GGML_TYPES

_NUMBERS = {name: (number, block, size) for number, (name, block, size) in GGML_TYPES.items()}
_BITS = {"F32": 32, "F16": 16, "BF16": 16, "I32": 32, "U8": 8, "I8": 8, "F8_E4M3": 8}


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def field(value: Any) -> bytes:
    """Return a value of GGUF's metadata with its type."""
    match value:
        case bool():
            return struct.pack("<I?", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + text(value)
        case [str(), *_]:
            return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(text, value))
        case [*_]:
            return struct.pack("<IIQ", 9, 5, len(value)) + struct.pack(f"<{len(value)}i", *value)
    raise TypeError(value)


def gguf(
    path: Path, fields: Mapping[str, Any], tensors: Sequence[tuple[str, Sequence[int], str | int]], version: int = 3
) -> Path:
    """Write a GGUF file of tensors (name, sizes with the row first, type)."""
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(fields))
    head += b"".join(text(key) + field(value) for key, value in fields.items())
    offset = 0
    for name, sizes, kind in tensors:
        number, block, size = _NUMBERS[kind] if isinstance(kind, str) else (kind, 1, 2)
        count = 1
        for dimension in sizes:
            count *= dimension
        head += text(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, number, offset)
        offset += -(-(count // block * size) // 32) * 32
    with path.open("wb") as file:
        file.write(head)
        file.truncate(-(-len(head) // 32) * 32 + offset)
    return path


def decoder(architecture: str = "llama", layers: int = 4, **more: Any) -> dict[str, Any]:
    """Return the metadata of a small model; `more` are fields of the architecture, with `__` for a dot."""
    own = {
        "block_count": layers, "embedding_length": 256, "feed_forward_length": 768, "attention.head_count": 8,
        "attention.head_count_kv": 4, "context_length": 4096,
        **{key.replace("__", "."): value for key, value in more.items()},
    }  # fmt: skip
    base = {"general.architecture": architecture, "tokenizer.ggml.model": "gpt2"}
    return {**base, **{f"{architecture}.{key}": value for key, value in own.items()}}


EMBEDDING = ("token_embd.weight", (256, 1000), "F16")


def qwen3_30b(path: Path) -> Path:
    """Write Qwen3-30B-A3B in Q4_K, with its published metadata and the shapes of its tensors: 16 GiB, all a hole."""
    tensors: list[tuple[str, Sequence[int], str | int]] = [
        ("token_embd.weight", (2048, 151936), "Q4_K"), ("output.weight", (2048, 151936), "Q4_K"),
    ]  # fmt: skip
    sizes = {
        "attn_q": (2048, 4096), "attn_k": (2048, 512), "attn_v": (2048, 512), "attn_output": (4096, 2048),
        "ffn_gate_inp": (2048, 128), "ffn_gate_exps": (2048, 768, 128), "ffn_up_exps": (2048, 768, 128),
        "ffn_down_exps": (768, 2048, 128),
    }  # fmt: skip
    tensors += [(f"blk.{layer}.{name}.weight", size, "Q4_K") for layer in range(48) for name, size in sizes.items()]
    fields = decoder(
        "qwen3moe", 48, embedding_length=2048, feed_forward_length=6144, attention__head_count=32,
        attention__key_length=128, attention__value_length=128, context_length=40960, expert_count=128,
        expert_used_count=8, expert_feed_forward_length=768,
    )  # fmt: skip
    return gguf(path, fields, tensors)


def llama_8b(path: Path) -> Path:
    """Write Llama 3.1 8B in Q4_K: 4.2 GiB, all a hole."""
    sizes = {
        "attn_q": (4096, 4096), "attn_k": (4096, 1024), "attn_v": (4096, 1024), "attn_output": (4096, 4096),
        "ffn_gate": (4096, 14336), "ffn_up": (4096, 14336), "ffn_down": (14336, 4096),
    }  # fmt: skip
    tensors: list[tuple[str, Sequence[int], str | int]] = [
        (f"{name}.weight", (4096, 128256), "Q4_K") for name in ("token_embd", "output")
    ]
    tensors += [(f"blk.{layer}.{name}.weight", size, "Q4_K") for layer in range(32) for name, size in sizes.items()]
    fields = decoder(
        "llama", 32, embedding_length=4096, feed_forward_length=14336, attention__head_count=32,
        attention__head_count_kv=8, context_length=131072,
    )  # fmt: skip
    return gguf(path, fields, tensors)


def header(tensors: Mapping[str, tuple[str, Sequence[int]]]) -> tuple[bytes, int]:
    """Return the header of a safetensors file and the bytes of its weights."""
    entries, offset = {}, 0
    for name, (dtype, sizes) in tensors.items():
        count = 1
        for dimension in sizes:
            count *= dimension
        end = offset + -(-count * _BITS[dtype] // 8)
        entries[name] = {"dtype": dtype, "shape": list(sizes), "data_offsets": [offset, end]}
        offset = end
    return json.dumps(entries).encode(), offset


def safetensors(path: Path, tensors: Mapping[str, tuple[str, Sequence[int]]]) -> Path:
    """Write a safetensors file of tensors (dtype, sizes), its weights a hole."""
    head, size = header(tensors)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        file.truncate(8 + len(head) + size)
    return path


LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip


def llama_tensors(dtype: str = "BF16") -> dict[str, tuple[str, Sequence[int]]]:
    """Return the tensors of `LLAMA`."""
    tensors: dict[str, tuple[str, Sequence[int]]] = {"model.embed_tokens.weight": (dtype, (100, 64))}
    for layer in range(2):
        begin = f"model.layers.{layer}."
        for name, size in {
            "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
            "self_attn.o_proj": (64, 64), "mlp.gate_proj": (128, 64), "mlp.up_proj": (128, 64),
            "mlp.down_proj": (64, 128), "input_layernorm": (64,), "post_attention_layernorm": (64,),
        }.items():  # fmt: skip
            tensors[f"{begin}{name}.weight"] = (dtype, size)
    return tensors | {"model.norm.weight": (dtype, (64,)), "lm_head.weight": (dtype, (100, 64))}


def checkpoint(folder: Path, config: Mapping[str, Any] = LLAMA, **files: Mapping[str, Any]) -> Path:
    """Write a checkpoint's folder: config.json, and files of safetensors by their stem, `__` for a dash."""
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    for stem, tensors in files.items():
        safetensors(folder / f"{stem.replace('__', '-')}.safetensors", tensors)
    return folder
