"""A job of the lab, drawn from what `./inv lab.demo --json` wrote: each step at its time, next to what was seen."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from paddock.html.drawing import MONOSPACE, drawing
from paddock.html.markup import Html, rect, tag

WIDTH, _MARGIN, _LINE = 960, 24, 30
_NAMES, _BARS, _NOTES = 130, 200, 420
"""Widths of the columns."""
_RULES = f"""
.name {{ font-size: 15px; font-weight: 650; }}
.step {{ font-size: 13px; font-weight: 600; }}
.note {{ font-size: 12px; fill: var(--soft); }}
.code {{ font-size: 12px; font-family: {MONOSPACE}; fill: var(--ink); }}
.use {{ fill: var(--use); }}
.wait {{ fill: var(--stripe); }}
"""
_CLASSES = {"started": "wait", "completed": "c0", "node gone": "use"}
"""What happened in the time before a step: boot and wait, the job, an empty node."""


def draw(recording: Path) -> str:
    """Return the drawing of one recorded job."""
    story = json.loads(recording.read_text(encoding="utf-8"))
    steps = [step for step in story["steps"] if step["seconds"] is not None]
    height = 96 + _LINE * len(steps)
    title = f"A job in the lab: runs-on [{', '.join(story['labels'])}]"
    return drawing(
        title,
        _RULES,
        WIDTH,
        height,
        tag("text", "$ ./inv lab.demo", x=_MARGIN, y=36, class_="code"),
        tag("text", title, x=_MARGIN, y=62, class_="note"),
        *_rows(steps),
    )


def _rows(steps: list[Mapping[str, Any]]) -> Iterator[Html]:
    last = steps[-1]["seconds"] or 1
    scale = (_NOTES - _BARS - 30) / last
    before, colour = 0.0, "wait"
    for index, step in enumerate(steps):
        y, seconds = 92 + index * _LINE, step["seconds"]
        colour = next((_CLASSES[name] for name in (s["step"] for s in steps[index:]) if name in _CLASSES), colour)
        yield tag("text", step["step"], x=_MARGIN, y=y, class_="step")
        yield tag("text", f"{seconds:.1f} s", x=_BARS - 12, y=y, text_anchor="end", class_="note")
        yield rect(_BARS, y - 8, scale * last, 6, "track", 3)
        yield rect(_BARS + scale * before, y - 8, max(scale * (seconds - before), 3), 6, colour, 3)
        yield tag("text", _short(step["note"]), x=_NOTES, y=y, class_="note")
        before = seconds


def _short(text: str) -> str:
    return text if len(text) <= 76 else f"{text[:75].rstrip()}\u2026"
