"""Links of the pages: to pages, headings, pictures and files of the checkout. Nothing is asked of the network.

Zensical checks pages and headings too. This also sees the pages next to README.md, pictures and files, and is fast
enough to run with every test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from urllib.parse import unquote

from markdown_it import MarkdownIt
from markdown_it.token import Token

_ATTRIBUTE = re.compile(r"""<(?:a|img|source)\b[^>]*?\b(?:href|src|srcset)=["']([^"'\s]+)""")
_ANCHOR = re.compile(r"""<\w+\b[^>]*?\b(?:id|name)=["']([^"']+)""")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BrokenLink:
    """A link that leads nowhere, or out of the site."""

    page: str
    line: int
    target: str
    problem: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}: {self.target}: {self.problem}"


def pages(root: Path) -> list[Path]:
    """Return every page for readers: those of the site, and those next to README.md."""
    return [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]


def broken_links(root: Path) -> list[BrokenLink]:
    """Return the broken links of all pages, in their order."""
    root = root.resolve()
    return [broken for page in pages(root) for broken in _broken_links(page, root)]


def _broken_links(page: Path, root: Path) -> Iterator[BrokenLink]:
    name, docs = str(page.relative_to(root)), root / "docs"
    for line, target in _links(_tokens(page)):
        if _SCHEME.match(target):
            continue
        path, _, fragment = target.partition("#")
        file = (page.parent / unquote(path)).resolve() if path else page
        if not file.is_relative_to(root):
            yield BrokenLink(name, line, target, "leads out of the checkout")
        elif not file.exists():
            yield BrokenLink(name, line, target, f"there is no {file.relative_to(root)}")
        elif page.is_relative_to(docs) and not file.is_relative_to(docs):
            yield BrokenLink(name, line, target, "is not part of the site; write the file's name as code instead")
        elif fragment and file.suffix == ".md" and unquote(fragment) not in anchors(file):
            yield BrokenLink(name, line, target, f"{file.relative_to(root)} has no heading #{fragment}")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return what a link to a page may name after `#`: its headings as GitHub writes them, and its own ids."""
    tokens, names = _tokens(page), set[str]()
    for index, token in enumerate(tokens):
        if token.type == "heading_open":
            slug = _slug(tokens[index + 1])
            number = 0
            while (name := f"{slug}-{number}" if number else slug) in names:
                number += 1
            names.add(name)
    for token in _flat(tokens):
        if token.type in {"html_block", "html_inline"}:
            names.update(_ANCHOR.findall(token.content))
    return frozenset(names)


def _slug(heading: Token) -> str:
    text = "".join(child.content for child in heading.children or () if child.type in {"text", "code_inline"})
    return re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")


@cache
def _tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def _links(tokens: list[Token]) -> Iterator[tuple[int, str]]:
    line = 1
    for token in _flat(tokens):
        line = token.map[0] + 1 if token.map else line
        target = token.attrs.get("href") or token.attrs.get("src")
        if target:
            yield line, str(target)
        if token.type in {"html_block", "html_inline"}:
            yield from ((line, address) for address in _ATTRIBUTE.findall(token.content))


def _flat(tokens: list[Token]) -> Iterator[Token]:
    for token in tokens:
        yield token
        yield from _flat(token.children or [])
