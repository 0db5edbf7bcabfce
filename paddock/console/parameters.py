"""Parameters of commands, of agents' tools and of workflow steps.

Each set is a dataclass whose fields are made by `parameter`: names, types, defaults, help and limits are written once.
JSON is read into it through a pydantic model, command lines without one: a node's `gpu.list` must not load pydantic.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args, get_type_hints

from paddock.console.output import NO_JSON, BadFlag, JsonOutput, optional_path, output_path
from paddock.duration import NoDuration, Seconds
from paddock.errors import PaddockError, did_you_mean

if TYPE_CHECKING:
    from pydantic import BaseModel

_NUMBERS = {"int": (int, "a whole number, such as 2"), "float": (float, "a number, such as 2 or 1.5")}
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


class BadParameters(PaddockError):
    """Parameters in JSON that a command cannot take."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Flag:
    """Command-line form of a parameter, where it differs from what its type says.

    `const` is the value where the flag is given alone, which it may be where `optional` is set, and else has to be;
    `absent` is the one where it is left out, if the parameter's own default is not meant.
    """

    name: str
    help: str = ""
    const: Any = ...
    absent: Any = ...
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Declaration:
    """A parameter as it was declared."""

    name: str
    kind: str
    """Its type, as written."""
    default: Any
    help: str
    flag: Flag
    aliases: tuple[str, ...]
    only: Literal["flags", "json"] | None
    required: bool
    positional: bool
    trailing: bool
    repeats: bool
    writes: bool
    unit: type[Seconds] | None
    limits: Mapping[str, Any]

    @property
    def option(self) -> str:
        """The flag as it is typed."""
        return f"{'-' if len(self.flag.name) == 1 else '--'}{self.flag.name}"

    @property
    def needed(self) -> bool:
        """Return whether a command line has to name it."""
        return self.default is MISSING and self.flag.absent is ...

    @property
    def is_list(self) -> bool:
        return self.kind.startswith("tuple")

    @property
    def chooses(self) -> bool:
        """Return whether it may take certain words alone: a `Literal`, also by a name of its own."""
        return not self.is_list and self.kind.removesuffix(" | None") not in ("str", "bool", *_METAVARS)

    @property
    def const(self) -> Any:
        """Value of the flag alone; `...` where it takes one."""
        if self.flag.const is ... and self.kind == "bool":
            return not self.default
        return self.flag.const

    @property
    def metavar(self) -> str:
        if self.flag.optional:
            return "[VALUE]"
        if self.const is not ...:
            return ""
        plain = self.kind.removesuffix(" | None")
        return "TIME" if self.unit else _METAVARS.get(plain, "A,B" if self.is_list and not self.repeats else "VALUE")

    def about(self) -> str:
        """Return the help of the flag, with its default."""
        text = self.flag.help or self.help
        usual = self.default if self.flag.absent is ... else self.flag.absent
        shown = not (self.const is not ... or isinstance(usual, dict) or usual in (MISSING, None, "", (), 0))
        if shown and "by default" not in text:
            text += f" (default: {self.unit(usual) if self.unit else usual})"
        return text

    def read(self, words: Sequence[str], hint: Any) -> Any:
        """Return the value of what the command line has for the flag. Raises BadFlag."""
        if self.trailing or self.repeats:
            return tuple(words)
        name, text = self.option, words[-1]
        if self.unit:
            try:
                return self._bounded(float(self.unit(text)))
            except NoDuration as error:
                raise BadFlag(f"{name}: {error}") from None
        plain = self.kind.removesuffix(" | None")
        if plain in _NUMBERS:
            convert, expected = _NUMBERS[plain]
            try:
                return self._bounded(convert(text))
            except ValueError:
                raise BadFlag(f"{name}: {text!r} is not a number\n    expected: {expected}") from None
        if plain == "Path":
            return (output_path if self.writes else optional_path)(self.flag.name, text)
        if self.is_list:
            return tuple(item.strip() for word in words for item in word.split(",") if item.strip())
        # Those of `Literal[...] | None` are one level down.
        choices = [
            choice for kind in get_args(hint) for choice in (get_args(kind) or [kind]) if isinstance(choice, str)
        ]
        if choices and text not in choices:
            raise BadFlag(f"{name} is {_short(text)}\n    expected: {one_of(text, choices)}")
        return text

    def _bounded(self, value: float) -> float:
        """Check a number against its lower bound: the upper ones are for agents, which wait. Raises BadFlag."""
        least, above = self.limits.get("ge", -math.inf), self.limits.get("gt", -math.inf)
        if not (value >= least and value >= above and value != self.limits.get("gt")):
            expected = f"more than {above:g}" if "gt" in self.limits else f"{least:g} or more"
            raise BadFlag(f"{self.option} is {value:g}\n    expected: {expected if self.limits else 'a number'}")
        return value


