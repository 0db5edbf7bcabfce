"""HTML and SVG from small functions. Text is escaped unless it is markup already, so nothing can be forgotten."""

from __future__ import annotations

import html
from collections.abc import Iterable

from paddock.plan.output.format import clean

_VOID = frozenset({"meta", "link", "br", "hr", "input", "wbr", "col"})


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Child = Html | str | int | None | Iterable["Child"]


def escape(text: str) -> Html:
    return text if isinstance(text, Html) else Html(html.escape(clean(text)))


def join(*children: Child) -> Html:
    """Children in a row; None is nothing, a number its digits, a list its items."""
    parts: list[str] = []
    for child in children:
        match child:
            case None:
                pass
            case str():
                parts.append(escape(child))
            case int():
                parts.append(str(child))
            case _:
                parts.append(join(*child))
    return Html("".join(parts))


def tag(name: str, /, *children: Child, **attributes: str | float | bool | None) -> Html:
    """Return an element. `class_` is `class`, `stroke_width` is `stroke-width`; False and None omit an attribute."""
    markup = "".join(
        f" {key.rstrip('_').replace('_', '-')}" + ("" if value is True else f'="{_attribute(value)}"')
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{markup}>")
    return Html(f"<{name}{markup}>{join(*children)}</{name}>")


def svg(label: str, width: float, height: float, *shapes: Child, class_: str = "") -> Html:
    """Return a drawing with a description for screen readers."""
    return tag(
        "svg",
        tag("title", label),
        *shapes,
        role="img",
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        width=width,
        height=height,
        class_=class_ or None,
    )


def rect(x: float, y: float, width: float, height: float, class_: str, rx: float = 2) -> Html:
    return tag("rect", x=x, y=y, width=max(width, 0), height=height, rx=rx, class_=class_)


def table(
    caption: str, columns: Iterable[tuple[str, str]], rows: Iterable[Iterable[Child]], *, hide_caption: bool = False
) -> Html:
    """Return a table that scrolls in its own box. A column is a heading and a class; the first cell heads the row."""
    columns = list(columns)
    body = []
    for row in rows:
        cells = list(zip(columns, row, strict=True))
        body.append(
            tag(
                "tr",
                [
                    tag("td" if index else "th", cell, scope=None if index else "row", class_=kind or None)
                    for index, ((_, kind), cell) in enumerate(cells)
                ],
            )
        )
    heads = [tag("th", heading, scope="col", class_=kind or None) for heading, kind in columns]
    return tag(
        "div",
        tag(
            "table",
            tag("caption", caption, class_="unseen" if hide_caption else None),
            tag("thead", tag("tr", heads)),
            tag("tbody", body),
        ),
        class_="scroll",
        role="region",
        aria_label=caption,
        tabindex="0",
    )


def section(id_: str, title: str, *children: Child, note: str = "") -> Html:
    return tag(
        "section",
        tag("h2", title, id=id_),
        tag("p", note, class_="note") if note else None,
        *children,
        aria_labelledby=id_,
    )


def code(text: str) -> Html:
    return tag("code", text)


def _attribute(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
