"""The one parser of command lines: words become the parameters of a command, and misuse a sentence."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from paddock.console.command import Command
from paddock.console.output import NO_JSON, BadFlag, JsonOutput
from paddock.console.parameters import Declaration, Parameters
from paddock.errors import did_you_mean, program


def parse(name: str, command: Command, words: Sequence[str]) -> Parameters:
    """Return the parameters of a command line behind the command's name. Raises BadFlag."""
    return _Reading(name, command).read(words)


def usage(name: str, command: Command) -> str:
    """Return the command with what it needs."""
    flags = command.parameters.flags()
    bare = [_bare(flag) for flag in flags if flag.positional]
    trailing = [f"-- {flag.flag.name.upper()}" for flag in flags if flag.trailing]
    others = command.reports or len(flags) > len(bare) + len(trailing)
    return " ".join([name, *bare, *(["[flags]"] if others else []), *trailing])


def _bare(flag: Declaration) -> str:
    return flag.flag.name.upper() if flag.needed else f"[{flag.flag.name.upper()}]"


class _Reading:
    """One command line, as it is read."""

    def __init__(self, name: str, command: Command) -> None:
        self._name, self._command = name, command
        self._flags = command.parameters.flags()
        self._by_flag = {flag.option: flag for flag in self._flags if not flag.trailing}
        self._given: dict[str, list[str] | None] = {}
        self._json: str | None = None

    def read(self, words: Sequence[str]) -> Parameters:
        end = words.index("--") if "--" in words else len(words)
        rest = list(words[:end])
        while rest:
            word = rest.pop(0)
            if word.startswith("-") and len(word) > 1:
                self._flag(word, rest)
            else:
                self._word(word)
        if end < len(words):
            self._trailing(words[end + 1 :])
        missing = [flag for flag in self._flags if flag.needed and flag.name not in self._given]
        if missing:
            raise self._missing(missing)
        json = NO_JSON if self._json is None else JsonOutput.parse(self._json)
        return self._command.parameters.from_words(self._given, json)

    def _flag(self, word: str, rest: list[str]) -> None:
        name, equals, text = word.partition("=")
        if name == "--json" and self._command.reports:
            following = rest[0] if rest and not equals else "--"
            alone = not equals and following.startswith("-") and following != "-"
            self._json = text if equals else "-" if alone else rest.pop(0)
            return
        flag = self._by_flag.get(name)
        if flag is None:
            raise self._unknown(name)
        if flag.flag.optional and not equals:
            self._given[flag.name] = [rest.pop(0)] if rest and not rest[0].startswith("-") else None
            return
        if flag.const is not ... and not flag.flag.optional:
            if equals:
                raise BadFlag(f"{name} takes no value\n    expected: {name} alone, or not at all")
            self._given[flag.name] = None
            return
        if not equals:
            if not rest or (rest[0].startswith("--") or (rest[0] in self._by_flag)):
                raise BadFlag(f"{name} needs a value\n    expected: {name} {flag.metavar}")
            text = rest.pop(0)
        before = self._given.get(flag.name)
        self._given[flag.name] = [*before, text] if flag.repeats and before else [text]

    def _word(self, word: str) -> None:
        places = [flag for flag in self._flags if flag.positional]
        for flag in places:
            if flag.name not in self._given or (flag.is_list and flag is places[-1]):
                self._given[flag.name] = [*(self._given.get(flag.name) or ()), word]
                return
        if "--stack" in self._by_flag and Path(f"Pulumi.{word}.yaml").exists():
            hint = f"did you mean --stack {word}?"
        elif any(flag.trailing for flag in self._flags):
            hint = f"the program to run comes after --: {self._name} -- {word}"
        else:
            hint = did_you_mean(word, self._by_flag, f"`{program()} {self._name} --help` shows the flags")
        raise BadFlag(f"{self._name} does not take {word!r}\n    expected: {self._usage()}\n    fix: {hint}")

    def _trailing(self, words: Sequence[str]) -> None:
        flag = next((flag for flag in self._flags if flag.trailing), None)
        if flag is None:
            raise BadFlag(f"{self._name} takes nothing after --\n    expected: {self._usage()}")
        self._given[flag.name] = list(words)

    def _unknown(self, word: str) -> BadFlag:
        known = [*self._by_flag, *(["--json"] if self._command.reports else [])]
        hint = did_you_mean(word, known, f"`{program()} {self._name} --help` shows the flags")
        return BadFlag(f"{self._name} has no flag {word}\n    expected: {self._usage()}\n    fix: {hint}")

    def _missing(self, missing: Iterable[Declaration]) -> BadFlag:
        names = " and ".join(flag.flag.name.upper() for flag in missing)
        taken = self._json not in (None, "-") and not any(word.startswith("--json=") for word in sys.argv)
        fix = "\n    fix: write --json last: the word behind it was taken for a file" if taken else ""
        return BadFlag(f"{self._name} needs {names}\n    expected: {self._usage()}{fix}")

    def _usage(self) -> str:
        return f"{program()} {usage(self._name, self._command)}"
