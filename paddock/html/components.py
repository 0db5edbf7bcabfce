"""A page that stands alone, and its parts: header, sections, tables, bars, colours. It loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from paddock.html.markup import Child, Html, rect, svg, tag

MARKS = {"error": "\u2717", "warning": "!", "info": "i", "ready": "\u2713"}
"""Sign of each state: colour alone says nothing to some readers and on paper."""


def page(title: str, *body: Child, style: str = "", script: str = "") -> str:
    """Return a page with a style sheet behind the common one, and a script that alone may run."""
    sheet = stylesheet() + style
    allowed = f"img-src data:; style-src '{_digest(sheet)}'; " + (f"script-src '{_digest(script)}'; " if script else "")
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag(
            "meta",
            http_equiv="Content-Security-Policy",
            content=f"default-src 'none'; {allowed}base-uri 'none'; form-action 'none'",
        ),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
        tag("title", title),
        tag("style", Html(sheet)),
    )
    scripted = tag("script", Html(script)) if script else None
    return f"<!doctype html>\n{tag('html', head, tag('body', *body, scripted), lang='en')}\n"


@cache
def stylesheet() -> str:
    """Return the style that all pages share; drawings take their colours and shapes from it."""
    return (Path(__file__).parent / "style.css").read_text(encoding="utf-8")


def header(
    kicker: str, title: str, where: Iterable[str], state: str, verdict: str, figures: Iterable[tuple[str, Child]]
) -> Html:
    """Return the top of a page: what it is about, whether all is well, and the numbers that matter most.

    `state` is one of MARKS; a figure is an amount and what it is.
    """
    return tag(
        "header",
        tag("p", kicker, class_="kicker"),
        tag("h1", title),
        tag("p", [tag("span", part) for part in where], class_="where"),
        tag("p", mark(state), " ", verdict, class_=f"verdict {state}"),
        tag("dl", [tag("div", tag("dt", name), tag("dd", amount)) for amount, name in figures], class_="figures"),
        class_="top",
    )


def section(id_: str, title: str, *children: Child, note: str = "") -> Html:
    return tag(
        "section",
        tag("h2", title, id=id_),
        tag("p", note, class_="note") if note else None,
        *children,
        aria_labelledby=id_,
    )


def folded(summary: Child, *children: Child, class_: str = "more") -> Html:
    """Return content that is shown on demand."""
    return tag("details", tag("summary", summary), *children, class_=class_)


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


def bar(share: float, label: str, *, width: float = 72, class_: str = "use") -> Html:
    """Return a bar that is filled to a share of 0 to 1; less and more are drawn as these."""
    filled = width * min(1.0, max(share, 0.0))
    return svg(label, width, 6, rect(0, 0, width, 6, "track", 3), rect(0, 0, filled, 6, class_, 3))


def swatch(colour: int) -> Html:
    """Return a sample of a colour `.c0` and up of the style sheet."""
    return tag("i", class_=f"swatch c{colour}", aria_hidden="true")


def legend(entries: Iterable[Child]) -> Html:
    return tag("ul", [tag("li", entry) for entry in entries], class_="key")


def mark(state: str) -> Html:
    return tag("span", MARKS[state], class_=f"sign {state}", aria_hidden="true")


def _digest(source: str) -> str:
    """Return the hash by which a content security policy names the one script, or style sheet, that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
