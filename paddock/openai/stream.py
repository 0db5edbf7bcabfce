"""Streamed answers: the parts of one as its bytes come, and whether it came whole."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from paddock.openai.body import HEAD, is_hopeless, misread
from paddock.openai.documents import is_said, parsed
from paddock.openai.ends import finish_reason, has_failed, is_ordinary
from paddock.openai.errors import ExchangeError, refusal, reported, short, words
from paddock.openai.sse import DONE, Event, EventReader

CountedBy = Literal["token ids", "logprobs", "running usage", "usage, spread over the chunks", "nothing"]
_SHOWN = 200
"""Bytes of a page that a message shows."""
_MOST_TOKENS = 10_000_000
"""Tokens that a usage may count; one that counts more is not believed."""
NOTHING: Mapping[str, Any] = {}
_OWN_DELTA = frozenset(["role", "content", "tool_calls"])
_OWN_CHOICE = frozenset(["index", "delta", "message", "text", "finish_reason", "usage", "error"])


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens as the server counted them; None for a prompt that it does not count. `document` is what it said."""

    prompt: int | None
    completion: int
    document: Mapping[str, Any] = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class Part:
    """Part of an answer that arrived at once: one choice of one event.

    `time` is when its last byte arrived. `tokens` is None where the part does not say how many it holds, and `delta`
    has what comes next to the content, such as `reasoning_content`. `spoken` says that the model said something in it:
    text, reasoning, a refusal or a part of a call.
    """

    time: float
    text: str = ""
    finish: str = ""
    tokens: int | None = None
    counted_by: CountedBy = "nothing"
    delta: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    spoken: bool = False


class StreamReader:
    """Reader of one streamed answer. What it keeps is bounded by the longest event, whatever a server sends.

    `usage` is the last that came, `finish` the last reason to end, and `done` says that `[DONE]` has come.
    """

    def __init__(self) -> None:
        self._events = EventReader()
        self._head = bytearray()
        self._answered, self.done = False, False
        self._begun: set[int] = set()
        self._ended: set[int] = set()
        self._counted = 0
        self.usage: Usage | None = None
        self.finish = ""

    def feed(self, time: float, piece: bytes) -> Iterator[Part]:
        """Yield the parts that a piece of the body completes. Raises ExchangeError for an error, or no stream."""
        if not self._answered and len(self._head) < HEAD:
            self._head += piece[: HEAD - len(self._head)]
            if is_hopeless(shown := bytes(self._head[:_SHOWN])):
                if len(shown) == _SHOWN:
                    raise misread(shown)
                return
        for event in self._events.feed(time, piece):
            yield from self._event(event)

    def end(self, time: float) -> Iterator[Part]:
        """Yield what the end of the body completes. Raises ExchangeError unless the answer is whole.

        It is whole with an ordinary finish_reason alone: `[DONE]` also follows errors.
        """
        if not is_hopeless(bytes(self._head[:_SHOWN])):
            for event in self._events.end(time):
                yield from self._event(event)
        if not self._answered:
            raise misread(bytes(self._head))
        if not self.finish:
            last = "with [DONE] and without a finish_reason" if self.done else "without a finish_reason or [DONE]"
            raise ExchangeError("closed early", f"the stream ended {last}")
        if self._begun - self._ended:
            raise ExchangeError("closed early", "the stream ended in the middle of one of its choices")
        if not is_ordinary(self.finish):
            raise _failed(self.finish)

    def _event(self, event: Event) -> Iterator[Part]:
        if event.type == "error":
            raise _stated(_error(event.data))
        for data in _documents(event.data):
            if data == DONE:
                self._answered = self.done = True
            elif data:
                yield from self._document(event, data)

    def _document(self, event: Event, data: str) -> Iterator[Part]:
        document = parsed(data)
        if event.type == "bare":
            if isinstance(document, dict) and (error := reported(document)):
                raise _stated(error)
            return
        if document is None:
            if event.type != "message" or data == "null":
                return  # the time of day in an event `ping`; llama.cpp b11549 begins with null for several prompts
            raise ExchangeError("malformed", f"a chunk is not JSON: {short(data)}")
        if not isinstance(document, dict):
            raise ExchangeError("malformed", f"a chunk is not a JSON object: {short(data)}")
        self._answered = True
        self._head.clear()
        if error := reported(document):
            raise _stated(error, refusal(document))
        choices = document.get("choices") or []
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            raise _formless(data)
        if usage := usage_of(document, choices):
            self.usage = usage
        for choice in choices if not self.done else ():
            try:
                part = self._part(event.time, choice, usage)
            except (TypeError, AttributeError):
                raise _formless(data) from None
            if part:
                yield part

    def _part(self, time: float, choice: Mapping[str, Any], usage: Usage | None) -> Part | None:
        """Return what a choice holds; None for one that holds nothing, such as the role alone."""
        delta = choice.get("delta") or {}
        content, thought = _content(delta.get("content"))
        finish = finish_reason(choice.get("finish_reason"))
        if has_failed(finish):
            raise _failed(finish, choice["finish_reason"])
        self.finish = finish or self.finish
        if type(index := choice.get("index")) is int:
            (self._ended if finish else self._begun).add(index)
        more = _others(delta, _OWN_DELTA)
        if thought:
            more = {"reasoning_content": thought, **more}
        text = _string(choice.get("text")) + content
        spoken = bool(text or delta.get("tool_calls")) or _spoken(more) or _spoken(_others(choice, _OWN_CHOICE))
        tokens, by = self._count(choice, usage if spoken else None)
        return Part(time, text, finish, tokens, by, more, spoken) if spoken or finish or tokens else None

    def _count(self, choice: Mapping[str, Any], usage: Usage | None) -> tuple[int | None, CountedBy]:
        """Return the tokens of a choice by what it says of them, or by the growth of the usage next to it."""
        logprobs = choice.get("logprobs")
        listed = (logprobs.get("tokens") or logprobs.get("content")) if isinstance(logprobs, dict) else None
        result: tuple[int | None, CountedBy] = None, "nothing"
        if isinstance(ids := choice.get("token_ids"), list) and ids:
            result = len(ids), "token ids"
        elif isinstance(listed, list) and listed:
            result = len(listed), "logprobs"
        elif usage:
            result = max(0, usage.completion - self._counted), "running usage"
        self._counted += result[0] or 0
        return result


