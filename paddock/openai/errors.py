"""Failures of an exchange, and the forms in which servers report errors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from paddock.errors import PaddockError

FailureKind = Literal[
    "connection refused", "TLS", "closed early", "malformed", "server error", "timeout", "HTTP status", "interrupted",
    "client",
]  # fmt: skip
_SHORT = 200
"""Characters of a server's own words in a message."""
_WORDS = ("message", "error_message", "error_msg", "detail", "msg", "status_msg", "text", "error")
"""Fields that hold a server's words, the most telling first."""
_MARKS = frozenset(["error_type", "error_code", "error_message", "error_msg"])
"""Fields that only an error has. FastChat's workers send `error_code` 0 with every part of an answer."""
_REFUSALS = ("400", "413", "422")
_DEEPEST = 4
"""Levels of an error's fields that are looked at for its words."""
_NO_ERROR = (None, False, 0, "", "0", 200, "200")


class OpenAIInputError(PaddockError):
    """An address or a flag is not valid; nothing was sent."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Failure:
    """End of an exchange without a whole answer."""

    kind: FailureKind
    message: str


class ExchangeError(Exception):
    """Exchange without a whole answer. `status` is that of a refusal in an answer whose head said 200, else 0."""

    def __init__(self, kind: FailureKind, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.failure, self.status = Failure(kind, message), status


def reported(document: Mapping[str, Any]) -> str:
    """Return the words of the error that a document of a server reports; empty where it reports none.

    The forms are those of `tests/openai/forms.json`, each with its source. `error: null`, or an error that says
    nothing, is not an error.
    """
    error = document.get("error") or document.get("errors")
    if error and _says(error):
        return words(error if isinstance(error, str | dict | list) else {**document, "error": None})
    if not _MARKS.isdisjoint(document) and any(document.get(name) not in _NO_ERROR for name in _MARKS):
        return words(document)
    choices = document.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and "error" in choice and _says(choice["error"]):
            return words(choice["error"])
    if document.get("object") == "error":
        return words(document)
    status = document.get("base_resp")
    if isinstance(status, dict) and status.get("status_code") not in _NO_ERROR:
        return words(status)
    if not choices and not document.get("usage"):
        told = any(document.get(name) for name in ("message", "detail", "msg"))
        bad = document["code"] not in _NO_ERROR if "code" in document else choices is None
        if document.get("type") == "error" or (told and bad):
            return words(document)
    return ""


def refusal(document: Mapping[str, Any]) -> int:
    """Return the status by which an error says that the request is at fault, as SGLang's do in a stream; else 0."""
    error = document.get("error")
    code = str((error if isinstance(error, dict) else document).get("code"))
    return int(code) if code in _REFUSALS else 0


def words(error: object) -> str:
    """Return what an error says, on one short line."""
    for _ in range(_DEEPEST):
        if isinstance(error, list) and error and isinstance(error[0], dict) and error[0].get("message"):
            error = error[0]
        if not isinstance(error, dict):
            break
        error = next((error[name] for name in _WORDS if error.get(name)), None) or short(error)
    return short(error)


def short(value: object) -> str:
    """Return a server's own words on one line of at most 200 characters, all of which can be encoded."""
    text = " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    text = text.encode(errors="replace").decode()
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."


def _says(error: object) -> bool:
    return any(error.values()) if isinstance(error, dict) else bool(error)
