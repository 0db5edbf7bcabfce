"""Answers written by us: whole ones, and the chunks of a stream, of the pieces that an engine gives."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paddock.openai.documents import is_said

END = "data: [DONE]\n\n"
_Fields = Mapping[str, Any]
_NONE: _Fields = {}  # one for all pieces, of which an answer has thousands


@dataclass(frozen=True, slots=True)
class Piece:
    """Part of an answer, and the tokens of the prompt and of the answer until then. The last one has a `finish`.

    `tool_calls` are parts of calls of tools. `delta`, `choice` and `top` are fields beside those, such as
    `reasoning_content`, each for its place in a chunk, and `usage` is what the engine says of the tokens beyond their
    numbers.
    """

    text: str
    prompt_tokens: int
    new_tokens: int
    finish: str = ""
    tool_calls: tuple[_Fields, ...] = ()
    delta: _Fields = field(default_factory=lambda: _NONE)
    choice: _Fields = field(default_factory=lambda: _NONE)
    top: _Fields = field(default_factory=lambda: _NONE)
    usage: _Fields = field(default_factory=lambda: _NONE)


class AnswerWriter:
    """OpenAI's objects of one answer of a model, in a chat or not."""

    def __init__(self, model: str, *, chat: bool) -> None:
        self._model, self._chat = model, chat
        self._id = f"{'chatcmpl' if chat else 'cmpl'}-{uuid.uuid4().hex}"
        self._created = int(time.time())

    def first(self) -> str:
        """Return the event that begins a stream: in a chat the role of who answers, and else nothing."""
        return self._chunk({"delta": {"role": "assistant", "content": ""}}, "", {}, {}) if self._chat else ""

    def chunk(self, piece: Piece) -> str:
        """Return a piece as an event. What an engine says beside the text stands where it stood."""
        content: dict[str, Any] = {**piece.delta, "text": piece.text}
        if self._chat:
            calls = {"tool_calls": list(piece.tool_calls)} if piece.tool_calls else {}
            text = {"content": piece.text} if piece.text or not piece.delta else {}
            content = {"delta": {**piece.delta, **text, **calls}}
        return self._chunk(content, piece.finish, piece.choice, piece.top)

    def usage(self, piece: Piece) -> str:
        """Return the event with the tokens of the whole answer, of its last piece."""
        return event({**piece.top, **self._head(chunk=True), "choices": [], "usage": _usage(piece)})

    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """Return the answer of all pieces, at least one."""
        last = pieces[-1]
        text = _mended("".join(piece.text for piece in pieces))
        delta = _together([piece.delta for piece in pieces])
        content: dict[str, Any] = {**delta, "text": text}
        if self._chat:
            calls = _calls(part for piece in pieces for part in piece.tool_calls)
            own = {"role": "assistant", "content": text if text or not calls else None}
            content = {"message": {**own, **delta, **({"tool_calls": calls} if calls else {})}}
        choice = _together([piece.choice for piece in pieces], is_said)
        fixed = {"index": 0, **content, "finish_reason": last.finish or None}
        top = {name: value for piece in pieces for name, value in piece.top.items()}
        choices = [{"logprobs": None, **choice, **fixed}]
        return {**top, **self._head(chunk=False), "choices": choices, "usage": _usage(last)}

    def _chunk(self, content: _Fields, finish: str, choice: _Fields, top: _Fields) -> str:
        own = {"index": 0, **content, "finish_reason": finish or None}
        return event({**top, **self._head(chunk=True), "choices": [{"logprobs": None, **choice, **own}]})

    def _head(self, *, chunk: bool) -> dict[str, Any]:
        kind = "text_completion" if not self._chat else f"chat.completion{'.chunk' if chunk else ''}"
        return {"id": self._id, "object": kind, "created": self._created, "model": self._model}


def event(document: _Fields) -> str:
    """Return a document as an event of a stream."""
    return f"data: {json.dumps(document)}\n\n"


def refusal(message: str, code: str, param: str = "") -> dict[str, Any]:
    """Return an error as OpenAI's clients read it."""
    return {"error": {"message": message, "type": code, "param": param or None, "code": code}}


def _usage(piece: Piece) -> dict[str, Any]:
    total = piece.prompt_tokens + piece.new_tokens
    counts = {"prompt_tokens": piece.prompt_tokens, "completion_tokens": piece.new_tokens, "total_tokens": total}
    return {**piece.usage, **counts}


def _calls(parts: Iterable[_Fields]) -> list[dict[str, Any]]:
    """Return calls of tools, put together from the parts of a stream: each names its call by an index."""
    calls: dict[int, list[_Fields]] = {}
    for part in parts:
        calls.setdefault(part["index"], []).append(part)
    return [_call(calls[index]) for index in sorted(calls)]


def _call(parts: Sequence[_Fields]) -> dict[str, Any]:
    fields = {name: value for part in parts for name, value in part.items() if name not in ("index", "function")}
    function = {"name": "", "arguments": "", **_together([part["function"] for part in parts])}
    return {"type": "function", **fields, "function": function}


def _together(parts: Iterable[_Fields], grows: Callable[[str], bool] = bool) -> dict[str, Any]:
    """Return the fields of the parts of a stream as those of the whole: lists grow, and texts whose name `grows`.

    Of all others the last value holds.
    """
    values: dict[str, list[Any]] = {}
    for part in parts:
        for name, value in part.items():
            values.setdefault(name, []).append(value)
    return {name: _joined(name, found, grows) for name, found in values.items()}


def _joined(name: str, values: list[Any], grows: Callable[[str], bool]) -> Any:
    if grows(name) and all(isinstance(value, str) for value in values):
        return _mended("".join(values))
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    if all(isinstance(value, dict) for value in values):
        return _together(values, grows)
    return values[-1]


def _mended(text: str) -> str:
    """Return a text whose pairs of surrogates, which a stream may divide, are the characters that they stand for."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
