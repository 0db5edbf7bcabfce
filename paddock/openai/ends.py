"""Ends of answers: the values of `finish_reason` after which an answer is whole, and those that mean a failure."""

from __future__ import annotations

from collections.abc import Mapping

ORDINARY: Mapping[str, str] = {
    "stop": "OpenAI's API reference",
    "length": "OpenAI's API reference",
    "tool_calls": "OpenAI's API reference",
    "function_call": "OpenAI's API reference",
    "content_filter": "OpenAI's API reference",
    "eos": "Together AI's API reference",
    "eos_token": "text-generation-inference before its pull request 2344",
    "stop_sequence": "text-generation-inference before its pull request 2344",
    "model_length": "Mistral's API reference",
    "repetition": "vLLM, FINISH_REASON_STRINGS of vllm/v1/engine",
    "end_turn": "BerriAI/litellm, issue 12481",
    "max_tokens": "finish reasons of Anthropic and Gemini that proxies pass on",
}
"""Ordinary ends, each with its source. Case does not count."""
FAILED: Mapping[str, str] = {
    "error": "vLLM, Mistral and OpenRouter",
    "abort": "vLLM, issue 57082, and SGLang, pull request 22535",
    "aborted": "proxies that pass on an engine's state",
    "cancelled": "TensorRT-LLM",
    "timeout": "TensorRT-LLM",
    "insufficient_system_resource": "DeepSeek's API reference",
}
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
