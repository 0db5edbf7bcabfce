"""A plan as one self-contained HTML page: to share, to print, to read on a phone. It loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from paddock.plan.diff.model import Diff
from paddock.plan.document.model import PlanDocument
from paddock.plan.output.html import changes, checks, cost, quotas, sections, serving
from paddock.plan.output.html.markup import Child, Html, section, tag
from paddock.plan.output.html.picture import colours, picture, shapes
from paddock.plan.output.html.tree import tree
from paddock.plan.output.view import summary


def render(document: PlanDocument, diff: Diff | None = None) -> str:
    """Return the page of a plan, with the changes since another one first. Parts without content are left out."""
    palette = colours(document)
    parts: list[Html | None] = [
        changes.section(diff) if diff else None,
        section("fleet", "The fleet", picture(document, palette), note=sections.PICTURE_NOTE),
        sections.legend(document, palette),
        sections.findings(document),
        sections.before_up(document),
        sections.fit(document, palette),
        serving.served(document),
        checks.compatibility(document),
        cost.cost(document),
        cost.sizes(document),
        quotas.quota(document),
        checks.rules(document),
        sections.lookups(document),
    ]
    used = sum(len(part) for part in parts if part)
    parts.insert(-1, tree(document, used))
    sections_ = [part for part in parts if part is not None]
    body = tag(
        "body",
        tag("a", "Skip to the fleet", href="#fleet", class_="skip"),
        shapes(document),
        sections.header(document),
        sections.contents(sections_),
        tag("main", sections_),
        sections.footer(document),
        tag("script", _asset("filter.js")),
    )
    page = tag("html", _head(f"{document.stack}: {summary(document).words}"), body, lang="en")
    return f"<!doctype html>\n{page}\n"


def _head(title: str) -> Html:
    style, script = _asset("style.css"), _asset("filter.js")
    policy = (
        f"default-src 'none'; img-src data:; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    metas: list[Child] = [
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=policy),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("meta", name="color-scheme", content="light dark"),
        tag("meta", name="referrer", content="no-referrer"),
        tag("link", rel="icon", href="data:,"),
    ]
    return tag("head", metas, tag("title", f"Plan of {title}"), tag("style", style))


@cache
def _asset(name: str) -> Html:
    return Html((Path(__file__).parent / name).read_text(encoding="utf-8"))


def _digest(source: str) -> str:
    """Return the hash by which a content security policy names the one script, or style sheet, that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
