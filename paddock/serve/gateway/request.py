"""Requests as clients write them: the fields that the gateway reads, and the bytes that are passed on to an engine.

A body is read once, with the place of each of its fields, so that what is passed on is what came, but for the values
that the gateway changes. A field that appears twice is refused: which of the two holds is for each reader to choose.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from paddock.openai.documents import DEEPEST, is_too_deep
from paddock.openai.errors import short
from paddock.openai.request import CHAT, COMPLETIONS
from paddock.serve.admission.limits import RequestError

JUDGED = (COMPLETIONS, CHAT)
"""Endpoints whose answers are read: whether they are whole, and how many tokens they have."""
PATHS = (
    *JUDGED, "/v1/embeddings", "/v1/responses", "/v1/messages", "/v1/rerank", "/tokenize", "/detokenize",
)  # fmt: skip
_BOUNDS = ("max_tokens", "max_completion_tokens", "n_predict", "max_output_tokens")
_BOUND_OF: Mapping[str, tuple[str, ...]] = {
    COMPLETIONS: ("max_tokens",),
    CHAT: ("max_tokens", "max_completion_tokens"),
    "/v1/responses": ("max_output_tokens",),
    "/v1/messages": ("max_tokens",),
}
"""Fields by which every engine bounds an answer; the first is added where none is written and the operator has one."""
_LONGEST = 200
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True, slots=True)
class Document:
    """JSON object with the place of each of its values, and of the brace that ends it."""

    text: str
    fields: Mapping[str, Any]
    places: Mapping[str, tuple[int, int]]
    end: int

    @classmethod
    def of(cls, body: bytes) -> Document:
        """Read an object. Raises ValueError, RecursionError, and RequestError for a field that appears twice."""
        text = body.decode()
        fields: dict[str, Any] = {}
        places: dict[str, tuple[int, int]] = {}
        at = _expect(text, 0, "{")
        while text[at : at + 1] != "}" or fields:
            if text[at : at + 1] != '"':
                raise ValueError
            name, at = _DECODER.raw_decode(text, at)
            if name in fields:
                raise RequestError(f"{short(name)}: it is written twice", param=short(name))
            start = _expect(text, at, ":")
            fields[name], at = _DECODER.raw_decode(text, start)
            places[name] = start, at
            at = _skip(text, at)
            if text[at : at + 1] == "}":
                break
            at = _expect(text, at, ",")
        if _skip(text, at + 1) != len(text):
            raise ValueError
        return cls(text, fields, places, at)

    def changed(self, values: Mapping[str, Any]) -> bytes:
        """Return its bytes with these values; what it has not is added at its end."""
        parts, at = [], 0
        for name in sorted(values.keys() & self.places.keys(), key=lambda name: self.places[name]):
            start, end = self.places[name]
            parts += [self.text[at:start], json.dumps(values[name])]
            at = end
        added = [f"{json.dumps(name)}:{json.dumps(value)}" for name, value in values.items() if name not in self.places]
        comma = "," if added and self.fields else ""
        return "".join([*parts, self.text[at : self.end], comma, ",".join(added), self.text[self.end :]]).encode()


@dataclass(frozen=True, slots=True)
class Request:
    """Checked request. `user` is whom the client names, `limit` what is added of the operator's."""

    path: str
    document: Document
    model: str
    user: str
    streams: bool
    limit: Mapping[str, int]

    @classmethod
    def of(cls, path: str, body: bytes, most: int | None) -> Request:
        """Read a body; an answer has at most so many tokens. Raises RequestError."""
        try:
            document = Document.of(body)
        except (ValueError, RecursionError):
            raise RequestError("the body is not a JSON object") from None
        text, fields = document.text, document.fields
        if text.count("{") + text.count("[") > DEEPEST and is_too_deep(fields):
            raise RequestError(f"the body is nested more than {DEEPEST} levels deep")
        model, user = fields.get("model"), fields.get("user")
        if not isinstance(model, str) or not 0 < len(model) <= _LONGEST:
            raise RequestError(f"model: it should be a name of 1 to {_LONGEST} characters", param="model")
        name = user[:_LONGEST] if isinstance(user, str) else ""
        return cls(path, document, model, name, fields.get("stream") is True, _bound(path, fields, most))

    @property
    def several(self) -> bool:
        """Tell whether it asks for several answers, by `n` or by several prompts; one may be a list of tokens."""
        prompt = self.document.fields.get("prompt")
        prompts = isinstance(prompt, list) and len(prompt) > 1 and not isinstance(prompt[0], int)
        return prompts or self.document.fields.get("n") not in (None, 1)

    @property
    def options(self) -> Mapping[str, Any] | None:
        """Return the options of its stream that are set for counting; None where they stay as they are."""
        options = self.document.fields.get("stream_options")
        wrong = options is not None and not isinstance(options, dict)
        if self.path not in JUDGED or not self.streams or wrong or (options and options.get("include_usage") is True):
            return None
        return {**(options or {}), "include_usage": True}

    def body(self, model: str, *, counted: bool) -> bytes:
        """Return the bytes for a server that knows the model by that name; `counted` asks for its usage."""
        values: dict[str, Any] = dict(self.limit)
        if model != self.model:
            values["model"] = model
        if counted and (options := self.options):
            values["stream_options"] = options
        return self.document.changed(values)


def _bound(path: str, fields: Mapping[str, Any], most: int | None) -> Mapping[str, int]:
    """Return the field to add. A value that is not a number is refused: llama.cpp would generate without a limit."""
    if most is None:
        return {}
    for name in _BOUNDS:
        value = fields.get(name)
        if value is not None and (type(value) not in (int, float) or not 1 <= value <= most):
            raise RequestError(f"{name}: an answer has 1 to {most} tokens here", param=name)
    known = _BOUND_OF.get(path, ())
    return {} if any(fields.get(name) is not None for name in known) else dict.fromkeys(known[:1], most)


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _expect(text: str, at: int, mark: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != mark:
        raise ValueError
    return _skip(text, at + 1)


def _refuse(constant: str) -> NoReturn:
    """Refuse a number that JSON has not."""
    raise ValueError(constant)


_DECODER = json.JSONDecoder(parse_constant=_refuse)
