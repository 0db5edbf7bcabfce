"""Requests of OpenAI's completions and chat interfaces, as far as they are served."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from paddock.openai.documents import DEEPEST, is_too_deep
from paddock.serve.admission.limits import MOST_TOKENS
from paddock.serve.admission.options import check_form
from paddock.serve.admission.refusal import RequestError
from paddock.serve.admission.sampling import GREEDY, Sampling

DEFAULT_TOKENS = 128
"""Tokens of an answer of Paddock's own engine to a request that does not say how many."""
_Kind = TypeVar("_Kind", bound=BaseModel)


class _Lenient(BaseModel):
    """Fields that are not named here stay in the request's document, for the engine."""

    model_config = ConfigDict(extra="ignore", strict=True)


class _StreamOptions(_Lenient):
    include_usage: bool | None = None


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise ValueError("it has half of a pair of surrogates, which is no character") from None
    return text


_Text = Annotated[str, AfterValidator(_encodable)]


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


_Tokens = Annotated[int, Field(ge=1, le=MOST_TOKENS)]


class _Common(_Lenient):
    model: Annotated[_Text, Field(min_length=1, max_length=200)]
    max_tokens: _Tokens | None = None
    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    user: Annotated[_Text, Field(max_length=200)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    seed: Annotated[int, Field(ge=-(2**63), lt=2**63)] | None = None
    stop: (
        Annotated[
            list[Annotated[_Text, Field(min_length=1, max_length=1000)]], Field(max_length=4), BeforeValidator(_listed)
        ]
        | None
    ) = None


def _single(value: Any) -> Any:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


class _Completion(_Common):
    prompt: Annotated[_Text, BeforeValidator(_single)]


class _Part(_Lenient):
    type: Annotated[_Text, Field(min_length=1, max_length=200)]
    text: _Text | None = None

    @model_validator(mode="after")
    def _has_text(self) -> _Part:
        if self.type == "text" and self.text is None:
            raise ValueError("a part of text has no text")
        return self


def _parts(value: Any) -> Any:
    if not isinstance(value, str | list):
        raise ValueError("it should be text, or a list of parts")
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class _Message(_Lenient):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[list[_Part], BeforeValidator(_parts)] | None = None
    name: _Text | None = None
    tool_call_id: _Text | None = None
    tool_calls: list[dict[str, Any]] | None = None

    def plain(self) -> dict[str, Any]:
        """Return it with its parts of text joined, and without what it leaves out."""
        content = "".join(part.text or "" for part in self.content or ())
        more = self.model_dump(include={"name", "tool_call_id", "tool_calls"}, exclude_none=True)
        return {"role": self.role, "content": content, **more}


class _Chat(_Common):
    messages: Annotated[list[_Message], Field(min_length=1, max_length=1000)]
    max_completion_tokens: _Tokens | None = None


def known_fields(*, chat: bool) -> frozenset[str]:
    """Return the fields that every engine has."""
    return frozenset((_Chat if chat else _Completion).model_fields)


@dataclass(frozen=True, slots=True)
class Generation:
    """Checked request: text to go on from, and the most tokens of the answer, which ends before a text of `stop`.

    `max_tokens` is None where the request does not say how many: the engine's own settings decide then, up to the
    operator's limit, `most`. `document` is the request as the client wrote it, without what it leaves out, for engines
    that take requests in that form.
    """

    model: str
    prompt: str
    messages: tuple[Mapping[str, Any], ...]
    max_tokens: int | None
    stream: bool
    usage: bool
    user: str
    chat: bool
    sampling: Sampling = GREEDY
    stop: tuple[str, ...] = ()
    document: Mapping[str, Any] = field(default_factory=dict)
    most: int = MOST_TOKENS


def completion(body: bytes, most: int = MOST_TOKENS) -> Generation:
    """Parse the body of /v1/completions, whose answer has at most so many tokens. Raises RequestError."""
    parsed, document = _parse(_Completion, body)
    return _generation(parsed, parsed.prompt, (), document, "max_tokens", parsed.max_tokens, most)


def chat(body: bytes, most: int = MOST_TOKENS) -> Generation:
    """Parse the body of /v1/chat/completions, whose answer has at most so many tokens. Raises RequestError."""
    parsed, document = _parse(_Chat, body)
    messages = tuple(message.plain() for message in parsed.messages)
    prompt = "".join(f"{message['role']}: {message['content']}\n" for message in messages) + "assistant:"
    key = "max_tokens" if parsed.max_completion_tokens is None else "max_completion_tokens"
    return _generation(parsed, prompt, messages, document, key, parsed.max_completion_tokens or parsed.max_tokens, most)


def _generation(
    parsed: _Common, prompt: str, messages: tuple[Mapping[str, Any], ...], document: Mapping[str, Any], key: str,
    tokens: int | None, most: int,
) -> Generation:  # fmt: skip
    if tokens is not None and tokens > most:
        raise RequestError(f"{key}: an answer has at most {most} tokens here", param=key)
    return Generation(
        model=parsed.model, prompt=prompt, messages=messages, max_tokens=tokens,
        stream=bool(parsed.stream), usage=bool(parsed.stream_options and parsed.stream_options.include_usage),
        user=parsed.user or "", chat=bool(messages),
        sampling=Sampling(parsed.temperature, parsed.top_p, parsed.seed), stop=tuple(parsed.stop or ()),
        document={name: value for name, value in document.items() if value is not None}, most=most,
    )  # fmt: skip


def _parse(kind: type[_Kind], body: bytes) -> tuple[_Kind, dict[str, Any]]:
    """Return the request, and its document as the client wrote it."""
    try:
        document = json.loads(body, parse_constant=_finite, parse_float=_finite)
        parsed = kind.model_validate(document)
    except (ValueError, RecursionError) as error:
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False, include_input=False)[0]
            where, why = ".".join(map(str, first["loc"])), first["msg"].removeprefix("Value error, ")
            raise RequestError(f"{where}: {why}" if where else why, param=where) from None
        raise RequestError("the body is no JSON") from None
    if is_too_deep(document):
        raise RequestError(f"the body is nested more than {DEEPEST} levels deep")
    check_form(document)
    return parsed, document


def _finite(text: str) -> float:
    """Return a number that JSON has: Python also reads NaN, and 1e999 as infinity."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(text)
    return number
