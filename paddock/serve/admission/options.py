"""Options of a request beyond those that every engine has here.

An engine behind a server's HTTP gets all of them as they are, and judges them itself. Paddock's own engine refuses each
by its name; none is ignored. A value that asks for what happens anyway is no option.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from paddock.errors import nearest
from paddock.openai.errors import short
from paddock.serve.admission.refusal import RequestError

_ZERO: tuple[Any, ...] = (0, 0.0)
_ONE: tuple[Any, ...] = (1, 1.0)
_ABSENT: Mapping[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "chat_template_kwargs": ({},),
    "frequency_penalty": _ZERO,
    "ignore_eos": (False,),
    "include_stop_str_in_output": (False,),
    "length_penalty": _ONE,
    "logit_bias": ({},),
    "min_p": _ZERO,
    "min_tokens": (0,),
    "parallel_tool_calls": (True, False),  # of the calls of `tools`, and nothing without them
    "presence_penalty": _ZERO,
    "repetition_penalty": _ONE,
    "response_format": ({"type": "text"},),
    "skip_special_tokens": (True,),
    "stop_token_ids": ([],),
    "tool_choice": ("none", "auto"),
    "tools": ([],),
    "top_k": (0, -1),
}
"""Options that Paddock's own engine does not have, with the values that change nothing. Others have no such value."""
_LABELS = frozenset([
    "metadata", "prompt_cache_key", "prompt_cache_retention", "request_id", "safety_identifier", "service_tier",
    "store",
])  # fmt: skip
"""Fields for a server's own books, which change no answer."""
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
_ELSEWHERE = "by this model; an external engine may have it"


def check_form(document: Mapping[str, Any]) -> None:
    """Check that the answer has a form that the gateway has. Raises RequestError."""
    for name, neutral in _REFUSED.items():
        if _asks(document, name, neutral):
            raise unsupported(name)


def check_own_engine(document: Mapping[str, Any], known: Collection[str]) -> None:
    """Check that Paddock's own engine has every option beside the `known` ones, and text alone. Raises RequestError."""
    for name in document:
        if name in known or name in _LABELS or name in _REFUSED or not _asks(document, name, _ABSENT.get(name, ())):
            continue
        near = None if name in _ABSENT else nearest(name, known, cutoff=0.8)
        raise unsupported(short(name), _ELSEWHERE + (f"; did you mean {near}?" if near else ""))
    for number, message in enumerate(document["messages"] if "messages" in known else ()):
        content = message.get("content")
        for place, part in enumerate(content if isinstance(content, list) else ()):
            if part["type"] != "text":
                raise unsupported(f"messages.{number}.content.{place}.type", _ELSEWHERE)


def unsupported(name: str, why: str = "here") -> RequestError:
    """Return the refusal of an option."""
    return RequestError(f"{name}: it is not supported {why}", 400, "unsupported_parameter", name)


def _asks(document: Mapping[str, Any], name: str, neutral: tuple[Any, ...]) -> bool:
    value = document.get(name)
    # In JSON true is not 1, and false not 0.
    return value is not None and not any(type(value) is type(other) and value == other for other in neutral)
