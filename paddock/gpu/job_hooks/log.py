"""What a hook tells: lines that GitHub's runner understands, and the page of the workflow's run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from paddock.gpu.job_hooks import files

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_MARKDOWN = str.maketrans({"|": "/", "<": "(", ">": ")", "`": "'", "[": "("})


def say(text: str) -> None:
    """A sentence, whoever chose its words."""
    _write(plain(text))


def error(title: str, text: str) -> None:
    _write(_annotation("error", title, text))


def warning(title: str, text: str) -> None:
    _write(_annotation("warning", title, text))


def group(title: str, lines: Iterable[str]) -> None:
    """Folded in the log until somebody opens it."""
    _write("\n".join([f"::group::{_data(title)}", *(f"  {plain(line)}" for line in lines), "::endgroup::"]))


def page(path: Path | None, text: str) -> None:
    """Appends Markdown to the summary of the job, where there is one."""
    if path is None:
        return
    try:
        files.append(path, text)
    except OSError as error:
        warning("Job summary", f"It cannot be written: {error}")


def plain(text: str) -> str:
    """One line that the runner takes for no command: a job names its own processes and files."""
    return re.sub(r"^[\s:]+", "", _CONTROL.sub(" ", _unicode(text))).replace("##[", "# [").rstrip()


def cell(text: str) -> str:
    """A plain line without what Markdown or a table would take for its own."""
    return plain(text).translate(_MARKDOWN)


def _annotation(kind: str, title: str, text: str) -> str:
    # The title is a property, in which a colon and a comma have a meaning as well.
    return f"::{kind} title={_data(title).replace(':', '%3A').replace(',', '%2C')}::{_data(text)}"


def _data(text: str) -> str:
    return _unicode(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _unicode(text: str) -> str:
    """Names of files and processes need not be any."""
    return text.encode("utf-8", "replace").decode()


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
