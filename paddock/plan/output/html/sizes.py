"""What each runner would cost on other instance types, by the hour."""

from __future__ import annotations

from paddock.plan.output.html.markup import Child, Html, join, section, table, tag
from paddock.plan.output.html.money import amount
from paddock.plan.output.html.reading import Document, gibibytes, number, part, rows, text, whole

_OPTIONS = {
    "current": "Now", "cheapest": "Cheapest, same GPU", "cheapest_any": "Cheapest, any GPU", "smaller": "One size down",
    "larger": "One size up",
}  # fmt: skip


def sizes(document: Document) -> Html | None:
    found = rows(document, "right_size")
    if not found:
        return None
    body: list[list[Child]] = []
    for each in found:
        now = part(each, "current")
        body.append([text(each, "runner"), *(_option(part(each, key), now, own=key == "current") for key in _OPTIONS)])
    columns = [("Runner", ""), *((heading, "") for heading in _OPTIONS.values())]
    note = "A runner an hour on other instance types, bought as its pool is; its CPU and memory follow the type."
    return section("sizes", "Right size", table("Runners on other types", columns, body, hide_caption=True), note=note)


def _option(of: Document, now: Document, *, own: bool) -> Html:
    if not of:
        return tag("span", "none", class_="note")
    if not own and text(of, "instance") == text(now, "instance"):
        return tag("span", "as now", class_="note")
    if not whole(of, "per_node"):
        return join(text(of, "instance"), tag("span", "does not fit", class_="pair bad"))
    price, current = part(of, "per_runner_hour"), number(part(now, "per_runner_hour"), "value")
    value = number(price, "value")
    change = f", {value / current - 1:+.0%}" if not own and value is not None and current else ""
    cpu = (number(of, "cpu_m") or 0) / 1000
    return join(
        text(of, "instance"),
        tag("span", f"{amount(price)}{change}", class_="pair"),
        tag("span", _size(cpu, whole(of, "memory_mib")), class_="pair note"),
    )


def _size(cpu: float, memory: int) -> str:
    return f"{cpu:g} CPU, {gibibytes(f'{memory}Mi')}"
