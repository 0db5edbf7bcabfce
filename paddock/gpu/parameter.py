"""Parameters of GPU actions and workflow tasks.

Each set is a dataclass whose fields are made by `parameter`: names, types, defaults, help and limits are written once.
JSON is read into it through a pydantic model, command-line flags without one: listing the tasks must not load pydantic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_type_hints

from paddock.duration import NoDuration, Seconds
from paddock.errors import did_you_mean
from paddock.gpu.errors import GpuInputError
from paddock.terminal import JSON_HELP

if TYPE_CHECKING:
    from pydantic import BaseModel

_EMPTY: Mapping[str, Any] = {
    "bool": False,
    "int": 0,
    "float": 0.0,
    "Path": None,
    "int | None": None,
    "float | None": None,
}
"""Flags that leave a parameter out; a number that may be absent has none, so that 0 is a value like any other."""
_NUMBERS: Mapping[str, tuple[Callable[[str], Any], str]] = {
    "int": (int, "a whole number, such as 2"),
    "float": (float, "a number, such as 2 or 1.5"),
}
_METAVARS = {"int": "N", "float": "NUMBER", "Path": "PATH"}
_MAX_PROBLEMS = 5
_KINDS = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "finite_number": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
}


@dataclass(frozen=True, slots=True)
class Flag:
    """Command-line form of a parameter.

    A value equal to `unset` leaves the parameter out, `read` converts any other. One without a default is required.
    """

    name: str
    default: Any = ...
    unset: Any = ...
    help: str = ""
    read: Callable[[Any], Any] = lambda value: value
    iterable: bool = False
    unit: type[Seconds] | None = None
    """Unit of a length of time."""
    metavar: str = ""
    """Name of its value in the help; empty for text."""
    usual: str = ""
    """Default in the help, where `default` only says that there is no value."""


JSON = Flag("json", None, None, JSON_HELP)


@dataclass(frozen=True, slots=True)
class _Declaration:
    help: str
    flag: Flag | str
    aliases: tuple[str, ...]
    only: Literal["flags", "json"] | None
    required: bool
    unit: type[Seconds] | None
    limits: Mapping[str, Any]


def parameter(
    default: Any,
    help: str,
    *,
    flag: Flag | str = "",
    aliases: tuple[str, ...] = (),
    only: Literal["flags", "json"] | None = None,
    required: bool = False,
    unit: type[Seconds] | None = None,
    **limits: Any,
) -> Any:
    """Declare a parameter: a field of a subclass of `Parameters`.

    A default of `...` makes it required, `required` does so in JSON alone. `flag` is its name on the command line, or
    all of its flag where more than the name differs. `aliases` are further names in JSON, `limits` are pydantic's, such
    as `ge`. `only` restricts it to one of both. `unit` is that of a length of time, whose flag also takes `20m`.
    """
    declaration = _Declaration(help, flag, aliases, only, required or default is ..., unit, limits)
    metadata = {"parameter": declaration}
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=MISSING if default is ... else default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Base of all sets of parameters; `specified` names those to which the caller gave a value."""

    specified: frozenset[str] = field(default=frozenset(), repr=False, compare=False)

    def values(self) -> dict[str, Any]:
        """Return the values that the caller gave."""
        return {name: getattr(self, name) for name in self.names() if name in self.specified}

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all parameters."""
        return [name for name, _, _, _ in _declarations(cls)]

    def changed(self) -> frozenset[str]:
        """Return the names of the parameters that have another value than their default."""
        return frozenset(name for name, _, default, _ in _declarations(type(self)) if getattr(self, name) != default)

    @classmethod
    def flags(cls) -> Iterator[tuple[str, str, Flag]]:
        """Yield the name, the type as written and the flag of each parameter that the command line has."""
        for name, kind, default, declaration in _declarations(cls):
            if declaration.only != "json":
                yield name, kind, _flag(name, kind, default, declaration)

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the pydantic model that reads the parameters from JSON and has their JSON Schema."""
        hashable: Any = cls  # to mypy it is not, since it looks at the instances' own hash
        return _model(hashable)

    @classmethod
    def from_flags(cls: type[_Set], flags: Mapping[str, Any]) -> _Set:
        """Build from values of the command line, by parameter name."""
        values = {}
        limits = {name: declaration.limits for name, _, _, declaration in _declarations(cls)}
        for name, kind, flag in cls.flags():
            value = flags.get(name)
            if value is not None and value != flag.unset:
                is_list = kind.startswith("tuple") and isinstance(value, str)
                values[name] = _items(value) if is_list else flag.read(_number(flag, kind, value))
                _check_bounds(flag, values[name], limits[name])
        return cls(**values, specified=frozenset(values))


_Set = TypeVar("_Set", bound=Parameters)


def parse(
    kind: type[_Set], values: Mapping[str, Any], where: str, *, later: Collection[str] = (), prefix: str = ""
) -> _Set | None:
    """Return the parameters, or None where the values of the names in `later` are not known yet and all others fit.

    `where` begins a message, `prefix` each name in it. Raises GpuInputError with the first problems.
    """
    from pydantic import ValidationError

    try:
        text = json.dumps(values)
    except TypeError as error:
        raise GpuInputError(f"{where}: {error}\n    expected: values that JSON has") from None
    try:
        checked = kind.model().model_validate_json(text)
        names = checked.model_fields_set
        return kind(**{name: getattr(checked, name) for name in names}, specified=frozenset(names))
    except ValidationError as error:
        # A reference now is another value later, and a rule over several fields cannot be checked yet.
        problems = error.errors(include_url=False)
        certain = [problem for problem in problems if problem["loc"] and problem["loc"][0] not in later]
        if not certain and later:
            return None
        raise GpuInputError(_message(kind, where, prefix, certain or problems)) from None
    except ValueError as error:
        if later:
            return None
        raise GpuInputError(f"{where}: {error}") from None


