"""What the fleet costs and what it needs of the account, with sources, and the unknown said as unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paddock.plan.page.markup import Child, Html, join, rect, section, svg, table, tag
from paddock.plan.page.reading import Document, number, part, rows, text, texts, words

_UNITS = {
    "USD": "", "USD/hour": " an hour", "USD/month": " a month", "USD/job": " a job", "USD/minute": " a minute",
    "USD/GB": " a GB", "USD/GB-month": " a GB and month",
}  # fmt: skip


def is_money(value: Any) -> bool:
    return isinstance(value, Mapping) and "value" in value and str(value.get("unit", "")).startswith("USD")


def amount(money: Document) -> str:
    """`$1,234.56 a month`; `at least` where a part has no price, `unknown` where none has."""
    value = number(money, "value")
    if value is None:
        return "unknown"
    digits = 0 if abs(value) >= 1000 else 2 if abs(value) >= 0.1 or value == 0 else 4
    least = "at least " if texts(money, "missing") else ""
    return f"{least}${value:,.{digits}f}{_UNITS.get(text(money, 'unit'), '')}"


def cost(document: Document) -> Html | None:
    told = part(document, "cost")
    if not told:
        return None
    notes = _Footnotes()
    children = list(_parts(told, notes))
    return section("cost", "Cost", *children, notes.listed(told), note="US dollars before tax and discounts.")


def quota(document: Document) -> Html | None:
    value = document.get("quota")
    found = rows(document, "quota") or (rows(value, "quotas") if isinstance(value, Mapping) else [])
    if not found and not value:
        return None
    if not found or not any(number(each, "needed") is not None for each in found):
        return section(
            "quota",
            "Quotas",
            *_parts({"": value} if isinstance(value, list) else part(document, "quota"), _Footnotes()),
        )
    body = []
    for each in found:
        needed, limit = number(each, "needed"), number(each, "default")
        body.append(
            (
                text(each, "name") or text(each, "code"),
                text(each, "code"),
                "unknown" if needed is None else f"{needed:,.0f}",
                "unknown" if limit is None else f"{limit:,.0f}",
                _share(needed, limit),
            )
        )
    columns = [("Quota", "wide"), ("Code", ""), ("Needed at most", "n"), ("Default", "n"), ("", "bar")]
    return section("quota", "Quotas", table("What the account must allow", columns, body, hide_caption=True))


def heading(key: str) -> str:
    """`per_runner_hour` -> `Per runner hour`."""
    told = key.replace("_", " ").strip()
    return told[:1].upper() + told[1:]


class _Footnotes:
    """Sources of prices, each with one number a page."""

    def __init__(self) -> None:
        self.numbers: dict[tuple[str, str], int] = {}
        self.missing: dict[str, None] = {}

    def money(self, value: Document) -> Html:
        for name in texts(value, "missing"):
            self.missing[name] = None
        marks = [
            self.numbers.setdefault((source, text(value, "as_of", "undated")), len(self.numbers) + 1)
            for source in texts(value, "sources")
        ]
        refs = tag("sup", ", ".join(map(str, marks))) if marks else None
        told = amount(value)
        return tag("span", told, refs, class_="note" if told == "unknown" else None)

    def listed(self, told: Document) -> Html | None:
        names = {text(each, "key"): text(each, "name") for each in rows(told, "sources")}
        items = [
            tag("li", f"{names.get(source) or source}, as of {as_of}", value=str(index))
            for (source, as_of), index in self.numbers.items()
        ]
        missing = (
            tag("p", f"No price is known for: {', '.join(self.missing)}.", class_="note") if self.missing else None
        )
        return join(missing, tag("ol", items, class_="footnotes") if items else None)


def _parts(value: Document, notes: _Footnotes) -> Iterator[Child]:
    """Lines, then a table for each list."""
    lines = [(key, item) for key, item in value.items() if not _listed(item) and key != "sources"]
    if lines:
        yield tag(
            "dl",
            [tag("div", tag("dt", heading(key)), tag("dd", _value(item, notes))) for key, item in lines],
            class_="lines",
        )
    for key, item in value.items():
        if key == "sources" or not _listed(item):
            continue
        table_rows = [{"": name, **row} for name, row in item.items()] if isinstance(item, Mapping) else item
        yield _table(heading(key), table_rows, notes)


def _listed(value: Any) -> bool:
    items = list(value.values()) if isinstance(value, Mapping) else value if isinstance(value, list) else []
    return bool(items) and not is_money(value) and all(isinstance(i, Mapping) and not is_money(i) for i in items)


def _table(caption: str, items: list[Document], notes: _Footnotes) -> Html:
    keys = list(dict.fromkeys(str(key) for item in items for key in item))
    numeric = {key for key in keys if any(is_money(i.get(key)) or isinstance(i.get(key), int | float) for i in items)}
    columns = [(heading(key), "n" if key in numeric else "") for key in keys]
    return table(caption, columns, [[_value(item.get(key, ""), notes) for key in keys] for item in items])


def _value(value: Any, notes: _Footnotes, depth: int = 0) -> Html:
    if is_money(value):
        return notes.money(value)
    if isinstance(value, Mapping) and value and depth < 6:
        return join(
            [
                tag("span", f"{heading(str(key))}: ", _value(item, notes, depth + 1), class_="pair")
                for key, item in value.items()
            ]
        )
    if isinstance(value, list) and any(isinstance(item, Mapping) for item in value) and depth < 6:
        return join([tag("span", _value(item, notes, depth + 1), class_="pair") for item in value])
    return join(words(value, "unknown"))


def _share(needed: float | None, limit: float | None) -> Html:
    if needed is None or limit is None:
        return tag("span", "unknown", class_="note")
    share = needed / limit if limit > 0 else (0.0 if needed == 0 else 2.0)
    over = share > 1
    bar = svg(
        f"{share:.0%} of the default", 120, 6,
        rect(0, 0, 120, 6, "track", 3), rect(0, 0, 120 * min(1.0, share), 6, "over" if over else "use", 3),
    )  # fmt: skip
    return join(
        bar,
        tag("span", "\u2717 more than the default" if over else "within the default", class_="bad" if over else None),
    )
