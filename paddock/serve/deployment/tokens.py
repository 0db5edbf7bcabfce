"""Text and tokens: a checkpoint's own tokenizer, or bytes for a model with random weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol


class Tokens(Protocol):
    """Conversion of text to token ids and back."""

    end: frozenset[int]
    """Ids that end an answer."""

    def encode(self, prompt: str, messages: Sequence[Mapping[str, str]]) -> list[int]: ...

    def decode(self, ids: Sequence[int]) -> str: ...


class ByteTokens:
    """One token a byte. Random weights answer with any id: each becomes a printable character."""

    end: frozenset[int] = frozenset()

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def encode(self, prompt: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        return [byte % self._vocabulary for byte in prompt.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(32 + number % 95) for number in ids)


class FileTokens:
    """Tokenizer of a checkpoint's folder, with its chat template where it has one."""

    def __init__(self, folder: Path) -> None:
        from transformers import AutoTokenizer

        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
        end = self._tokenizer.eos_token_id
        self.end = frozenset() if end is None else frozenset([int(end)])

    def encode(self, prompt: str, messages: Sequence[Mapping[str, str]]) -> list[int]:
        if messages and self._tokenizer.chat_template:
            text = self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=True, tokenize=False)
            return [int(number) for number in self._tokenizer.encode(text, add_special_tokens=False)]
        return [int(number) for number in self._tokenizer.encode(prompt)]

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def tokens(source: str, vocabulary: int) -> Tokens:
    """Return the tokenizer of a checkpoint's folder, or bytes where it has none."""
    folder = Path(source) if source else None
    if folder and any((folder / name).exists() for name in ("tokenizer.json", "tokenizer_config.json")):
        return FileTokens(folder)
    return ByteTokens(vocabulary)
