"""What the fleet at its largest needs of the account, beside what a new account is given."""

from __future__ import annotations

from paddock.plan.output.html.markup import Child, Html, code, join, rect, section, svg, table, tag
from paddock.plan.output.html.reading import Document, number, rows, text

_NOTE = "What the fleet needs with every pool at its maximum. What your account has been given, only AWS knows."


def quota(document: Document) -> Html | None:
    found = rows(document, "quota")
    if not found:
        return None
    body: list[list[Child]] = [
        [
            [text(each, "name"), tag("span", text(each, "code"), class_="pair note")],
            [
                amount(number(each, "need"), text(each, "unit")),
                tag("span", _calmer(each), class_="pair note") if _calmer(each) else None,
            ],
            amount(number(each, "default")),
            _share(number(each, "need"), number(each, "default")),
            [_parts(each), tag("span", text(each, "note"), class_="pair note") if text(each, "note") else None],
        ]
        for each in found
    ]
    columns = [
        ("Quota", "wide"),
        ("Needed at most", "n"),
        ("A new account", "n"),
        ("Share", "bar"),
        ("Of which", "wide"),
    ]
    requests = [tag("li", code(text(each, "request"))) for each in found if text(each, "request")]
    asked = tag(
        "details",
        tag("summary", f"Commands that ask AWS for more ({len(requests)})"),
        tag("ul", requests),
        class_="more",
    )
    listed = table("Quotas of the account", columns, body, hide_caption=True)
    return section("quota", "Quotas", listed, asked if requests else None, note=_NOTE)


def short(document: Document) -> list[Document]:
    """Quotas that a new account lacks."""
    return [each for each in rows(document, "quota") if (number(each, "shortfall") or 0) > 0]


def amount(value: float | None, unit: str = "") -> str:
    """`1,248 vCPU`, `3 addresses`, `0.4 TiB`; `unknown` for what is not known."""
    if value is None:
        return "unknown"
    if unit.islower() and value != 1:
        unit += "es" if unit.endswith("s") else "s"
    told = f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
    return f"{told} {unit}".rstrip()


def _calmer(each: Document) -> str:
    need, calm = number(each, "need"), number(each, "need_without_fallback")
    return f"{calm:,.0f} without fallback" if need is not None and calm is not None and calm < need else ""


def _parts(each: Document) -> Html:
    parts = rows(each, "parts")
    told = [f"{text(part, 'who')} {amount(number(part, 'amount'))}" for part in parts]
    more = f" and {len(told) - 8} more" if len(told) > 8 else ""
    return join(", ".join(told[:8]) + more)


def _share(need: float | None, has: float | None) -> Html:
    if need is None or has is None:
        return tag("span", "unknown", class_="note")
    share = need / has if has > 0 else (0.0 if need <= 0 else 2.0)
    over = share > 1
    bar = svg(
        f"{share:.0%} of the default" if has > 0 else "the default is none", 90, 6,
        rect(0, 0, 90, 6, "track", 3), rect(0, 0, 90 * min(1.0, max(share, 0.0)), 6, "over" if over else "use", 3),
    )  # fmt: skip
    told = "\u2717 ask for more" if over else "within it"
    return join(bar, tag("span", told, class_="warn" if over else None))
