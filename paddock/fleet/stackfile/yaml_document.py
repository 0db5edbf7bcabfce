"""A YAML file read as Pulumi's engine reads it (gopkg.in/yaml.v3), remembering where everything is written.

PyYAML resolves YAML 1.1: there `on` is true and `1e3` is text. Only its parser is used here; what a scalar means is
decided by Go's rules, which `tests/fleet/stackfile/test_loader.py` holds against the real engine's answers.
"""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any, ClassVar, NoReturn

import yaml

from paddock.fleet.errors import FleetError, Key, Problem, without_config
from paddock.fleet.stackfile.scalars import Moment, go_text, resolve

MAX_BYTES = 512 * 1024
MAX_NODES = 50_000
"""Values after aliases are followed: nine lines of aliases can stand for more values than there is memory."""
MAX_DEPTH = 40
_STACK_LEVELS = 1000
"""Levels up to which libyaml's composer, which recurses in C, is sure of its stack."""

_NOT_FINITE = re.compile(r"^([-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN))$")
_STR = "tag:yaml.org,2002:str"
_TAGS = "tag:yaml.org,2002:"


class _Plain(yaml.SafeLoader):
    """PyYAML's parser without its ideas of what a scalar is."""

    yaml_implicit_resolvers = {}


class _Libyaml(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]  # which of them, mypy cannot tell
    """The same in C where PyYAML has it, in a tenth of the time; Go's yaml.v3 is a port of it."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


class Document:
    """A YAML file: `data` as Go would hold it, and the line and the text of every key."""

    def __init__(self, file: str, content: bytes) -> None:
        self.file = file
        self.data: Any = None
        self.dates: list[Key] = []
        """Keys whose value is a date without quotes, which Pulumi rewrites."""
        self.written: dict[Key, str] = {}
        """Scalars as they are in the file: `1.30`, where `data` has 1.3."""
        self._lines: dict[Key, int] = {(): 1}
        self._problems: list[Problem] = []
        self._nodes = 0
        self._text = ""
        try:
            node = self._parse(content)
            self.data = None if node is None else self._build(node, (), ())
        except RecursionError:
            self._stop((), 1, "nested too deep to be a stack file", "a handful of levels", "take the nesting out")
        except FleetError as error:
            self._problems = [*self._problems, *error.problems]
        if self._problems:
            raise FleetError(self._problems)

    def line(self, key: Key) -> int:
        """Line of the key, or of the nearest key above it that is written."""
        while key not in self._lines:
            key = key[:-1]
        return self._lines[key]

    def _parse(self, content: bytes) -> yaml.Node | None:
        if len(content) > MAX_BYTES:
            size, most = f"the file has {len(content) / 2**20:.1f} MiB", f"at most {MAX_BYTES // 1024} KiB"
            self._stop((), 1, size, most, "check that it is the stack file you mean")
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line, byte = content.count(b"\n", 0, error.start) + 1, content[error.start]
            self._stop((), line, f"byte {byte:#04x} is not UTF-8", "text in UTF-8", "save the file as UTF-8")
        self._text = text
        try:
            return _compose(text)
        except yaml.MarkedYAMLError as error:
            line, problem, expected, fix = _syntax(error, text)
            self._stop((), line, f"not valid YAML: {problem}", expected, fix)
        except yaml.reader.ReaderError as error:
            line = text.count("\n", 0, error.position) + 1
            problem = f"the character U+{ord(text[error.position]):04X} is not allowed"
            self._stop((), line, f"not valid YAML: {problem}", "text", "remove it; editors may not show it")

    def _build(self, node: Any, key: Key, above: tuple[int, ...]) -> Any:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            message = f"more than {MAX_NODES} values, aliases followed"
            self._stop(key, self.line(key), message, "a stack file", "check that it is the stack file you mean")
        if id(node) in above:
            self._stop(key, self.line(key), "an anchor whose value contains itself", "a value", "remove the alias")
        if len(above) > MAX_DEPTH:
            raise RecursionError
        inside = (*above, id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, key, inside)
        if isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                self._lines[(*key, index)] = item.start_mark.line + 1
            return [self._build(item, (*key, index), inside) for index, item in enumerate(node.value)]
        self.written[key] = node.value
        return self._scalar(node, key)

    def _mapping(self, node: yaml.MappingNode, key: Key, inside: tuple[int, ...]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        first_lines: dict[str, int] = {}
        for name_node, value_node in node.value:
            line = name_node.start_mark.line + 1
            if not isinstance(name_node, yaml.ScalarNode):
                kind = "a list" if isinstance(name_node, yaml.SequenceNode) else "a map"
                fix = 'write a name, and text in braces with quotes: "{...}"'
                self._stop(key, line, f"{kind} cannot be the name of a setting", "a name", fix)
            if name_node.value == "<<" and not name_node.style:
                merged = {**self._merge(value_node, key, inside, line), **merged}
                continue
            name = _name(name_node)
            inner = (*key, name)
            if name in first_lines:
                message = f"written twice, first in line {first_lines[name]}"
                self._problems.append(
                    Problem(without_config(inner), message, "one value", "remove one of them", self.file, line)
                )
                continue
            first_lines[name] = line
            self._lines[inner] = line
            values[name] = self._build(value_node, inner, inside)
        return {**{name: value for name, value in merged.items() if name not in values}, **values}

    def _merge(self, node: yaml.Node, key: Key, inside: tuple[int, ...], line: int) -> dict[str, Any]:
        """Return the values of `<<:`, in which the first of several maps wins. Written keys keep their lines."""
        lines, written = dict(self._lines), dict(self.written)
        parts = node.value if isinstance(node, yaml.SequenceNode) else [node]
        if not all(isinstance(part, yaml.MappingNode) for part in parts):
            self._stop((*key, "<<"), line, "only maps can be merged", "an alias of a map: *name", "point << at a map")
        values: dict[str, Any] = {}
        for part in reversed(parts):
            values |= self._build(part, key, inside)
        self._lines |= lines
        self.written |= written
        return values

    def _scalar(self, node: yaml.ScalarNode, key: Key) -> Any:
        text, tag = node.value, node.tag
        if tag == f"{_TAGS}binary":
            try:
                return base64.b64decode(text, validate=True).decode("utf-8")
            except ValueError:
                line = node.start_mark.line + 1
                self._stop(key, line, "!!binary without base64 text", "base64", "write the text itself")
        typed = tag in {f"{_TAGS}{kind}" for kind in ("int", "float", "bool", "null")}
        # An explicit !!str resolves like a quoted scalar; PyYAML marks a plain one by its style alone.
        # Such a scalar starts before its text.
        plain = not node.style and tag == _STR and not self._text.startswith("!!str", node.start_mark.index)
        if not (plain or typed):
            return text
        if _NOT_FINITE.match(text):
            message = f"Pulumi cannot read {text}"
            self._stop(
                key, node.start_mark.line + 1, message, "a finite number", "write a number, or quotes around text"
            )
        value = resolve(text)
        if isinstance(value, Moment):
            self.dates.append(key)
            return value.text
        return value

    def _stop(self, key: Key, line: int, message: str, expected: str, fix: str) -> NoReturn:
        raise FleetError([Problem(without_config(key), message, expected, fix, self.file, line)])


def _compose(text: str) -> yaml.Node | None:
    """Return the root of the only document. Raises YAMLError in PyYAML's own words, and RecursionError."""
    try:
        depth = 0
        for event in yaml.parse(text, Loader=_Libyaml):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > _STACK_LEVELS:
                raise RecursionError
        node: yaml.Node | None = _Libyaml(text).get_single_node()
    except yaml.YAMLError:
        node = _Plain(text).get_single_node()
    return node


