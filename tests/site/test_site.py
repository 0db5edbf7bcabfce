"""The site of the documentation: built strictly, complete, and closed to the outside."""

from __future__ import annotations

import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paddock.site import build
from paddock.site.generated import files
from paddock.site.links import anchors, broken_links


def test_the_site_builds_strictly_and_loads_nothing_from_elsewhere(root: Path, tmp_path: Path) -> None:
    shutil.copytree(root / "docs", tmp_path / "docs")
    shutil.copy(root / "zensical.toml", tmp_path)
    for name in ("README.md", "CONTRIBUTING.md"):  # they link to the whole checkout
        (tmp_path / name).write_text("# Copy\n")
    folder = build.build(tmp_path)
    pages = [path.relative_to(root / "docs").with_suffix(".html") for path in (root / "docs").rglob("*.md")]
    assert [page for page in pages if not (folder / page).is_file()] == []
    for page in folder.rglob("*.html"):
        loaded = re.findall(r"<(?:link|script|img|source|iframe)\b[^>]*?(?:href|src)=\"?([^\" >]+)", page.read_text())
        assert [url for url in loaded if url.startswith(("http:", "https:", "//"))] == [], page.name
    for sheet in folder.rglob("*.css"):
        assert not re.search(r"url\(.?(https?:)?//|@import", sheet.read_text()), sheet.name


def test_broken_links_fail_the_build_and_are_named(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (root / "zensical.toml").read_text()
    settings = re.sub(r"^nav = \[.*?^\]", 'nav = [{ "Home" = "index.md" }]', settings, flags=re.M | re.S)
    (tmp_path / "zensical.toml").write_text(settings)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs/index.md").write_text("# Home\n\n[a](nowhere.md)\n\n[b](index.md#no-such-heading)\n")
    for name in ("README.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("# Copy\n")
    with pytest.raises(build.SiteError, match=r"docs/index\.md:3(.|\n)*docs/index\.md:5"):
        build.build(tmp_path)
    monkeypatch.setattr(build, "broken_links", lambda root: [])
    with pytest.raises(build.SiteError, match=r"zensical refuses(.|\n)*does not exist") as refused:
        build.build(tmp_path)
    assert "nowhere.md" in str(refused.value)
    assert "no-such-heading" in str(refused.value)


def test_every_link_leads_somewhere(root: Path) -> None:
    assert [str(link) for link in broken_links(root)] == []


def test_every_kind_of_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "README.md").write_text("# A\n\n[ok](docs/b.md#two-words-1) [own](#a)\n\n[bad](docs/c.md)\n")
    (tmp_path / "CONTRIBUTING.md").write_text('# A\n\n<img src="docs/none.svg">\n\n```md\n[code](nowhere.md)\n```\n')
    (tmp_path / "docs/b.md").write_text(
        "# Two `words`\n\n## Two words\n\n[up](../README.md) ![no](no.svg) [h](#three)\n"
    )
    assert [str(link) for link in broken_links(tmp_path)] == [
        "CONTRIBUTING.md:3: docs/none.svg: there is no docs/none.svg",
        "README.md:5: docs/c.md: there is no docs/c.md",
        "docs/b.md:5: ../README.md: is not part of the site; write the file's name as code instead",
        "docs/b.md:5: no.svg: there is no docs/no.svg",
        "docs/b.md:5: #three: docs/b.md has no heading #three",
    ]


def test_headings_are_named_as_github_names_them(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# CUDA: what `nvcc` wants, and why?\n\n## A/B & C\n\n<a id="own"></a>\n')
    assert anchors(page) == {"cuda-what-nvcc-wants-and-why", "ab--c", "own"}


def test_every_page_is_in_the_navigation(root: Path) -> None:
    nav = tomllib.loads((root / "zensical.toml").read_text())["project"]["nav"]
    pages = {str(path.relative_to(root / "docs")) for path in (root / "docs").rglob("*.md")}
    assert sorted(_leaves(nav)) == sorted(pages), "nav in zensical.toml lists each page of docs once"


def _leaves(nav: Any) -> Iterator[str]:
    for entry in nav if isinstance(nav, list) else nav.values():
        if isinstance(entry, str):
            yield entry
        else:
            yield from _leaves(entry)


@pytest.mark.parametrize("name", ["plan-document.md", "plan.schema.json", "rules.md", "security.md"])
def test_a_generated_page_is_current(root: Path, name: str) -> None:
    assert (root / "docs" / name).read_text(encoding="utf-8") == files(root)[f"docs/{name}"](), (
        "run ./inv docs.generate"
    )
