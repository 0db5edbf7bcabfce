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
    """Tokenizer of a checkpoint's folder or of a .gguf file, with its chat template where it has one."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoTokenizer

        folder, more = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, **more)
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
    """Return the tokenizer of a checkpoint's folder or .gguf file, or bytes where it has none."""
    path = Path(source) if source else None
    return FileTokens(path) if path and _has_tokenizer(path) else ByteTokens(vocabulary)


def _has_tokenizer(path: Path) -> bool:
    if not path.is_file():
        return any((path / name).exists() for name in ("tokenizer.json", "tokenizer_config.json"))
    from gguf import GGUFReader

    return GGUFReader(str(path)).get_field("tokenizer.ggml.tokens") is not None
