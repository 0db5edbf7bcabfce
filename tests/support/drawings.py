"""Demands on every SVG that is shown as an image: GitHub and readers show it alone, without scripts and downloads."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_SVG = "{http://www.w3.org/2000/svg}"


def words_of(svg: str) -> list[str]:
    """Return the texts of a drawing, which must be whole, load nothing, and have a title and its own background."""
    root = ElementTree.fromstring(svg)
    names = {element.tag.removeprefix(_SVG) for element in root.iter()}
    assert names <= {"svg", "title", "style", "defs", "pattern", "g", "path", "rect", "circle", "text", "tspan"}
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)|url\(h|@import|@font-face|var\(", svg)
    title = root.find(f"{_SVG}title")
    assert title is not None
    assert title.text
    background = root.find(f"{_SVG}rect")
    assert background is not None
    assert background.get("class") == "page"
    assert abs(float(background.get("width", 0)) - float(root.get("width", 0))) <= 1
    return ["".join(element.itertext()) for element in root.iter(f"{_SVG}text")]
