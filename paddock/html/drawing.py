"""Colours of the style sheet for drawings that stand alone, where no variable of a page reaches."""

from __future__ import annotations

import re

from paddock.html.components import stylesheet
from paddock.html.markup import Child, Html, join, rect, tag

FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif'
MONOSPACE = 'ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", "DejaVu Sans Mono", monospace'
_SHAPES = {".gpu", ".gpu.none", ".stranded", ".stripe", ".track", ".on-job", ".small"}
_RULE = re.compile(r"([^{}]+)\{([^{}]*)\}")


def drawing(title: str, rules: str, width: int, height: float, *shapes: Child) -> str:
    """Return an SVG file of that many pixels: shapes on a page with round corners."""
    return join(
        tag(
            "svg",
            tag("title", title),
            tag("style", Html(_style(f".page {{ fill: var(--page); }}\n{rules.strip()}"))),
            rect(0.5, 0.5, width - 1, height - 1, "page", 12),
            *shapes,
            xmlns="http://www.w3.org/2000/svg",
            role="img",
            viewBox=f"0 0 {width} {height}",
            width=width,
            height=height,
        ),
        "\n",
    )


def _style(rules: str) -> str:
    """Return the rules and those of a node's shapes, with colours for both themes in place of variables."""
    sheet = stylesheet()
    light, dark = (
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", block))
        for block in re.findall(r":root \{(.*?)\}", sheet, re.DOTALL)[:2]
    )
    text = f"text {{ font-family: {FONT}; font-variant-numeric: tabular-nums; fill: var(--ink); }}"
    shapes = [
        f"{selector.strip()} {{{body}}}" for selector, body in _RULE.findall(sheet) if selector.strip() in _SHAPES
    ]
    jobs = [f".c{number} {{ fill: {colour}; }}" for number, colour in re.findall(r"\.c(\d+) \{ --c: (#\w+)", sheet)]
    base = "\n".join([text, *shapes, *jobs, rules])
    in_the_dark = _coloured(_with_variables(base), dark)
    return f"{_coloured(base, light)}\n@media (prefers-color-scheme: dark) {{\n{in_the_dark}\n}}"


def _coloured(rules: str, theme: dict[str, str]) -> str:
    return re.sub(r"var\(--([\w-]+)\)", lambda match: theme[match[1]], rules)


def _with_variables(rules: str) -> str:
    """Return the declarations that differ between the themes."""
    kept = []
    for selector, body in _RULE.findall(rules):
        declarations = [part.strip() for part in body.split(";") if "var(" in part]
        if declarations:
            kept.append(f"{selector.strip()} {{ {'; '.join(declarations)}; }}")
    return "\n".join(kept)
