"""A plan as one self-contained HTML page: to share, to print, to read on a phone. It loads nothing from anywhere."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from pathlib import Path

from paddock.plan.output.html import checks, limits, money, sections, sizes
from paddock.plan.output.html.markup import Child, Html, section, tag
from paddock.plan.output.html.picture import PALETTE, picture, shapes
from paddock.plan.output.html.reading import Document, runners, text, verdict
from paddock.plan.output.html.tree import tree


def render(document: Document) -> str:
    """The page of a plan's document, fresh or saved. Parts that the document lacks are left out."""
    of = runners(document, PALETTE)
    parts: list[Html | None] = [
        section("fleet", "The fleet", picture(document, of), note=sections.PICTURE_NOTE),
        sections.legend(of),
        sections.findings(document),
        sections.fit(document, of),
        checks.compatibility(document),
        money.cost(document),
        sizes.sizes(document),
        limits.quota(document),
        checks.rules(document),
        sections.lookups(document),
    ]
    used = sum(len(each) for each in parts if each)
    parts.insert(-1, tree(document, used))
    shown = [each for each in parts if each is not None]
    stack = text(document, "stack", "unnamed")
    body = tag(
        "body",
        tag("a", "Skip to the fleet", href="#fleet", class_="skip"),
        shapes(document),
        sections.header(document),
        sections.contents(shown),
        tag("main", shown),
        sections.footer(document),
        tag("script", _asset("filter.js")),
    )
    page = tag("html", _head(f"{stack}: {verdict(document).words}"), body, lang="en")
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
    """How a content security policy names the one script, or style sheet, that it allows."""
    return "sha256-" + base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()
