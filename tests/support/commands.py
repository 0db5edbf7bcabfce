"""Commands of the program in texts: where they stand, and what is wrong with them."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from markdown_it import MarkdownIt

from paddock.console.output import BadFlag
from paddock.console.parameters import Declaration
from paddock.site.links import pages
from paddock.tasks.program import contents

Kind = Literal["block", "span", "prose"]
"""Lines of a shell, code within a sentence, or a sentence, which may go on behind a command."""

_ROOMS = ("paddock", "infra", "policy", "runners", "images", "ami", "benchmarks", ".github")
_FILES = ("inv", "tasks.py", "renovate.json", "zensical.toml", "pyproject.toml", "Pulumi.yaml", "Pulumi.dev.yaml")
_SUFFIXES = {"", ".conf", ".json", ".md", ".py", ".service", ".sh", ".toml", ".yaml", ".yml"}
_CONTENTS = contents()
_OPTIONS = {"--list", "--help", "--version", "-l", "-h", "-V", "--complete"}
"""What the program answers without a task."""
_CALL = re.compile(
    r"(?:(?<![\w./-])(\./inv)|(?<=`)(inv)|(?<![\w./@\"'-])((?:\.venv/)?(?:bin/)?paddock))[ \t]+(?=[a-z-])"
)
_MAY_CALL = re.compile(r"\binv\b|program\(\)|(?<!from )\bpaddock[ \t]")
_INNER = re.compile(r"\$\([^)\n]*\)")
_END = re.compile(r"[\n`]|\s(?:[|>&;#]|-->|2>)(?:\s|$)|&&|;\s|\s\\\s*$")
_SENTENCE_END = re.compile(r"[,;:.)\]\"'](?:\s|$)|\s\(|\*\*")
_PLACEHOLDER = re.compile(r"[A-Z][A-Z_|.\[\]-]*|\.\.\.|…|<.*>|\[.*|.*[\0$*].*")
_SHELLS = ("bash", "sh")
_PROSE = {"again", "in", "is", "there"}
"""Words that follow the program's name in a sentence about it."""
_HOLE = "\0"
"""A part of a text that the program fills in."""


@dataclass(frozen=True, slots=True)
class Command:
    """A call of the program in a text."""

    place: str
    words: tuple[str, ...]
    kind: Kind

    def __str__(self) -> str:
        return f"{self.place}: {' '.join(self.words)}"


def commands(root: Path) -> Iterator[Command]:
    """Yield every command in pages, messages, scripts and workflows."""
    for path in _paths(root):
        for line, text, kind in _texts(path):
            for call in _CALL.finditer(text):
                words = _words(text[call.end() :], kind) or ("",)
                # "paddock" in a sentence is the project as well: a task's name tells them apart.
                of_task = kind != "prose" or not call[3] or "." in words[0] or words[0] in _CONTENTS.entries
                if (
                    words[0]
                    and words[0] not in _PROSE
                    and of_task
                    and not re.search(r"--[\w-]+ $", text[: call.start()])
                ):
                    place = f"{path.relative_to(root)}:{line + text.count(chr(10), 0, call.start())}"
                    yield Command(place, words, kind)


def wrong(command: Command) -> str:
    """Return what is wrong with a command, empty where nothing is."""
    first, *rest = command.words
    if first in _OPTIONS or _PLACEHOLDER.fullmatch(first):
        return ""
    if first in _CONTENTS.aliases and command.kind != "block":
        return ""
    found = _CONTENTS.find(first)
    if found is None:
        return "" if _CONTENTS.members(first) else f"{first}: {_CONTENTS.explain(first)}"
    loaded = found[0].load()
    declared = loaded.parameters.flags()
    flags = {flag.option: flag for flag in declared}
    places = [flag for flag in declared if flag.positional][len(found[1]) :]
    words = iter(rest)
    for word in words:
        if word in ("--", "--help"):
            return ""
        if word.startswith("-") and not _PLACEHOLDER.fullmatch(word):
            name, _, value = word.partition("=")
            if name == "--json" and loaded.reports:
                next(words, "")
                continue
            if name not in flags:
                return f"{first} has no {name}"
            flag = flags[name]
            if flag.flag.optional or flag.const is ...:
                value = value or next(words, "")
                if problem := _bad_value(flag, value, command.kind):
                    return f"{name} {value}: {problem}"
        elif places:
            if not places[0].is_list:
                places.pop(0)
        elif command.kind == "prose":
            return ""
        elif not _PLACEHOLDER.fullmatch(word):
            return f"{first} takes no {word}"
    return ""


def _bad_value(flag: Declaration, value: str, kind: Kind) -> str:
    if not value:
        # A sentence names a flag without a value; a shell does not.
        return "" if kind != "block" or flag.flag.optional else "it needs a value"
    if flag.kind.startswith("Path") or _PLACEHOLDER.fullmatch(value):
        return ""
    try:
        flag.read([value], None)
    except BadFlag as error:
        return str(error)
    return ""


def _words(text: str, kind: Kind) -> tuple[str, ...]:
    """Return the words up to where the command ends: at the line's end, or a sign of the shell or of a sentence."""
    text = _END.split(_INNER.sub("$(...)", text.replace("\\\n", " ")), maxsplit=1)[0]
    if kind == "prose":
        text = _SENTENCE_END.split(text, maxsplit=1)[0]
    try:
        words = shlex.split(text)
    except ValueError:
        words = text.split()
    if words and "(" not in text:
        words[-1] = words[-1].rstrip(')"')  # of a command in another one's arguments
    return tuple(words)


def _paths(root: Path) -> Iterator[Path]:
    yield from pages(root)
    yield from (root / name for name in _FILES if (root / name).is_file())
    for room in _ROOMS:
        for path in sorted((root / room).rglob("*")):
            if path.is_file() and path.suffix in _SUFFIXES and "__pycache__" not in path.parts:
                yield path


def _texts(path: Path) -> Iterator[tuple[int, str, Kind]]:
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".py" or path.name == "inv":
        if not _MAY_CALL.search(text):
            return  # to parse all modules takes seconds
        yield from ((line, part, "prose") for line, part in literals(ast.parse(text)))
    elif path.suffix == ".md":
        yield from _markdown(text)
    else:
        yield 1, text, "prose"


def _markdown(text: str) -> Iterator[tuple[int, str, Kind]]:
    for token in MarkdownIt().parse(text):
        line = token.map[0] + 1 if token.map else 1
        if token.type == "fence":
            for number, shown in enumerate(token.content.replace("\\\n", "  ").splitlines()):
                typed = token.info in _SHELLS or (token.info == "console" and shown.startswith("$ "))
                yield line + 1 + number, shown, "block" if typed else "prose"
        for part in token.children or ():
            yield line, part.content, "span" if part.type == "code_inline" else "prose"


def literals(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield texts of a module: of formatted ones the parts, with `./inv` for `program()` and a hole for the others."""
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside |= {id(part) for part in node.values}
            yield node.lineno, "".join(map(_part, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, node.value


def _part(node: ast.expr) -> str:
    if isinstance(node, ast.FormattedValue):
        return "./inv" if ast.unparse(node.value).endswith("program()") else _HOLE
    return str(ast.literal_eval(node))
