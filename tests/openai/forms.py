"""Streams as servers have published them, and the reader on them. `forms.json` names the source of each."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from paddock.openai.errors import ExchangeError, Failure
from paddock.openai.stream import Part, StreamReader

FORMS = json.loads(Path(__file__).with_name("forms.json").read_text())
WHOLE = [form for form in FORMS if "error" not in form]
FAILED = [form for form in FORMS if "error" in form]


def body(form: dict[str, Any]) -> bytes:
    """Return the bytes of a form."""
    if "body" in form:
        return str(form["body"]).encode()
    return b"".join(events(*form["events"]))


def events(*documents: Any) -> Iterator[bytes]:
    """Yield documents as events; texts are as they are."""
    for document in documents:
        yield f"data: {document if isinstance(document, str) else json.dumps(document)}\n\n".encode()


@dataclass
class Read:
    """What a reader made of a body."""

    reader: StreamReader
    parts: list[Part] = field(default_factory=list)
    failure: Failure | None = None

    @property
    def text(self) -> str:
        return "".join(part.text for part in self.parts)

    def said(self, name: str) -> str:
        """Return a field of the deltas, put together."""
        return "".join(part.delta.get(name) or "" for part in self.parts)


def read(pieces: Iterable[bytes]) -> Read:
    """Read pieces of a body, each of which comes a second after the last."""
    result = Read(StreamReader())
    last = 0
    try:
        for last, piece in enumerate(pieces):
            for part in result.reader.feed(last, piece):
                result.parts.append(part)  # those before a failure count
        for part in result.reader.end(last):
            result.parts.append(part)
    except ExchangeError as error:
        result.failure = error.failure
    return result


def cut(data: bytes, at: Iterable[int]) -> list[bytes]:
    """Return the pieces of a body that is cut there."""
    edges = [0, *sorted(place % (len(data) + 1) for place in at), len(data)]
    return [data[low:high] for low, high in pairwise(edges)]
