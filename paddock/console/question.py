"""Questions to the person at the terminal."""

from __future__ import annotations

import sys

from paddock.console.output import BadFlag, JsonOutput
from paddock.errors import printable


def can_ask(json: JsonOutput) -> bool:
    """Return whether there is somebody to ask, and a place for the question."""
    return sys.stdin.isatty() and sys.stderr.isatty() and not json.replaces_text


def agreed(question: str, json: JsonOutput, *, yes: bool = False, default: bool = False) -> bool:
    """Return whether the person agrees; `yes` is the flag by which they did already.

    Raises BadFlag where there is nobody to ask.
    """
    if yes:
        return True
    _check(question, json)
    answer = ask(f"{question} [{'Y/n' if default else 'y/N'}] ").lower()
    return default if not answer else answer in ("y", "yes")


def typed(question: str, word: str, json: JsonOutput, *, yes: bool = False) -> bool:
    """Return whether the person typed the word, for what cannot be undone. Raises BadFlag as `agreed` does."""
    if yes:
        return True
    _check(question, json)
    return ask(f"{question} ") == word


def _check(question: str, json: JsonOutput) -> None:
    """Raise BadFlag where there is nobody to ask."""
    if not can_ask(json):
        why = "--json asks nothing" if json.replaces_text else "there is no terminal to ask on"
        raise BadFlag(f"{why}: {question}\n    expected: --yes\n    fix: add --yes to do it")


def ask(prompt: str) -> str:
    """Return the line that the person types; the prompt goes to standard error. Ctrl-D is taken for Ctrl-C."""
    sys.stderr.write(printable(prompt))
    sys.stderr.flush()
    try:
        return input().strip()
    except EOFError:
        raise KeyboardInterrupt from None
