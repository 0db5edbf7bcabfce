"""Output of a hook: workflow commands for GitHub's runner, and the summary page of the workflow run."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path

from paddock.gpu.job_hooks import files

_CONTROL = re.compile(r"[\x00-\x1f\x7f]+")
_MARKDOWN_REPLACED = str.maketrans({"|": "/", "<": "(", ">": ")", "`": "'", "[": "("})


def info(text: str) -> None:
    """Print a line; its text may come from the job."""
    _write(single_line(text))


def error(title: str, text: str) -> None:
    _write(_annotation("error", title, text))


def warning(title: str, text: str) -> None:
    _write(_annotation("warning", title, text))


def group(title: str, lines: Iterable[str]) -> None:
    """Print lines in a group, which the log shows folded."""
    _write("\n".join([f"::group::{_escape(title)}", *(f"  {single_line(line)}" for line in lines), "::endgroup::"]))


def append_summary(path: Path | None, text: str) -> None:
    """Append Markdown to the job's summary, if there is one."""
    if path is None:
        return
    try:
        files.append(path, text)
    except OSError as error:
        warning("Job summary", f"It cannot be written: {error}")


def single_line(text: str) -> str:
    """Return one line that is not a workflow command: a job chooses the names of its processes and files."""
    return re.sub(r"^[\s:]+", "", _CONTROL.sub(" ", _replace_invalid(text))).replace("##[", "# [").rstrip()


def table_cell(text: str) -> str:
    """Return a single line without the special characters of Markdown tables."""
    return single_line(text).translate(_MARKDOWN_REPLACED)


def _annotation(kind: str, title: str, text: str) -> str:
    # The title is a property, in which colon and comma are special as well.
    return f"::{kind} title={_escape(title).replace(':', '%3A').replace(',', '%2C')}::{_escape(text)}"


def _escape(text: str) -> str:
    return _replace_invalid(text).replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _replace_invalid(text: str) -> str:
    """Replace invalid characters: names of files and processes need not be valid Unicode."""
    return text.encode("utf-8", "replace").decode()


def _write(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()
