"""Cost of each runner on other instance types, by the hour."""

from __future__ import annotations

from paddock.plan.document.model import PlanDocument, RightSize, SizeOption
from paddock.plan.output.format import gibibytes, money
from paddock.plan.output.html.markup import Child, Html, join, section, table, tag

_NOTE = "A runner an hour on other instance types, bought as its pool is; its CPU and memory follow the type."


def sizes(document: PlanDocument) -> Html | None:
    if not document.right_size:
        return None
    headings = ("Runner", "Now", "Cheapest, same GPU", "Cheapest, any GPU", "One size down", "One size up")
    columns = [(heading, "") for heading in headings]
    body = [_row(size) for size in document.right_size]
    return section("sizes", "Right size", table("Runners on other types", columns, body, hide_caption=True), note=_NOTE)


def _row(size: RightSize) -> list[Child]:
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
