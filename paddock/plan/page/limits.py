"""What the fleet at its largest needs of the account, beside what a new account is given."""

from __future__ import annotations

from collections.abc import Mapping

from paddock.plan.page.markup import Html, join, rect, section, svg, table, tag
from paddock.plan.page.reading import Document, number, part, rows, text, words

_NAMES, _NEEDED, _DEFAULT = ("name", "quota", "subject", "what"), ("needed", "need"), ("default", "limit", "has")
_SHOWN = {*_NAMES, *_NEEDED, *_DEFAULT, "code"}


def listed(document: Document) -> list[Document]:
    found = rows(document, "quota")
    if found:
        return found
    of = part(document, "quota")
    return [row for key in of for row in rows(of, key)]


def quota(document: Document) -> Html | None:
    found = listed(document)
    if not found:
        return None
    more = [key for key in dict.fromkeys(str(key) for each in found for key in each) if key not in _SHOWN]
    more = [key for key in more if any(isinstance(each.get(key), str | int | float) for each in found)]
    body = [
        (
            name(each),
            text(each, "code"),
            _told(needed(each)),
            _told(default(each)),
            _share(needed(each), default(each)),
            *(_said(each.get(key)) for key in more),
        )
        for each in found
    ]
    columns = [("Quota", "wide"), ("Code", ""), ("Needed at most", "n"), ("Default", "n"), ("Share", "bar")]
    headings = [(key.replace("_", " ").capitalize(), "") for key in more]
    note = "What the fleet needs with every pool at its maximum. An account may have been given more than the default."
    return section(
        "quota", "Quotas", table("Quotas of the account", [*columns, *headings], body, hide_caption=True), note=note
    )


def name(each: Document) -> str:
    return next((text(each, key) for key in _NAMES if text(each, key)), text(each, "code"))


def needed(each: Document) -> float | None:
    return next((number(each, key) for key in _NEEDED if key in each), None)


def default(each: Document) -> float | None:
    return next((number(each, key) for key in _DEFAULT if key in each), None)


def _told(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _said(value: object) -> str:
    return "" if isinstance(value, Mapping | list) else words(value)


def _share(need: float | None, has: float | None) -> Html:
    if need is None or has is None:
        return tag("span", "unknown", class_="note")
    share = need / has if has > 0 else (0.0 if need == 0 else 2.0)
    over = share > 1
    bar = svg(
        f"{share:.0%} of the default" if has > 0 else "the default is none", 120, 6,
        rect(0, 0, 120, 6, "track", 3), rect(0, 0, 120 * min(1.0, share), 6, "over" if over else "use", 3),
    )  # fmt: skip
    words_ = "\u2717 ask for more" if over else "within the default"
    return join(bar, tag("span", words_, class_="bad" if over else None))
