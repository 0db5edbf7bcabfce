"""Text that Slurm's programs print: `Key=value` fields on a line, and lists."""

from __future__ import annotations

import re

_KEY = re.compile(r"(?:^|\s)([A-Za-z][A-Za-z:/_]*)=")


def fields(line: str) -> dict[str, str]:
    """Return the values on a line by key. The first of a key counts, and a value may have spaces."""
    pieces = _KEY.split(line)
    result: dict[str, str] = {}
    for key, value in zip(pieces[1::2], pieces[2::2], strict=True):
        result.setdefault(key, value.strip())
    return result


def entries(text: str) -> list[str]:
    """Return the entries of a list, which has commas in parentheses too: `gpu:h100:2(IDX:0,2),shard:4`."""
    result, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and not depth:
            result.append("")
        else:
            result[-1] += character
    return [entry for entry in result if entry and entry != "(null)"]
