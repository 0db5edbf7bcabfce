"""Answers as engines send them: passed on as bytes, and judged whether they are whole.

A stream is passed on event by event. An error in it, in any of the forms that servers have, and an end without an
ordinary finish_reason never reach the client as if the answer were complete.
"""

from __future__ import annotations

import json
import re
from typing import Any

from paddock.openai.documents import parsed
from paddock.openai.ends import finish_reason, is_ordinary
from paddock.openai.errors import ExchangeError, refusal, reported, short
from paddock.openai.sse import DONE, MOST_BYTES
from paddock.openai.stream import StreamReader, Usage, usage_of
from paddock.serve.gateway.request import Document

_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
"""The blank line after an event."""
_DATA = re.compile(rb"((?:\A(?:\xef\xbb\xbf)?|[\r\n])data:)([^\r\n]*)")
"""A line of data, which may come after a comment or the event's type."""
_TELLING = re.compile(
    rb'error|base_resp|\[DONE\]|"(?:finish_reason|usage|logprobs|token_ids)": ?+[^n]|"(?:content|text)": ?+(?:""|n)'
)
"""What an event must not have that is passed on unread: it says no more than a piece of text."""


class Judge:
    """Reader of one stream while it is passed on.

    `withhold` keeps back the event that has the usage alone, which the client did not ask for, and `rename` is the
    model's name there and the one that the client asked for. `several` says that the client asked for several choices.
    `failure` is why the answer is not whole, `done` says that all of it has come.
    """

    def __init__(self, *, withhold: bool, rename: tuple[str, str] | None = None, several: bool = False) -> None:
        self._reader = StreamReader()
        self._withhold, self._rename = withhold, rename
        self._plain = False
        self._several = several
        self._rest = b""
        self._tokens = 0
        self.failure: ExchangeError | None = None
        self.done = False

    @property
    def usage(self) -> Usage:
        """Return the tokens as the engine counted them, else a prompt of 0 and the events that said something."""
        usage = self._reader.usage
        return Usage(usage.prompt or 0, usage.completion) if usage else Usage(0, self._tokens)

    @property
    def ended(self) -> bool:
        """Tell whether nothing more is read."""
        return self.done or self.failure is not None

    def feed(self, piece: bytes) -> bytes:
        """Return what is passed on to the client of a piece: the events that it completes."""
        if not self._rest and piece.endswith(b"\n\n") and piece.count(b"\n") == 2 and b"\r" not in piece:
            return self._event(piece)
        looked = max(0, len(self._rest) - 3)
        data, passed, at = self._rest + piece, [], 0
        for end in _END.finditer(data, looked):
            passed.append(self._event(data[at : end.end()]))
            at = end.end()
            if self.done or self.failure:
                break
        self._rest = data[at:]
        if len(self._rest) > 2 * MOST_BYTES:
            self.failure = ExchangeError("malformed", f"the stream has events of more than {MOST_BYTES} bytes")
        return b"".join(passed)

    def end(self, broken: ExchangeError | None = None) -> bytes:
        """Return what is passed on at the end of the body, which may be `broken` off: it then failed, or is whole."""
        if broken and not self._reader.finish:
            self.failure = broken
            return b""
        rest = self._rest
        passed = self._read(rest)
        if not self.failure:
            try:
                self._count(self._reader.end(0.0))
            except ExchangeError as error:
                self.failure = error
        self.done = not self.failure
        # An event without the blank line after it would be dropped by the client.
        ends = rest.endswith((b"\n", b"\r")) or rest.removeprefix(b"data:").strip() == DONE.encode()
        return passed + b"\n\n" if passed.strip() and ends and self.done else b""

    def _event(self, event: bytes) -> bytes:
        if self._plain and _is_plain(event):
            self._tokens += 1
            return event
        passed = self._read(event)
        if self._reader.done and not self.failure:
            try:
                self._count(self._reader.end(0.0))
                self.done = True
            except ExchangeError as error:
                self.failure, passed = error, b""
        return passed

    def _read(self, event: bytes) -> bytes:
        """Return the bytes of an event as they are passed on."""
        before = self._reader.usage
        try:
            self._count(self._reader.feed(0.0, event))
        except ExchangeError as error:
            self.failure = error
            return b""
        if self._withhold and self._reader.usage is not before and _is_usage_alone(event):
            return b""
        self._plain = not self._several and self._rename is None
        return _renamed_event(event, *self._rename) if self._rename else event

    def _count(self, parts: Any) -> None:
        for part in parts:
            self._tokens += part.tokens if part.tokens is not None else part.spoken


def judged(body: bytes) -> Usage:
    """Return the tokens of an answer that came at once. Raises ExchangeError where it is not whole."""
    document = parsed(body.decode(errors="replace"))
    if not isinstance(document, dict):
        raise ExchangeError(
            "malformed", f"its answer is not a JSON object: {short(body[:200].decode(errors='replace'))}"
        )
    if error := reported(document):
        raise ExchangeError("server error", f"the server reports an error: {error}", refusal(document))
    choices = document.get("choices")
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, dict) for choice in choices):
        raise ExchangeError("malformed", f"its answer has no choices: {short(document)}")
    for choice in choices:
        if not is_ordinary(reason := finish_reason(choice.get("finish_reason"))):
            said = (
                f"the finish_reason {short(reason)!r}, which is not an ordinary end" if reason else "no finish_reason"
            )
            raise ExchangeError("server error", f"its answer has {said}")
    usage = usage_of(document, choices)
    return Usage(usage.prompt or 0, usage.completion) if usage else Usage(0, 0)


def renamed(body: bytes, name: str, asked: str) -> bytes:
    """Return a JSON object with `asked` for the model that the server calls `name`; what is not one stays as it is."""
    try:
        document = Document.of(body)
    except Exception:
        return body
    return document.changed({"model": asked}) if document.fields.get("model") == name else body


def _renamed_event(event: bytes, name: str, asked: str) -> bytes:
    if b'"model"' not in event:
        return event
    return _DATA.sub(lambda line: line[1] + line[2].replace(text := line[2].strip(), renamed(text, name, asked)), event)


def _is_plain(event: bytes) -> bool:
    """Tell whether an event is known for a piece of text, and nothing more, without being read."""
    framed = event.startswith(b"data: {") and event.endswith(b"}\n\n") and event.count(b"\n") == 2
    return framed and b'"choices":[{' in event and not _TELLING.search(event)


def _is_usage_alone(event: bytes) -> bool:
    try:
        document = json.loads(b"\n".join(line[2] for line in _DATA.finditer(event)))
    except ValueError:
        return False
    return isinstance(document, dict) and not document.get("choices")
