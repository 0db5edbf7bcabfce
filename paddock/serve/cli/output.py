"""Output of the commands: lines on standard output unless JSON replaces them, progress on standard error."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from paddock.errors import printable
from paddock.terminal import JsonOutput


def say(json: JsonOutput, *lines: str) -> None:
    """Print lines, unless JSON stands in their place."""
    if not json.replaces_text:
        sys.stdout.writelines(f"{printable(line)}\n" for line in lines)


def progress(text: str) -> None:
    sys.stderr.write(f"{printable(text)}\n")


def row_line(row: Mapping[str, Any]) -> str:
    """Return an instance in one line."""
    shared = f" x {row['tensor_parallel']}" if (row["tensor_parallel"] or 1) > 1 else ""
    placed = [f"{row['class']}{shared}", row["dtype"] or "", *row["devices"]] if row["class"] else ["nowhere"]
    if row["engine"] == "vllm":
        placed.append("by vLLM")
    if row["url"]:
        placed = [f"external engine at {row['url']}, no device"]
    why = f": {row['reason']}" if row["reason"] else ""
    moved = f", placed anew {row['moves']} times" if row["moves"] else ""
    return f"{row['id']:<20} {row['state']:<8} {', '.join(placed)}{moved}{why}"