def _name(node: yaml.ScalarNode) -> str:
    """A key as Go prints it: every name is text in the end."""
    value = node.value if node.style else resolve(node.value)
    if isinstance(value, Moment):
        return value.text
    return "<nil>" if value is None else go_text(value)


def _syntax(error: yaml.MarkedYAMLError, text: str) -> tuple[int, str, str, str]:
    """(line, what is wrong, expected, fix) in words that do not need the YAML specification."""
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else 1
    problem = " ".join(part for part in (error.problem, error.context) if part)
    rows = text.splitlines()
    row = rows[line - 1] if line <= len(rows) else ""
    opened = error.context_mark.line + 1 if error.context_mark else line
    values = {
        "problem": problem,
        "found": problem.replace("found ", ""),
        "kind": "{ }" if "mapping" in problem else "[ ]",
        "opened": opened,
        "odd": row[mark.column] if mark and mark.column < len(row) else "this",
    }
    meanings = yaml.safe_load(Path(__file__).with_name("syntax.yaml").read_text(encoding="utf-8"))
    meant = next(meaning for meaning in meanings if any(words in problem for words in meaning["has"]))
    wrong, expected, fix = (meant[part].format(**values) for part in ("wrong", "expected", "fix"))
    return opened if meant.get("opened") else line, wrong, expected, fix
