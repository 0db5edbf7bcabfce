"""Lines that GitHub's runner understands: what a workflow author sees of a hook."""

from __future__ import annotations

import re
from collections.abc import Iterable

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]+")


def error(title: str, text: str) -> str:
    return _annotation("error", title, text)


def warning(title: str, text: str) -> str:
    return _annotation("warning", title, text)


def group(title: str, lines: Iterable[str]) -> str:
    """Folded in the log until somebody opens it."""
    return "\n".join([f"::group::{_data(title)}", *(f"  {plain(line)}" for line in lines), "::endgroup::"])


def plain(text: str) -> str:
    """One line that the runner takes for no command, whoever chose its words: a job names its own processes."""
    return _CONTROL.sub(" ", text.replace("\n", " ")).replace("##[", "# [").strip().lstrip(":")


def _annotation(kind: str, title: str, text: str) -> str:
    # The title is a property, in which a colon and a comma have a meaning as well.
    return f"::{kind} title={_data(title).replace(':', '%3A').replace(',', '%2C')}::{_data(text)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
