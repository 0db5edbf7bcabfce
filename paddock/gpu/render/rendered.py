"""Result of a renderer: files, notes and warnings."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from typing import Any

from paddock.gpu.model import SCHEMA

_HEADER = "# Written by Paddock (sha256 of the rest: {}); a line `# USER_CUSTOMIZED=true` keeps your changes."
_HEADER_LINE = re.compile(rf"^{re.escape(_HEADER).replace(re.escape('{}'), '([0-9a-f]{64})')}\n", re.MULTILINE)
_CUSTOMISED = re.compile(r"^\s*#\s*USER_CUSTOMIZED\s*=\s*true\s*$", re.MULTILINE | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class File:
    """Rendered file. `path` is relative to the output folder, `mode` its permissions."""

    path: str
    text: str
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Rendered:
    """Result of a renderer. `notes` explain decisions, `warnings` possible surprises."""

    target: str
    files: tuple[File, ...]
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def text(self, path: str) -> str:
        """Return the text of the file of that path. Raises KeyError."""
        return {file.path: file.text for file in self.files}[path]


def headed(path: str, body: str, mode: int = 0o644) -> File:
    """Return a file in a language with `#` comments, with a header that detects later edits."""
    line = _HEADER.format(_sum(body)) + "\n"
    first, newline, rest = body.partition("\n")
    text = f"{first}{newline}{line}{rest}" if first.startswith("#!") else line + body
    return File(path, text, mode)


def unedited(text: str) -> bool | None:
    """Return True where the text is unchanged since `headed`; None where it has no such header."""
    match = _HEADER_LINE.search(text)
    return None if match is None else match[1] == _sum(text[: match.start()] + text[match.end() :])


def customised(text: str) -> bool:
    """Return True where the file has the line `# USER_CUSTOMIZED=true`."""
    return bool(_CUSTOMISED.search(text))


def to_document(rendered: Rendered) -> dict[str, Any]:
    """Return the JSON document; `mode` is octal."""
    return {
        "schema": SCHEMA,
        "target": rendered.target,
        "files": [{"path": file.path, "mode": f"{file.mode:04o}", "text": file.text} for file in rendered.files],
        "notes": list(rendered.notes),
        "warnings": list(rendered.warnings),
    }


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
