"""Quotas that the fleet needs at its largest, beside the defaults of a new account."""

from __future__ import annotations

from paddock.plan.document.model import PlanDocument, Quota
from paddock.plan.output.format import quantity
from paddock.plan.output.html.markup import Child, Html, code, join, rect, section, svg, table, tag

_NOTE = "What the fleet needs with every pool at its maximum. What your account has been given, only AWS knows."


def quota(document: PlanDocument) -> Html | None:
    if not document.quota:
        return None
    body = [_row(quota) for quota in document.quota]
    columns = [
        ("Quota", "wide"),
        ("Needed at most", "n"),
        ("A new account", "n"),
        ("Share", "bar"),
        ("Of which", "wide"),
    ]
    requests = [tag("li", code(quota.request)) for quota in document.quota if quota.request]
    commands = tag(
        "details",
        tag("summary", f"Commands that ask AWS for more ({len(requests)})"),
        tag("ul", requests),
        class_="more",
    )
    rows = table("Quotas of the account", columns, body, hide_caption=True)
    return section("quota", "Quotas", rows, commands if requests else None, note=_NOTE)


def _row(quota: Quota) -> list[Child]:
    calmer = quota.need_without_fallback
    without = f"{calmer:,.0f} without fallback" if calmer < quota.need else ""
    return [
        [quota.name, tag("span", quota.code or "", class_="pair note")],
        [quantity(quota.need, quota.unit), tag("span", without, class_="pair note") if without else None],
        quantity(quota.default),
        _share(quota.need, quota.default),
        [_parts(quota), tag("span", quota.note, class_="pair note") if quota.note else None],
    ]


def _parts(quota: Quota) -> Html:
    parts = [f"{part.who} {quantity(part.amount)}" for part in quota.parts]
    more = f" and {len(parts) - 8} more" if len(parts) > 8 else ""
    return join(", ".join(parts[:8]) + more)


def _share(need: float, default: float | None) -> Html:
    if default is None:
        return tag("span", "unknown", class_="note")
    share = need / default if default > 0 else (0.0 if need <= 0 else 2.0)
    over = share > 1
    bar = svg(
        f"{share:.0%} of the default" if default > 0 else "the default is none", 90, 6,
        rect(0, 0, 90, 6, "track", 3), rect(0, 0, 90 * min(1.0, max(share, 0.0)), 6, "over" if over else "use", 3),
    )  # fmt: skip
    verdict = "\u2717 ask for more" if over else "within it"
    return join(bar, tag("span", verdict, class_="warn" if over else None))
