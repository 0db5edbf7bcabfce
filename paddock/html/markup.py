"""HTML and SVG from small functions. Text is escaped unless it is markup already, so nothing can be forgotten."""

from __future__ import annotations

import html
from collections.abc import Iterable

from paddock.errors import UNPRINTABLE

_VOID = frozenset({"meta", "link", "br", "hr", "input", "wbr", "col"})


class Html(str):
    """Text that is markup."""

    __slots__ = ()


Child = Html | str | int | None | Iterable["Child"]


def clean(text: str) -> str:
    """Return the text with a visible mark for each character that no reader could see."""
    return UNPRINTABLE.sub("\ufffd", text)


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


def code(text: str) -> Html:
    return tag("code", text)


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


def _attribute(value: str | float) -> str:
    return escape(value) if isinstance(value, str) else _number(value)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)
