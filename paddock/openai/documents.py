"""JSON from others: what is not JSON, what is nested so deeply that it cannot be written again, what a model says."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from paddock.openai.errors import ExchangeError

DEEPEST = 100
"""Levels of a document. Python's reader and writer recurse, and the writer may be deeper in it than the reader was."""


_SAID = re.compile("reasoning|thinking|thought|refusal|function_call|audio")


def is_said(name: str) -> bool:
    """Tell whether a field next to the content holds what the model says: its reasoning, under every name of it."""
    return _SAID.search(name) is not None


def parsed(text: str) -> Any:
    """Return JSON as Python's types; None for what is not JSON. Numbers that JSON has not are null.

    Raises ExchangeError for a document of more than 100 levels.
    """
    try:
        document = _DECODER.decode(text)
    except ValueError:
        return None
    except RecursionError:
        raise _too_deep() from None
    if text.count("{") + text.count("[") > DEEPEST and is_too_deep(document):
        raise _too_deep()
    return document


def is_too_deep(document: Any) -> bool:
    """Tell whether a document has more than 100 levels."""
    level = [document]
    for _ in range(DEEPEST + 1):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
        ]
    return bool(level)


def _too_deep() -> ExchangeError:
    return ExchangeError("malformed", f"a chunk is nested more than {DEEPEST} levels deep")


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


_DECODER = json.JSONDecoder(parse_constant=_finite, parse_float=_finite)