def _others(fields: Mapping[str, Any], own: frozenset[str]) -> Mapping[str, Any]:
    """Return the fields that are not the reader's own and hold something."""
    if fields.keys() <= own:
        return NOTHING
    return {name: value for name, value in fields.items() if name not in own and value not in (None, "", [])}


def _spoken(fields: Mapping[str, Any]) -> bool:
    return bool(fields) and any(value and is_said(name) for name, value in fields.items())


def _documents(data: str) -> list[str]:
    """Return the documents of an event: one, or one a line where a server leaves out the blank lines between them."""
    if "\n" not in data or parsed(data) is not None:
        return [data.strip()]
    return [line.strip() for line in data.split("\n")]


def usage_of(document: Mapping[str, Any], choices: list[Any]) -> Usage | None:
    """Return the usage of an event; Moonshot has it in the choice, and Groq had it in `x_groq`."""
    candidates = [document.get("usage"), *[choice["usage"] for choice in choices if "usage" in choice]]
    if isinstance(groq := document.get("x_groq"), dict):
        candidates.append(groq.get("usage"))
    for usage in candidates:
        if isinstance(usage, dict):
            names = ("prompt_tokens", "input_tokens"), ("completion_tokens", "output_tokens"), ("total_tokens",)
            prompt, completion, total = [
                next((count for name in known if (count := _count(usage.get(name))) is not None), None)
                for known in names
            ]
            if completion is None and prompt is not None and total is not None:
                completion = max(0, total - prompt)
            if prompt is None and completion is not None and total is not None:
                prompt = max(0, total - completion)
            if completion is not None:
                return Usage(prompt, completion, usage)
    return None


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MOST_TOKENS else None


def _string(value: object) -> str:
    if not isinstance(value, str | None):
        raise TypeError
    return value or ""


def _content(value: object) -> tuple[str, str]:
    """Return the text of a content, and what is thought in it: Mistral's has a list of parts of both."""
    if not isinstance(value, list):
        return _string(value), ""
    spoken, thought = "", ""
    for part in value:
        if part.get("type") == "thinking":
            inner = part.get("thinking")
            thought += inner if isinstance(inner, str) else "".join(_string(row.get("text")) for row in inner or ())
        else:
            spoken += _string(part.get("text"))
    return spoken, thought


def _error(data: str) -> str:
    document = parsed(data)
    said = document if document is not None else data
    return (reported(said) if isinstance(said, dict) else "") or (words(said) if said else "it does not say which")


def _stated(error: str, status: int = 0) -> ExchangeError:
    return ExchangeError("server error", f"the server reports an error: {error}", status)


def _failed(finish: str, said: object = None) -> ExchangeError:
    more = f": {words(said)}" if isinstance(said, Mapping) and said.get("message") else ""
    return ExchangeError(
        "server error", f"the answer ended with the finish_reason {short(finish)!r}, which is not an ordinary end{more}"
    )


def _formless(data: str) -> ExchangeError:
    return ExchangeError("malformed", f"a chunk does not have the form of a streamed answer: {short(data)}")
