"""Cost of the fleet, with sources, and of its runners on other types; unknown prices are shown as unknown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from paddock.html.components import folded, section, table
from paddock.html.markup import Child, Html, join, rect, svg, tag
from paddock.plan.document.model import Cost, HostedCost, Money, PlanDocument, PriceSource, Range, RightSize, SizeOption
from paddock.plan.output.format import gibibytes, money, words
from paddock.plan.output.view import unknown_month

_NOTE = "US dollars, before tax and discounts. \u2265 is the least that will be paid, where a part has no known price."
_SIZES = "A runner an hour on other instance types, bought as its pool is; its CPU and memory follow the type."


def cost(document: PlanDocument) -> Html | None:
    """Return a month in one figure; then what is fixed, the pools, the runners; then what all that rests on."""
    cost = document.cost
    if not cost:
        return None
    notes = _Footnotes(cost.sources)
    parts = [_month(cost, notes), _fixed(cost, notes), _pools(cost, notes), _runners(cost, notes), _unpriced(cost)]
    return section("cost", "Cost", *parts, notes.list(), note=_NOTE)


def _month(cost: Cost, notes: _Footnotes) -> Html:
    month = cost.month
    if unknown := unknown_month(cost):
        return tag("div", tag("p", unknown, class_="figure"), notes.assumptions(cost), class_="month")
    figure = tag("p", tag("b", money(month.expected)), " a month expected", class_="figure")
    return tag("div", figure, _range(month.low, month.expected, month.high), notes.assumptions(cost), class_="month")


def _range(low: Money, expected: Money, high: Money) -> Html:
    """Draw where the expected month lies between the least and the most, on a square-root scale."""
    values = [amount.value for amount in (low, expected, high)]
    if any(value is None or value < 0 for value in values) or not values[2]:
        return tag("p", f"least {money(low)}, most {money(high)}", class_="note")
    roots = [(value or 0.0) ** 0.5 for value in values]
    start, at = (280 * root / roots[2] for root in roots[:2])
    drawing = svg(
        f"from {money(low)} to {money(high)}", 288, 16,
        rect(4, 6, 280, 4, "track"), rect(4 + start, 6, 280 - start, 4, "use"),
        tag("circle", cx=4 + at, cy=8, r=5, class_="at"),
    )  # fmt: skip
    ends = tag("p", tag("span", f"least {money(low)}"), tag("span", f"most {money(high)}"), class_="ends")
    return tag("div", drawing, ends, class_="range")


def _fixed(cost: Cost, notes: _Footnotes) -> Html | None:
    if not cost.fixed.items:
        return None
    body: list[list[Child]] = [
        [
            line.item,
            f"{words(line.quantity)} {line.what}".strip(),
            notes.money(line.price, unit=True),
            notes.money(line.monthly),
            line.note,
        ]
        for line in cost.fixed.items
    ]
    body.append(["All that is fixed", "", "", tag("b", money(cost.fixed.total)), ""])
    columns = [("Item", ""), ("Quantity", ""), ("Price", ""), ("A month", "n"), ("", "wide")]
    return table("Fixed, however little runs", columns, body)


def _pools(cost: Cost, notes: _Footnotes) -> Html | None:
    if not cost.pools:
        return None
    body: list[list[Child]] = []
    for pool in cost.pools:
        prices_by_instance: dict[str, list[str]] = {}
        for offer in pool.offers:
            notes.cite(offer.node_hour)
            prices_by_instance.setdefault(offer.instance, []).append(f"{offer.capacity} {money(offer.node_hour)}")
        lines = [
            tag("span", f"{instance}: {', '.join(prices)}", class_="pair")
            for instance, prices in prices_by_instance.items()
        ]
        body.append(
            [
                [pool.pool, notes.marks(offer.node_hour for offer in pool.offers)],
                [lines, tag("span", pool.note, class_="note")],
                _with_ends(pool.at_min),
                _with_ends(pool.at_max),
                "unknown" if pool.spot_ratio is None else f"{pool.spot_ratio:.0%}",
            ]
        )
    columns = [
        ("Pool", ""), ("A node an hour, with its volume", ""), ("Pool at its least, an hour", "n"),
        ("Pool at its most, an hour", "n"), ("Spot, of on-demand", "n"),
    ]  # fmt: skip
    return table("Pools", columns, body)


def _runners(cost: Cost, notes: _Footnotes) -> Html | None:
    if not cost.runners:
        return None
    minutes = {words(runner.job.minutes) for runner in cost.runners}
    length = f" of {minutes.pop()} minutes" if len(minutes) == 1 else ""
    body: list[list[Child]] = [
        [
            runner.runner,
            _with_ends(runner.per_hour),
            _with_ends(runner.job.warm),
            _with_ends(runner.job.cold),
            _hosted(runner.github_hosted, notes),
            "" if runner.github_hosted.times_ours is None else f"{runner.github_hosted.times_ours:.1f}\u00d7",
        ]
        for runner in cost.runners
    ]
    columns = [
        ("Runner", ""), ("A runner an hour", "n"), ("A job, warm", "n"), ("A job, cold", "n"),
        ("On GitHub-hosted", "n"), ("Times ours", "n"),
    ]  # fmt: skip
    return table(f"Runners, and a job{length}", columns, body)


def _hosted(hosted: HostedCost, notes: _Footnotes) -> Html:
    reason = None if hosted.comparable else tag("span", "another machine", class_="pair note")
    return join(notes.money(hosted.job), reason)


def _unpriced(cost: Cost) -> Html:
    """Return the resources that the amounts leave out."""
    resources = cost.resources
    counts = f"{resources.priced} priced, {resources.free} free, {resources.unpriced} unpriced"
    body = [
        (entry.type, entry.count, entry.why, ", ".join(entry.names))
        for entry in resources.types
        if entry.kind == "unpriced"
    ]
    columns = [("Type", ""), ("Count", "n"), ("Paid for", ""), ("Names", "wide")]
    rows = table("Not in the amounts", columns, body, hide_caption=True) if body else None
    return folded(f"Resources: {counts}", rows)


def _with_ends(amounts: Range) -> Html:
    """Return the expected amount, and the ends of its range where they differ."""
    low, high = (money(amount).removeprefix("\u2265 ") for amount in (amounts.low, amounts.high))
    ends = "" if low == high else f"{low}\u2013{high.removeprefix('$')}"
    return join(money(amounts.expected), tag("span", ends, class_="pair note") if ends else None)


class _Footnotes:
    """Sources of prices, each with one number."""

    def __init__(self, sources: Mapping[str, PriceSource]) -> None:
        self.sources = sources
        self.numbers: dict[tuple[str, str], int] = {}
        self.missing: dict[str, None] = {}

    def money(self, amount: Money, *, unit: bool = False) -> Html:
        self.cite(amount)
        text = money(amount, unit=unit)
        return tag("span", text, self.marks([amount]), class_="note" if text == "unknown" else None)

    def cite(self, amount: Money) -> None:
        self.missing |= dict.fromkeys(amount.missing)
        for source in amount.sources:
            self.numbers.setdefault((source, amount.as_of or "undated"), len(self.numbers) + 1)

    def marks(self, amounts: Iterable[Money]) -> Html | None:
        """Return the numbers of the sources, small and raised."""
        cited = {
            self.numbers.get((source, amount.as_of or "undated"), 0) for amount in amounts for source in amount.sources
        }
        return tag("sup", ", ".join(map(str, sorted(cited)))) if cited else None

    def assumptions(self, cost: Cost) -> Html | None:
        lines = [tag("li", line) for line in cost.assumptions]
        if not lines:
            return None
        return folded("What this assumes", tag("ul", lines), class_="assumed")

    def list(self) -> Html:
        items = [tag("li", self._source(source, as_of)) for source, as_of in self.numbers]
        names = [*self.missing]
        more = f" and {len(names) - 20} more" if len(names) > 20 else ""
        return join(
            tag("p", f"No price is known for {', '.join(names[:20])}{more}.", class_="note") if names else None,
            tag("ol", items, class_="footnotes") if items else None,
        )

    def _source(self, key: str, as_of: str) -> Html:
        source = self.sources.get(key, PriceSource(name=key))
        linked = (
            tag("a", source.name, href=source.url, rel="noopener noreferrer")
            if source.url.startswith(("https://", "http://"))
            else source.name
        )
        return join(linked, f", as of {as_of}")


def sizes(document: PlanDocument) -> Html | None:
    if not document.right_size:
        return None
    headings = ("Runner", "Now", "Cheapest, same GPU", "Cheapest, any GPU", "One size down", "One size up")
    columns = [(heading, "") for heading in headings]
    body = [_size_row(size) for size in document.right_size]
    rows = table("Runners on other types", columns, body, hide_caption=True)
    return section("sizes", "Right size", rows, note=_SIZES)


def _size_row(size: RightSize) -> list[Child]:
    alternatives = (size.cheapest, size.cheapest_any, size.smaller, size.larger)
    return [size.runner, _option(size.current, None), *(_option(option, size.current) for option in alternatives)]


def _option(option: SizeOption | None, now: SizeOption | None) -> Html:
    """Return an option; `now` is what it is compared with."""
    if option is None:
        return tag("span", "none", class_="note")
    if now and option.instance == now.instance:
        return tag("span", "as now", class_="note")
    if not option.per_node:
        return join(option.instance, tag("span", "does not fit", class_="pair bad"))
    value, current = option.per_runner_hour.value, now.per_runner_hour.value if now else None
    change = f", {value / current - 1:+.0%}" if value is not None and current else ""
    return join(
        option.instance,
        tag("span", f"{money(option.per_runner_hour)}{change}", class_="pair"),
        tag("span", f"{option.cpu_m / 1000:g} CPU, {gibibytes(option.memory_mib)}", class_="pair note"),
    )
