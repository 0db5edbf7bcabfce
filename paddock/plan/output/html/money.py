"""What the fleet costs, each amount with its source; what is not known is said to be unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from paddock.plan.output.html.markup import Child, Html, join, rect, section, svg, table, tag
from paddock.plan.output.html.reading import Document, count, number, part, rows, text, texts, whole, words

_NOTE = "US dollars, before tax and discounts. \u2265 is the least that will be paid, where a part has no known price."
_UNITS = {
    "USD": "", "USD/hour": " an hour", "USD/month": " a month", "USD/job": " a job", "USD/minute": " a minute",
    "USD/GB": " a GB", "USD/GB-month": " a GB and month",
}  # fmt: skip


def amount(money: Document, *, unit: bool = False) -> str:
    """`$1,234`; `\u2265 $1,234` where a part of it has no price, `unknown` where none has."""
    value = number(money, "value")
    if value is None:
        return "unknown"
    digits = 0 if abs(value) >= 1000 else 2 if abs(value) >= 0.1 or value == 0 else 4
    least = "\u2265 " if texts(money, "missing") else ""
    return f"{least}${value:,.{digits}f}{_UNITS.get(text(money, 'unit'), '') if unit else ''}"


def spread(of: Document) -> str:
    """The low and the high end of a range; empty where it has none."""
    low, high = (amount(part(of, key)).removeprefix("\u2265 ") for key in ("low", "high"))
    return "" if low == high else f"{low}\u2013{high.removeprefix('$')}"


def monthly(document: Document) -> Document:
    """Low, expected and high of a month; empty in a plan without cost."""
    return part(part(document, "cost"), "month")


def cost(document: Document) -> Html | None:
    """A month in one figure; then what is fixed, the pools, the runners; then what all that rests on."""
    told = part(document, "cost")
    if not told:
        return None
    notes = _Footnotes(part(told, "sources"))
    parts = [_month(told, notes), _fixed(told, notes), _pools(told, notes), _runners(told, notes), _open(told)]
    return section("cost", "Cost", *parts, notes.listed(), note=_NOTE)


def _month(told: Document, notes: _Footnotes) -> Html | None:
    month = part(told, "month")
    if not month:
        return None
    low, expected, high = (part(month, key) for key in ("low", "expected", "high"))
    figure = tag("p", tag("b", amount(expected)), " a month expected", class_="figure")
    return tag("div", figure, _range(low, expected, high), notes.assumed(told), class_="month")


def _range(low: Document, expected: Document, high: Document) -> Html | None:
    """Where the expected month lies between the least and the most; by the square root, or the least would not show."""
    values = [number(each, "value") for each in (low, expected, high)]
    if any(value is None or value < 0 for value in values) or not values[2]:
        return tag("p", f"least {amount(low)}, most {amount(high)}", class_="note")
    roots = [(value or 0.0) ** 0.5 for value in values]
    start, at = (280 * root / roots[2] for root in roots[:2])
    drawing = svg(
        f"from {amount(low)} to {amount(high)}", 288, 16,
        rect(4, 6, 280, 4, "track"), rect(4 + start, 6, 280 - start, 4, "use"),
        tag("circle", cx=4 + at, cy=8, r=5, class_="at"),
    )  # fmt: skip
    ends = tag("p", tag("span", f"least {amount(low)}"), tag("span", f"most {amount(high)}"), class_="ends")
    return tag("div", drawing, ends, class_="range")


def _fixed(told: Document, notes: _Footnotes) -> Html | None:
    fixed = part(told, "fixed")
    lines = rows(fixed, "items")
    if not lines:
        return None
    body: list[list[Child]] = [
        [
            text(line, "item"),
            f"{words(line.get('quantity'))} {text(line, 'what')}".strip(),
            notes.money(part(line, "price"), unit=True),
            notes.money(part(line, "monthly")),
            text(line, "note"),
        ]
        for line in lines
    ]
    body.append(["All that is fixed", "", "", tag("b", amount(part(fixed, "total"))), ""])
    columns = [("Item", ""), ("Quantity", ""), ("Price", ""), ("A month", "n"), ("", "wide")]
    return table("Fixed, however little runs", columns, body)


def _pools(told: Document, notes: _Footnotes) -> Html | None:
    found = rows(told, "pools")
    if not found:
        return None
    body: list[list[Child]] = []
    for pool in found:
        offers: dict[str, list[str]] = {}
        for offer in rows(pool, "offers"):
            price = part(offer, "node_hour")
            notes.cite(price)
            offers.setdefault(text(offer, "instance"), []).append(f"{text(offer, 'capacity')} {amount(price)}")
        lines = [tag("span", f"{instance}: {', '.join(told)}", class_="pair") for instance, told in offers.items()]
        refs = notes.marks([part(offer, "node_hour") for offer in rows(pool, "offers")])
        ratio = number(pool, "spot_ratio")
        body.append(
            [
                [text(pool, "pool"), refs],
                [lines, tag("span", text(pool, "note"), class_="note")],
                _ranged(part(pool, "at_min")),
                _ranged(part(pool, "at_max")),
                "unknown" if ratio is None else f"{ratio:.0%}",
            ]
        )
    columns = [
        ("Pool", ""), ("A node an hour, with its volume", ""), ("Pool at its least, an hour", "n"),
        ("Pool at its most, an hour", "n"), ("Spot, of on-demand", "n"),
    ]  # fmt: skip
    return table("Pools", columns, body)


def _runners(told: Document, notes: _Footnotes) -> Html | None:
    found = rows(told, "runners")
    if not found:
        return None
    minutes = {words(part(each, "job").get("minutes")) for each in found}
    length = f" of {minutes.pop()} minutes" if len(minutes) == 1 else ""
    body: list[list[Child]] = []
    for each in found:
        job, hosted = part(each, "job"), part(each, "github_hosted")
        times = number(hosted, "times_ours")
        body.append(
            [
                text(each, "runner"),
                _ranged(part(each, "per_hour")),
                _ranged(part(job, "warm")),
                _ranged(part(job, "cold")),
                _hosted(hosted, notes),
                "" if times is None else f"{times:.1f}\u00d7",
            ]
        )
    columns = [
        ("Runner", ""), ("A runner an hour", "n"), ("A job, warm", "n"), ("A job, cold", "n"),
        ("On GitHub-hosted", "n"), ("Times ours", "n"),
    ]  # fmt: skip
    return table(f"Runners, and a job{length}", columns, body)


def _hosted(hosted: Document, notes: _Footnotes) -> Html:
    comparable = hosted.get("comparable")
    why = comparable if isinstance(comparable, str) else "another machine" if comparable is False else ""
    return join(notes.money(part(hosted, "job")), tag("span", why, class_="pair note") if why else None)


def _open(told: Document) -> Html | None:
    """What the amounts leave out, counted aloud."""
    resources = part(told, "resources")
    if not resources:
        return None
    unpriced = [each for each in rows(resources, "types") if text(each, "kind") == "unpriced"]
    counts = (
        f"{whole(resources, 'priced')} priced, {whole(resources, 'free')} free, {whole(resources, 'unpriced')} unpriced"
    )
    body = [
        (text(each, "type"), whole(each, "count"), text(each, "why"), ", ".join(texts(each, "names")))
        for each in unpriced
    ]
    columns = [("Type", ""), ("Count", "n"), ("Paid for", ""), ("Names", "wide")]
    listed = table("Not in the amounts", columns, body, hide_caption=True) if body else None
    return tag("details", tag("summary", f"Resources: {counts}"), listed, class_="more")


def _ranged(of: Document) -> Html:
    told, ends = amount(part(of, "expected")), spread(of)
    return join(told, tag("span", ends, class_="pair note") if ends else None)


class _Footnotes:
    """Sources of prices, each with one number."""

    def __init__(self, sources: Document) -> None:
        self.sources = sources
        self.numbers: dict[tuple[str, str], int] = {}
        self.missing: dict[str, None] = {}

    def money(self, value: Document, *, unit: bool = False) -> Html:
        self.cite(value)
        refs = self.marks([value])
        told = amount(value, unit=unit)
        return tag("span", told, refs, class_="note" if told == "unknown" else None)

    def cite(self, value: Document) -> None:
        self.missing |= dict.fromkeys(texts(value, "missing"))
        for source in texts(value, "sources"):
            self.numbers.setdefault((source, text(value, "as_of", "undated")), len(self.numbers) + 1)

    def marks(self, values: Iterable[Document]) -> Html | None:
        """Numbers of the sources, small and raised."""
        cited = {
            self.numbers.get((source, text(value, "as_of", "undated")), 0)
            for value in values
            for source in texts(value, "sources")
        }
        return tag("sup", ", ".join(map(str, sorted(cited)))) if cited else None

    def assumed(self, told: Document) -> Html | None:
        lines = [tag("li", line) for line in texts(told, "assumptions")]
        return (
            tag("details", tag("summary", "What this assumes"), tag("ul", lines), class_="assumed") if lines else None
        )

    def listed(self) -> Html | None:
        items = [tag("li", self._source(source, as_of)) for source, as_of in self.numbers]
        names = list(self.missing)
        missing = (
            f"No price is known for {', '.join(names[:20])}{f' and {len(names) - 20} more' if len(names) > 20 else ''}."
        )
        return join(
            tag("p", missing, class_="note") if names else None,
            tag("ol", items, class_="footnotes") if items else None,
        )

    def _source(self, key: str, as_of: str) -> Html:
        source: Any = self.sources.get(key)
        known = source if isinstance(source, Mapping) else {}
        name, url = text(known, "name", key), text(known, "url")
        linked = (
            tag("a", name, href=url, rel="noopener noreferrer") if url.startswith(("https://", "http://")) else name
        )
        return join(linked, f", as of {as_of}")


def counted(told: Document) -> str:
    """How many resources have no price, in words."""
    return count(whole(part(told, "resources"), "unpriced"), "unpriced resource")
