"""Requests of OpenAI's completions and chat interfaces, as far as they are served."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from paddock.serve.admission.refusal import RequestError

MOST_TOKENS = 1_000_000
_DEFAULT_TOKENS = 128
_Kind = TypeVar("_Kind", bound=BaseModel)


class _Lenient(BaseModel):
    """Clients send keys that only change what a model says; those are not an error."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _StreamOptions(_Lenient):
    include_usage: bool = False


class _Common(_Lenient):
    model: Annotated[str, Field(min_length=1, max_length=200)]
    max_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None
    stream: bool = False
    stream_options: _StreamOptions | None = None
    n: Literal[1] = 1
    user: Annotated[str, Field(max_length=200)] = ""


class _Completion(_Common):
    prompt: str


class _Message(_Lenient):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str


class _Chat(_Common):
    messages: Annotated[list[_Message], Field(min_length=1, max_length=1000)]
    max_completion_tokens: Annotated[int, Field(ge=1, le=MOST_TOKENS)] | None = None


@dataclass(frozen=True, slots=True)
class Generation:
    """Checked request: text to go on from, and the most tokens of the answer."""

    model: str
    prompt: str
    messages: tuple[Mapping[str, str], ...]
    max_tokens: int
    stream: bool
    usage: bool
    user: str
    chat: bool


def completion(body: bytes) -> Generation:
    """Parse the body of /v1/completions. Raises RequestError."""
    parsed = _parse(_Completion, body)
    return _generation(parsed, parsed.prompt, ())


def chat(body: bytes) -> Generation:
    """Parse the body of /v1/chat/completions. Raises RequestError."""
    parsed = _parse(_Chat, body)
    messages = tuple({"role": message.role, "content": message.content} for message in parsed.messages)
    prompt = "".join(f"{message['role']}: {message['content']}\n" for message in messages) + "assistant:"
    return _generation(parsed, prompt, messages, parsed.max_completion_tokens)


def _generation(
    parsed: _Common, prompt: str, messages: tuple[Mapping[str, str], ...], max_tokens: int | None = None
) -> Generation:
    return Generation(
        model=parsed.model, prompt=prompt, messages=messages,
        max_tokens=max_tokens or parsed.max_tokens or _DEFAULT_TOKENS, stream=parsed.stream,
        usage=bool(parsed.stream_options and parsed.stream_options.include_usage), user=parsed.user,
        chat=bool(messages),
    )  # fmt: skip


def _parse(kind: type[_Kind], body: bytes) -> _Kind:
    try:
        document = json.loads(body)
        return kind.model_validate(document)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(map(str, first["loc"]))
            raise RequestError(f"{where}: {first['msg']}" if where else first["msg"], param=where) from None
        raise RequestError("the body is no JSON") from None
