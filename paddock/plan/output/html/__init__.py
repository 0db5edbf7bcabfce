"""A plan as one self-contained HTML page: to share, to print, to read on a phone. It loads nothing from anywhere."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from paddock.html.components import page, section
from paddock.html.markup import Html, tag
from paddock.plan.diff.model import Diff
from paddock.plan.document.model import PlanDocument
from paddock.plan.output.html import capacity, checks, cost, sections
from paddock.plan.output.html.picture import colours, picture, shapes
from paddock.plan.output.html.tree import tree
from paddock.plan.output.view import summary


def render(document: PlanDocument, diff: Diff | None = None) -> str:
    """Return the page of a plan, with the changes since another one first. Parts without content are left out."""
    palette = colours(document)
    parts: list[Html | None] = [
        sections.changes_since(diff) if diff else None,
        section("fleet", "The fleet", picture(document, palette), note=sections.PICTURE_NOTE),
        sections.legend(document, palette),
        sections.findings(document),
        sections.met(document),
        sections.before_up(document),
        capacity.fit(document, palette),
        capacity.served(document),
        checks.compatibility(document),
        cost.cost(document),
        cost.sizes(document),
        capacity.quota(document),
        checks.rules(document),
        sections.lookups(document),
    ]
    used = sum(len(part) for part in parts if part)
    parts.insert(-1, tree(document, used))
    sections_ = [part for part in parts if part is not None]
    return page(
        f"Plan for {document.stack}: {summary(document).words}",
        tag("a", "Skip to the fleet", href="#fleet", class_="skip"),
        shapes(document),
        sections.top(document),
        sections.contents(sections_),
        tag("main", sections_),
        sections.footer(document),
        style=_asset("plan.css"),
        script=_asset("filter.js"),
    )


@cache
def _asset(name: str) -> str:
    return (Path(__file__).parent / name).read_text(encoding="utf-8")
