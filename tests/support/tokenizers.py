"""Tokenizers of checkpoints, trained on a few words: of bytes as GPT-2's and Llama 3's, and of pieces as Llama 2's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

WORDS = ["hello world, the GPU said \N{GRINNING FACE} and again", "das Gerät fährt über Brücken", "你好世界 héllo"]
TEMPLATE = (
    "{% for message in messages %}"
    "{% if message.role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<s>{{ message.role }}: {{ message.content }}</s>{% endfor %}"
)
SPECIAL = ["<unk>", "<s>", "</s>", "<|eot|>"]


def write_tokenizer(folder: Path, kind: str, *, template: str = TEMPLATE, end: Any = None) -> Path:
    """Write a checkpoint's tokenizer, of `bytes` or `pieces`, with the ends that its generation config names."""
    from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    if kind == "bytes":
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        trainer = trainers.BpeTrainer(
            vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), special_tokens=SPECIAL,
            show_progress=False,
        )  # fmt: skip
        tokenizer.train_from_iterator(WORDS, trainer)
    else:
        pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), "▁", *"helo wrdGPUsai,tn", "▁t", "▁the", "ll"]
        vocabulary = {piece: number for number, piece in enumerate(dict.fromkeys(pieces))}
        merges = [("▁", "t"), ("l", "l")]
        tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", byte_fallback=True))
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence(
            [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", chat_template=template,
        additional_special_tokens=["<|eot|>"],
    )  # fmt: skip
    fast.save_pretrained(folder)
    if end is not None:
        (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": end}))
    return folder
