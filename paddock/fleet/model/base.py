"""The base of every part of the model, and the small types they share."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Annotated, Any, Self, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Discriminator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema


class Model(BaseModel):
    """Frozen; camelCase in the stack file; a key it does not know is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", alias_generator=to_camel)

    def __copy__(self) -> Self:
        copied = super().__copy__()
        for name in copied.__dict__.keys() - type(self).model_fields.keys():
            del copied.__dict__[name]  # a cached property: a copy may have other values to compute it from
        return copied

    @model_validator(mode="before")
    @classmethod
    def _lists_as_tuples(cls, data: Any) -> Any:
        # Types are checked strictly, so that "5" is not a number; strictly, a list is not a tuple either.
        return {key: _tuples(value) for key, value in data.items()} if isinstance(data, dict) else data


def _tuples(value: Any) -> Any:
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class NamedModel(Model):
    """A part that knows its key in the mapping that holds it. The name is neither read from the file nor written."""

    _name: str = PrivateAttr("")

    @property
    def name(self) -> str:
        private = self.__pydantic_private__  # asked for often, and quicker than pydantic's way to it
        return private["_name"] if private else ""


Part = TypeVar("Part", bound=NamedModel)


def with_names(parts: dict[str, Part]) -> dict[str, Part]:
    """Return the parts, each with its key as its name."""
    named = {key: part.model_copy() for key, part in parts.items()}
    for key, part in named.items():
        part._name = key
    return named


def mistake(
    message: str, at: str | int | tuple[str | int, ...] = (), expected: str = "", fix: str = ""
) -> InitErrorDetails:
    """A mistake in a model, `at` a key below it."""
    context = {"at": at if isinstance(at, tuple) else (at,), "expected": expected, "fix": fix}
    return InitErrorDetails(
        type=PydanticCustomError("mistake", "{message}", {"message": message, **context}), input=None
    )


def below_min(most: int, least: int, at: tuple[str | int, ...]) -> InitErrorDetails:
    """The mistake of a maximum below its minimum."""
    return mistake(f"max ({most}) is below min ({least})", at, f"{least} or more", "raise max, or lower min")


def refuse(mistakes: Iterable[InitErrorDetails]) -> None:
    """Raise the mistakes, which pydantic adds to all others of the file; do nothing without any."""
    if details := list(mistakes):
        raise ValidationError.from_exception_data("fleet", details)


@dataclass(frozen=True, slots=True)
class Matching:
    """Text of a given pattern and length; `expected` says in words, or by example, what to write."""

    pattern: str
    expected: str
    most: int = 253
    """Characters. Kubernetes' longest names have as many, and no name elsewhere needs more."""
    fix: str = ""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "pattern": self.pattern, "maxLength": self.most}

    def _check(self, text: str) -> str:
        if len(text) > self.most:
            raise PydanticCustomError("string_too_long", "too long", {"max_length": self.most})
        # `$` also matches before a final newline.
        if not re.search(self.pattern, text, re.ASCII) or "\n" in text:
            raise PydanticCustomError("text", "not valid here", {"expected": self.expected, "fix": self.fix})
        return text


@dataclass(frozen=True, slots=True)
class Distinct:
    """A list that holds nothing twice: AWS, and Pulumi where entries become names, would refuse it later."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "uniqueItems": True}

    def _check(self, entries: tuple[Any, ...]) -> tuple[Any, ...]:
        refuse(
            mistake(f"{entry} is listed twice", index, "each entry once", "remove one of them")
            for index, entry in enumerate(entries)
            if entry in entries[:index]
        )
        return entries


def form(*keys: str, words: Container[str] = (), default: str | None = None, refusal: str = "") -> Discriminator:
    """Tell the forms of a sum type apart: one of the `words`, or an object identified by one of its `keys`."""

    def tag(value: Any) -> str | None:
        if isinstance(value, str):
            return "<word>" if value in words else f"<{default}>" if default else None
        fields = value.model_dump(by_alias=True) if isinstance(value, BaseModel) else value
        tagged = next((f"<{key}>" for key in keys if isinstance(fields, dict) and key in fields), None)
        return tagged or (f"<{default}>" if default else None)

    return discriminator(tag, refusal)


def discriminator(tag: Callable[[Any], str | None], refusal: str) -> Discriminator:
    """Choose the form of a sum type by its tag, and say `refusal` of a value without one."""
    said: Any = {"custom_error_type": "form", "custom_error_message": refusal} if refusal else {}
    return Discriminator(tag, **said)


def _network(text: str) -> str:
    if ":" in text:
        raise ValueError(
            f'"{text}" is IPv6, and the fleet\'s network is IPv4 only; write an IPv4 range, such as 10.0.0.0/16'
        )
    try:
        network = IPv4Network(text, strict=False)
    except ValueError:
        raise ValueError(f'"{text}" is not an IPv4 network; write an IPv4 range, such as 10.0.0.0/16') from None
    if str(network) != text:
        raise ValueError(f'"{text}" is an address, not a network; write {network}')
    return text


Cidr = Annotated[
    str,
    AfterValidator(_network),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,3}(\.\d{1,3}){3}/\d{1,2}$", "examples": ["10.0.0.0/16"]}),
]
KubernetesName = Annotated[
    str, Matching(r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$", "a name of lower-case letters, digits, dashes and dots")
]
Version = Annotated[str, Matching(r"^\d+\.\d+$", 'a version in quotes, such as "1.36"')]

_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)


def _retention(days: int) -> int:
    if days not in _RETENTION_DAYS:
        listed = ", ".join(map(str, _RETENTION_DAYS))
        raise ValueError(f"CloudWatch cannot keep logs for {days} days; write one of {listed}")
    return days


RetentionDays = Annotated[
    int, AfterValidator(_retention), WithJsonSchema({"type": "integer", "enum": [*_RETENTION_DAYS]})
]
"""Days that CloudWatch keeps logs: it knows these numbers and no others (API reference, PutRetentionPolicy)."""
