"""Text and tokens: a checkpoint's own tokenizer, or bytes for a model with random weights."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from paddock.models import gguf
from paddock.models.errors import ModelError
from paddock.serve.admission.refusal import RequestError
from paddock.serve.errors import PromptTooLong, ServeError, first_line, in_one_line

_GGUF = "tokenizer.ggml."
_END_FILES = ("generation_config.json", "config.json")
_TOKENIZERS = ("tokenizer.json", "tokenizer_config.json", "vocab.json")
_OTHER_TOKENIZERS = ("tekken.json", "tokenizer.model", "tokenizer.model.v3", "spiece.model")


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
    """Return the tokenizer of a checkpoint's folder or GGUF file; bytes for random weights, which have no source.

    Raises ServeError for weights without a tokenizer that is read here: bytes would make nonsense of them.
    """
    if not source:
        return ByteTokens(vocabulary)
    path = Path(source)
    if path.is_file():
        has = f"{_GGUF}tokens" in _gguf_fields(path)
    else:
        has = any((path / name).exists() for name in _TOKENIZERS)
    if not has:
        others = [name for name in _OTHER_TOKENIZERS if (path / name).exists()]
        only = f"only {' and '.join(others)}, which this engine does not read" if others else "none"
        raise ServeError(
            f"{path} has real weights and needs its tokenizer, of which it has {only}; expected: tokenizer.json beside "
            "the weights; fix: fetch it, or serve.load --engine vllm, which reads others"
        )
    try:
        return FileTokens(path)
    except Exception as error:  # the readers of tokenizers have no common one
        raise ServeError(f"the tokenizer of {path} cannot be read: {first_line(error)}") from None


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
    ids = (fields.get(f"{_GGUF}{kind}_token_id") for kind in ("eos", "eot"))
    yield from (number for number in ids if isinstance(number, int))


def _gguf_fields(path: Path) -> Mapping[str, Any]:
    """Return the metadata of a GGUF file. Raises ServeError for one that cannot be read."""
    try:
        return gguf.metadata(path)
    except ModelError as error:
        raise ServeError(in_one_line(error)) from None