def parameter(
    default: Any,
    help: str,
    *,
    flag: Flag | str = "",
    aliases: tuple[str, ...] = (),
    only: Literal["flags", "json"] | None = None,
    required: bool = False,
    positional: bool = False,
    trailing: bool = False,
    repeats: bool = False,
    writes: bool = False,
    unit: type[Seconds] | None = None,
    **limits: Any,
) -> Any:
    """Declare a parameter: a field of a subclass of `Parameters`.

    A default of `...` makes it required and positional, `required` does the former in JSON alone. `flag` is its name on
    the command line, or all of its flag where more than the name differs. `aliases` are further names in JSON, `limits`
    are pydantic's, such as `ge`. `only` restricts it to one of both. `positional` takes bare words, `trailing` those
    after `--`; `repeats` may be given again, and its values have no commas between. `writes` is a file that the command
    will write. `unit` is that of a length of time: `20m`.
    """
    needed = default is ...
    metadata = {
        "parameter": lambda name, kind: Declaration(
            name=name,
            kind=kind,
            default=MISSING if needed else default,
            help=help,
            flag=flag if isinstance(flag, Flag) else Flag(flag or name.removesuffix("_").replace("_", "-")),
            aliases=aliases,
            only=only,
            required=required or needed,
            positional=positional or needed,
            trailing=trailing,
            repeats=repeats,
            writes=writes,
            unit=unit,
            limits=limits,
        )
    }
    if isinstance(default, dict):
        return field(default_factory=dict, metadata=metadata)
    return field(default=MISSING if needed else default, metadata=metadata)


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Base of all sets of parameters; `specified` names those to which the caller gave a value."""

    specified: frozenset[str] = field(default=frozenset(), repr=False, compare=False)
    json: JsonOutput = field(default=NO_JSON, repr=False, compare=False)
    """Where the command's document goes."""

    def values(self) -> dict[str, Any]:
        """Return the values that the caller gave."""
        return {name: getattr(self, name) for name in self.names() if name in self.specified}

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all parameters."""
        return [declaration.name for declaration in declarations(cls)]

    def changed(self) -> frozenset[str]:
        """Return the names of the parameters that have another value than their default."""
        return frozenset(d.name for d in declarations(type(self)) if getattr(self, d.name) != d.default)

    @classmethod
    def flags(cls) -> list[Declaration]:
        """Return the parameters that the command line has."""
        return [declaration for declaration in declarations(cls) if declaration.only != "json"]

    @classmethod
    def model(cls) -> type[BaseModel]:
        """Return the pydantic model that reads the parameters from JSON and has their JSON Schema."""
        hashable: Any = cls  # to mypy it is not, since it looks at the instances' own hash
        return _model(hashable)

    @classmethod
    def from_words(cls: type[_Set], given: Mapping[str, Sequence[str] | None], json: JsonOutput = NO_JSON) -> _Set:
        """Build from what the command line has for each name: its words, None for a flag alone. Raises BadFlag."""
        hints = get_type_hints(cls) if any(d.chooses for d in cls.flags()) else {}
        values = {d.name: d.flag.absent for d in cls.flags() if d.flag.absent is not ...}
        for declaration in cls.flags():
            if declaration.name in given:
                words = given[declaration.name]
                values[declaration.name] = (
                    declaration.const if words is None else declaration.read(words, hints.get(declaration.name))
                )
        return cls(**values, specified=frozenset(values), json=json)


_Set = TypeVar("_Set", bound=Parameters)


@dataclass(frozen=True, kw_only=True)
class NoParameters(Parameters):
    """No parameters."""


def parse(
    kind: type[_Set], values: Mapping[str, Any], where: str, *, later: Collection[str] = (), prefix: str = ""
) -> _Set | None:
    """Return the parameters, or None where the values of the names in `later` are not known yet and all others fit.

    `where` begins a message, `prefix` each name in it. Raises BadParameters with the first problems.
    """
    from pydantic import ValidationError

    try:
        text = json.dumps(values)
    except TypeError as error:
        raise BadParameters(f"{where}: {error}\n    expected: values that JSON has") from None
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
        raise BadParameters(_message(kind, where, prefix, certain or problems)) from None
    except ValueError as error:
        if later:
            return None
        raise BadParameters(f"{where}: {error}") from None


def one_of(name: str, candidates: Collection[str]) -> str:
    """Return what to expect in place of an unknown name: the nearest one, else all."""
    return did_you_mean(name, candidates, f"one of {', '.join(candidates)}")


@cache
def _model(kind: Any) -> type[BaseModel]:
    from pydantic import AliasChoices, ConfigDict, Field, create_model

    strict = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False, populate_by_name=True)
    hints = get_type_hints(kind)
    definitions: dict[str, Any] = {}
    for declaration in declarations(kind):
        if declaration.only == "flags":
            continue
        limits = dict(declaration.limits)
        if declaration.aliases:
            limits["validation_alias"] = AliasChoices(declaration.name, *declaration.aliases)
        if isinstance(declaration.default, dict) and not declaration.required:
            limits["default_factory"] = dict
        elif not declaration.required:
            limits["default"] = declaration.default
        sentence = f"{declaration.help[:1].upper()}{declaration.help[1:]}."
        definitions[declaration.name] = (hints[declaration.name], Field(description=sentence, **limits))
    return create_model(kind.__name__, __config__=strict, **definitions)


def declarations(kind: type[Parameters]) -> Iterator[Declaration]:
    """Yield the parameters of a set."""
    for item in fields(kind):
        if "parameter" in item.metadata:
            yield item.metadata["parameter"](item.name, str(item.type))


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
