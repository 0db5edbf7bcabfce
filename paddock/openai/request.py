"""Requests, as servers take them: the dialects of the limit of tokens, and what a refusal asks for."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from paddock.errors import did_you_mean
from paddock.openai.errors import OpenAIInputError

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Dialect:
    """Way to say how long an answer may be. `limit` names the field, `body` is what else a request says."""

    name: str
    limit: str
    body: Mapping[str, Any]


ENGINES = Dialect("engines", "max_tokens", {"temperature": 0})
"""What vLLM, SGLang, llama.cpp and others take."""
OPENAI = Dialect("openai", "max_completion_tokens", {})
"""What OpenAI's reasoning models and Azure take, which refuse `max_tokens` and every temperature but their own."""
DIALECTS: Mapping[str, Dialect] = {dialect.name: dialect for dialect in (ENGINES, OPENAI)}

_NOT_TAKEN = re.compile(
    r"unsupported|not supported|n[o']t support|unrecogni[sz]ed|unknown|unexpected|not permitted|extra|deprecated"
    r"|instead|only .{0,40}(allowed|default)",
    re.I,
)


def dialect_of(name: str) -> Dialect:
    """Return the dialect of that name. Raises OpenAIInputError."""
    if name not in DIALECTS:
        hint = did_you_mean(name, DIALECTS, f"one of {', '.join(DIALECTS)}")
        raise OpenAIInputError(f"--dialect: there is no dialect {name!r}\n    expected: {hint}")
    return DIALECTS[name]


def asks_for(words: str, dialect: Dialect) -> Dialect | None:
    """Return the dialect that a server asks for which refuses a request with these words; None where it says nothing.

    One thing changes at a time: the field of the limit, or the temperature, which goes. A limit that is too large, or
    a prompt that is too long, is not a matter of the dialect.
    """
    if not _NOT_TAKEN.search(words):
        return None
    old = re.search(r"\bmax_tokens\b", words) is not None
    if old and dialect.limit == ENGINES.limit:
        return replace(dialect, name=OPENAI.name, limit=OPENAI.limit)
    if not old and dialect.limit in words and dialect.limit == OPENAI.limit:
        return replace(dialect, name=ENGINES.name, limit=ENGINES.limit)
    if dialect.body and "temperature" in words:
        return replace(dialect, name=OPENAI.name, body={})
    return None


def refuses_usage(words: str) -> bool:
    """Tell whether a server refuses a request for its `stream_options`, as Mistral's did (422, extra_forbidden)."""
    return "stream_options" in words and _NOT_TAKEN.search(words) is not None
