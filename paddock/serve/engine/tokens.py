"""Text and tokens: a checkpoint's own tokenizer, or bytes for a model with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from paddock.serve.admission.refusal import RequestError
from paddock.serve.errors import PromptTooLong, first_line

_GGUF = "tokenizer.ggml."
_END_FILES = ("generation_config.json", "config.json")


class Tokens(Protocol):
    """Conversion of text to token ids and back."""

    end: frozenset[int]
    """Ids that end an answer."""
    hidden: frozenset[int]
    """Ids without a text of their own."""

    def encode(self, prompt: str, messages: Sequence[Mapping[str, Any]], length: int) -> list[int]:
        """Return the ids. Raises PromptTooLong for a text that cannot be so few tokens, and RequestError."""

    def decode(self, ids: Sequence[int]) -> str: ...


class ByteTokens:
    """One token a byte. Random weights answer with any id: each becomes a printable character."""

    end: frozenset[int] = frozenset()
    hidden: frozenset[int] = frozenset()

    def __init__(self, vocabulary: int) -> None:
        self._vocabulary = vocabulary

    def encode(self, prompt: str, messages: Sequence[Mapping[str, Any]], length: int) -> list[int]:
        _check_letters(len(prompt), 1, length)
        return [byte % self._vocabulary for byte in prompt.encode()]

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(chr(32 + number % 95) for number in ids)


class FileTokens:
    """Tokenizer of a checkpoint's folder or GGUF file, with its chat template where it has one."""

    def __init__(self, path: Path) -> None:
        from transformers import AutoTokenizer

        folder, more = (path.parent, {"gguf_file": path.name}) if path.is_file() else (path, {})
        self._tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True, **more)
        self._tokenizer.encode("")  # sets its truncation, which no thread may change while another one encodes
        own = self._tokenizer.eos_token_id
        named = _gguf_end_ids(path) if path.is_file() else _end_ids(path)
        self.end = frozenset([*named, *([] if own is None else [int(own)])])
        self.hidden = frozenset(map(int, self._tokenizer.all_special_ids))
        self._longest = _longest(self._tokenizer)

    def encode(self, prompt: str, messages: Sequence[Mapping[str, Any]], length: int) -> list[int]:
        templated = bool(messages and self._tokenizer.chat_template)
        try:
            text = self._chat(messages) if templated else prompt
            if self._longest:
                normalizer = self._tokenizer.backend_tokenizer.normalizer
                _check_letters(len(normalizer.normalize_str(text) if normalizer else text), self._longest, length)
            return [int(number) for number in self._tokenizer.encode(text, add_special_tokens=not templated)]
        except (TypeError, ValueError, LookupError) as error:  # of values that a message may have, and text may not
            raise RequestError(f"the model's tokenizer does not take it: {first_line(error)}") from None

    def decode(self, ids: Sequence[int]) -> str:
        # Without the clean-up, which would change a text that has been shown already.
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False))

    def _chat(self, messages: Sequence[Mapping[str, Any]]) -> str:
        from jinja2 import TemplateError

        try:
            rows = [dict(message) for message in messages]
            return str(self._tokenizer.apply_chat_template(rows, add_generation_prompt=True, tokenize=False))
        except TemplateError as error:
            # Templates state so which roles they take, and in which order.
            raise RequestError(
                f"messages: the model's chat template refuses them: {first_line(error)}", param="messages"
            ) from None


def tokens(source: str, vocabulary: int) -> Tokens:
    """Return the tokenizer of a checkpoint's folder or GGUF file, or bytes where it has none."""
    path = Path(source) if source else None
    if path is None:
        return ByteTokens(vocabulary)
    if path.is_file():
        return FileTokens(path) if f"{_GGUF}tokens" in _gguf_fields(path) else ByteTokens(vocabulary)
    has = any((path / name).exists() for name in ("tokenizer.json", "tokenizer_config.json"))
    return FileTokens(path) if has else ByteTokens(vocabulary)


def _check_letters(letters: int, longest: int, length: int) -> None:
    """Refuse a text that no tokenizer makes so short, before seconds are spent on it."""
    if letters > longest * length:
        raise PromptTooLong(
            f"the prompt has {letters} characters, and the context of {length} tokens holds at most {longest * length}"
        )


def _end_ids(folder: Path) -> Iterator[int]:
    """Yield the ends that the model's files name: instruction models have several."""
    for name in _END_FILES:
        try:
            ids = json.loads((folder / name).read_text(encoding="utf-8")).get("eos_token_id")
        except (OSError, ValueError, AttributeError):
            continue
        yield from (number for number in (ids if isinstance(ids, list) else [ids]) if isinstance(number, int))


def _longest(tokenizer: Any) -> int:
    """Return the characters of the longest token; 0 where a token may stand for more, such as for an unknown word."""
    model: Any = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    if type(model).__name__ != "BPE" or (model.unk_token is not None and not model.byte_fallback):
        return 0
    return max(map(len, tokenizer.get_vocab()), default=0)


def _gguf_end_ids(path: Path) -> Iterator[int]:
    fields = _gguf_fields(path)
    yield from (
        int(fields[name].contents()) for kind in ("eos", "eot") if (name := f"{_GGUF}{kind}_token_id") in fields
    )


def _gguf_fields(path: Path) -> Mapping[str, Any]:
    """Return the metadata of a GGUF file; none where it is no such file, as the engine will say."""
    from gguf import GGUFReader

    try:
        return dict(GGUFReader(path).fields)
    except ValueError:
        return {}