def one_of(name: str, candidates: Collection[str]) -> str:
    """Return what to expect in place of an unknown name: the nearest one, else all."""
    return did_you_mean(name, candidates, f"one of {', '.join(candidates)}")


@cache
def _model(kind: Any) -> type[BaseModel]:
    from pydantic import AliasChoices, ConfigDict, Field, create_model

    strict = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)
    hints = get_type_hints(kind)
    definitions: dict[str, Any] = {}
    for name, _, default, declaration in _declarations(kind):
        if declaration.only == "flags":
            continue
        limits = dict(declaration.limits)
        if declaration.aliases:
            limits["validation_alias"] = AliasChoices(name, *declaration.aliases)
        if default is MISSING and not declaration.required:
            limits["default_factory"] = dict
        elif not declaration.required:
            limits["default"] = default
        sentence = f"{declaration.help[:1].upper()}{declaration.help[1:]}."
        definitions[name] = (hints[name], Field(description=sentence, **limits))
    return create_model(kind.__name__, __config__=strict, **definitions)


def _declarations(kind: type[Parameters]) -> Iterator[tuple[str, str, Any, _Declaration]]:
    """Yield name, type as written, default and declaration."""
    for item in fields(kind):
        if "parameter" in item.metadata:
            yield item.name, str(item.type), item.default, item.metadata["parameter"]


def _flag(name: str, kind: str, default: Any, declaration: _Declaration) -> Flag:
    flag, help = declaration.flag, declaration.help
    plain_kind, unit = kind.removesuffix(" | None"), declaration.unit
    metavar = "TIME" if unit else _METAVARS.get(plain_kind, "A,B" if kind.startswith("tuple") else "")
    if isinstance(flag, Flag):
        return replace(flag, help=flag.help or help, unit=unit, metavar=metavar)
    empty = _EMPTY.get(kind, _EMPTY.get(plain_kind, ""))
    if default is MISSING:
        return Flag(flag or name.replace("_", "-"), help=help, metavar=metavar)
    if unit and default is not None:
        empty, default = unit(0), unit(default)
    usual = default if default and isinstance(default, int | float) else empty
    if kind.startswith("tuple"):
        help += ", with commas between"
    unset = empty if usual is empty else ...
    shown = "" if default in (None, "", (), False) or isinstance(default, dict) else f"{default}"
    return Flag(flag or name.replace("_", "-"), usual, unset, help, unit=unit, metavar=metavar, usual=shown)


def _number(flag: Flag, kind: str, value: Any) -> Any:
    """Return the number that a flag without a default was given as text; any other value as it is."""
    if flag.unit:
        try:
            return float(flag.unit(value))
        except NoDuration as error:
            raise GpuInputError(f"--{flag.name}: {error}") from None
    read, expected = _NUMBERS.get(kind.removesuffix(" | None"), (None, ""))
    if read is None or not isinstance(value, str):
        return value
    try:
        return read(value)
    except ValueError:
        raise GpuInputError(f"--{flag.name}: {value!r} is not a number\n    expected: {expected}") from None


def _check_bounds(flag: Flag, value: Any, limits: Mapping[str, Any]) -> None:
    """Check a number against its lower bound: the upper ones are for agents, which wait. Raises GpuInputError."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return
    least, above = limits.get("ge", -math.inf), limits.get("gt", -math.inf)
    if not (value >= least and value >= above and value != limits.get("gt")):
        expected = f"more than {above:g}" if "gt" in limits else f"{least:g} or more" if "ge" in limits else "a number"
        raise GpuInputError(f"--{flag.name}: {value:g} makes no sense\n    expected: {expected}")


def _items(text: str) -> tuple[str, ...]:
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _message(kind: type[Parameters], where: str, prefix: str, problems: Collection[Any]) -> str:
    lines = [_problem(kind, where, prefix, problem) for problem in list(problems)[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return "\n".join(lines)


def _problem(kind: type[Parameters], where: str, prefix: str, problem: Any) -> str:
    name = ".".join([*([prefix] if prefix else []), *map(str, problem["loc"])])
    fields_by_name = kind.model().model_fields
    match problem["type"]:
        case "extra_forbidden":
            hint = one_of(str(problem["loc"][-1]), list(fields_by_name)) if fields_by_name else ""
            nested = len(problem["loc"]) > 1
            return f"{where}: unknown parameter {name}\n    expected: {(not nested and hint) or 'nothing of that name'}"
        case "missing":
            about = fields_by_name.get(str(problem["loc"][0]))
            return f"{where}: {name} is missing\n    expected: {about.description if about else 'a value'}"
        case "literal_error":
            return f"{where}: {name} is {_short(problem['input'])}\n    expected: {problem['ctx']['expected']}"
        case other:
            expected = _KINDS.get(other) or problem["msg"].removeprefix("Input should be ").removeprefix("a valid ")
            return f"{where}: {name} is {_short(problem['input'])}\n    expected: {expected}"


def _short(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."
