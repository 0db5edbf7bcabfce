"""Ends of answers: the values of `finish_reason` after which an answer is whole, and those that mean a failure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

_ENDS: Mapping[str, Mapping[str, str]] = json.loads(Path(__file__).with_name("ends.json").read_bytes())
ORDINARY = _ENDS["ordinary"]
"""Ordinary ends, each with its source. Case does not count."""
FAILED = _ENDS["failed"]
"""Ends that say at once that the answer has failed. Every other value fails where no ordinary one follows it."""


def finish_reason(value: object) -> str:
    """Return the reason as text, empty where there is none yet: null, and "" in ollama before its issue 4357.

    SGLang's own interface has an object with a `type`.
    """
    if isinstance(value, dict):
        value = value.get("type")
    return str(value).strip() if value else ""


def is_ordinary(reason: str) -> bool:
    """Tell whether an answer that ends so is whole."""
    return reason.lower() in ORDINARY


def has_failed(reason: str) -> bool:
    """Tell whether the reason itself says that the answer has failed."""
    return reason.lower() in FAILED
