"""Names that an expression of PromQL reads."""

from __future__ import annotations

import re

_WORDS = {"unless", "and", "or", "on", "ignoring", "by", "without", "group_left", "group_right", "bool", "offset"}
_GROUPING = r"\b(on|ignoring|by|without|group_left|group_right)\s*\([^)]*\)"


def metrics(expression: str) -> set[str]:
    """Return the metrics in an expression."""
    bare = re.sub(rf'"[^"]*"|\{{[^}}]*\}}|\[[^\]]*\]|{_GROUPING}|\boffset\s+\w+', " ", expression)
    names = re.findall(r"(?<![\w:])[a-zA-Z_:][\w:]*(?![\w:]*\s*\()", bare)
    return set(names) - _WORDS


def labels(expression: str) -> set[str]:
    """Return the labels that an expression selects, groups or matches by."""
    grouped = re.findall(r"\b(?:on|ignoring|by|without|group_left|group_right)\s*\(([^)]*)\)", expression)
    selected = re.findall(r"\{([^}]*)\}", expression)
    return {
        name.strip()
        for text in [*grouped, *(re.sub(r'"[^"]*"', "", part) for part in selected)]
        for name in re.split(r",|=~|!~|!=|=", text)
        if name.strip()
    }
