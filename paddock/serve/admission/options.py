"""Options of OpenAI's interface that Paddock's own engine does not have: each is refused by its name, none is ignored.

One of them may be a server's behind the gateway, which then gets it as it is. A value that asks for what happens anyway
is no option.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.serve.admission.refusal import RequestError

_ZERO: tuple[Any, ...] = (0, 0.0)
_FORWARDED: Mapping[str, tuple[Any, ...]] = {
    "frequency_penalty": _ZERO,
    "logit_bias": ({},),
    "min_p": _ZERO,
    "parallel_tool_calls": (True, False),  # of the calls of `tools`, and nothing without them
    "presence_penalty": _ZERO,
    "repetition_penalty": (1, 1.0),
    "response_format": ({"type": "text"},),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_k": (0, -1),
}
"""Options that an external engine may have, with the values that change nothing."""
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "audio": (),
    "best_of": (1,),
    "echo": (False,),
    "function_call": ("none",),
    "functions": ([],),
    "logprobs": (False,),
    "modalities": (["text"],),
    "n": (1,),
    "suffix": ("",),
    "top_logprobs": (0,),
    "web_search_options": (),
}
"""Options whose answer has a form of its own, which the gateway does not have for any engine."""


def forwarded(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options for an external engine. Raises RequestError for one that no engine has here."""
    for name, neutral in _REFUSED.items():
        if _asks(document, name, neutral):
            raise unsupported(name)
    return {name: document[name] for name in _FORWARDED if document.get(name) is not None}


def check_own_engine(options: Mapping[str, Any]) -> None:
    """Check that Paddock's own engine has every option. Raises RequestError."""
    for name, neutral in _FORWARDED.items():
        if _asks(options, name, neutral):
            raise unsupported(name, "by this model; an external engine may have it")


def unsupported(name: str, why: str = "here") -> RequestError:
    """Return the refusal of an option."""
    return RequestError(f"{name}: it is not supported {why}", 400, "unsupported_parameter", name)


def _asks(document: Mapping[str, Any], name: str, neutral: tuple[Any, ...]) -> bool:
    value = document.get(name)
    # In JSON true is not 1, and false not 0.
    return value is not None and not any(type(value) is type(other) and value == other for other in neutral)
