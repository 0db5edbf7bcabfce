"""GGUF files of small models, written by the real library."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np

SIZES = {
    "token_embd": (96, 64), "blk.0.attn_q": (64, 64), "blk.0.attn_k": (32, 64), "blk.0.attn_v": (32, 64),
    "blk.0.attn_output": (64, 64), "blk.0.ffn_gate": (128, 64), "blk.0.ffn_up": (128, 64), "blk.0.ffn_down": (64, 128),
}  # fmt: skip


def write(path: Path, kind: gguf.GGMLQuantizationType, *, tokenizer: bool = False) -> Path:
    """Write a small model of random weights; with a tokenizer of one character a token where that is wanted."""
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(1)
    writer.add_context_length(512)
    writer.add_embedding_length(64)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(96)
    if tokenizer:
        characters = [chr(32 + number) for number in range(1, 93)]
        pieces = ["<unk>", "<s>", "</s>", "\u2581", *characters]
        writer.add_tokenizer_model("llama")
        writer.add_token_list(pieces)
        writer.add_token_scores([0.0] * 3 + [-float(number) for number in range(len(pieces) - 3)])
        writer.add_token_types([2, 3, 3] + [1] * (len(pieces) - 3))
        writer.add_bos_token_id(1)
        writer.add_eos_token_id(2)
        writer.add_unk_token_id(0)
    random = np.random.default_rng(0)
    for name, size in SIZES.items():
        weights = random.standard_normal(size, dtype=np.float32) / 8
        writer.add_tensor(f"{name}.weight", gguf.quantize(weights, kind), raw_dtype=kind)
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        writer.add_tensor(f"{name}.weight", np.ones(64, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
