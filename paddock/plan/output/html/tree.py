"""The resource tree: what would be made, below what, with the inputs in a compact form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from paddock.plan.engine.values import SECRET, UNKNOWN
from paddock.plan.output.html.markup import Child, Html, clean, join, section, tag
from paddock.plan.output.html.reading import Document, count, made, rows, text

BUDGET = 900_000
"""Characters of a page; longer inputs are cut, all to the same length, until it is kept."""
_LENGTHS = (4000, 1500, 600, 240, 80, 0)
_DEEPEST = 24


def tree(document: Document, used: int) -> Html | None:
    """All resources, children below parents; `used` is what the rest of the page takes."""
    resources = rows(document, "resources")
    if not resources:
        return None
    children = _children(resources)
    listed, length = Html(""), 0
    for length in _LENGTHS:
        listed = join(_branch(children, "", 0, length))
        if len(listed) + used <= BUDGET:
            break
    cut = (
        "" if length == _LENGTHS[0] else f" Inputs longer than {length} characters are cut here; --json has them whole."
    )
    note = (
        f"{count(len(made(document)), 'resource')} that a provider makes, below the components that group them. "
        f"{SECRET} is hidden, {UNKNOWN} is known only once it is made.{cut}"
    )
    search = tag(
        "p",
        tag("label", "Show only ", tag("input", type="search", id="filter", autocomplete="off", spellcheck="false")),
        tag("output", id="shown", aria_live="polite"),
        hidden=True,
        class_="filter",
    )
    return section("resources", "Resources", search, tag("ul", listed, class_="tree", id="tree"), note=note)


def _children(resources: list[Document]) -> dict[str, list[Document]]:
    """By parent. What has no parent here, too many, or is its own ancestor, stands at the top."""
    parents = {text(each, "urn"): text(each, "parent") for each in resources}
    found: dict[str, list[Document]] = {}
    for each in resources:
        urn = text(each, "urn")
        found.setdefault(parents[urn] if _nested(urn, parents) else "", []).append(each)
    return found


def _nested(urn: str, parents: Mapping[str, str]) -> bool:
    """Whether the way up ends, at every few levels: a browser nests no deeper than some hundred elements."""
    seen: set[str] = set()
    here = urn
    while here in parents and here not in seen:
        seen.add(here)
        here = parents[here]
    return here not in seen and len(seen) % _DEEPEST != 1


def _branch(children: dict[str, list[Document]], parent: str, depth: int, length: int) -> Iterator[Html]:
    for each in children.get(parent, []) if depth <= _DEEPEST else []:
        urn = text(each, "urn")
        below = list(_branch(children, urn, depth + 1, length)) if urn else []
        name = tag("span", tag("b", text(each, "name")), " ", tag("span", _kind(text(each, "type")), class_="kind"))
        marks = [
            tag("span", mark, class_="mark")
            for key, mark in (("protect", "protected"), ("expanded", "by a component"))
            if each.get(key) is True
        ]
        inputs = _inputs(each.get("inputs"), length)
        if below:
            inside: list[Child] = [_fold("inputs", inputs, "inputs own")] if inputs else []
            summary = tag("summary", name, marks, tag("span", f" {_size(children, urn)}", class_="note"))
            yield tag("li", tag("details", summary, inside, tag("ul", below), open=depth == 0))
        else:
            yield tag("li", _fold(join(name, marks), inputs) if inputs else join(name, marks), class_="leaf")


def _size(children: dict[str, list[Document]], urn: str) -> int:
    seen, queue, size = {urn}, [urn], 0
    while queue:
        for each in children.get(queue.pop(), []):
            below = text(each, "urn")
            size += 1
            if below not in seen:
                seen.add(below)
                queue.append(below)
    return size


def _fold(summary: Child, inputs: Html, class_: str = "inputs") -> Html:
    return tag("details", tag("summary", summary), tag("pre", inputs, tabindex="0"), class_=class_)


def _kind(type_: str) -> str:
    """`aws:ec2/vpc:Vpc` -> `aws ec2 Vpc`; `kubernetes:core/v1:Secret` -> `kubernetes core/v1 Secret`."""
    package, _, rest = type_.partition(":")
    module, _, kind = rest.rpartition(":")
    group, slash, version = module.partition("/")
    return f"{package} {group if slash and version.lower() == kind.lower() else module} {kind}".strip()


def _inputs(inputs: Any, length: int) -> Html | None:
    if not isinstance(inputs, Mapping) or not inputs or not length:
        return None
    lines = [line for key, value in inputs.items() for line in _lines(str(key), value, 0)]
    told: list[Html] = []
    left = length
    for index, (label, value) in enumerate(lines):
        if left <= 0:
            told.append(tag("i", f"\u2026 {count(len(lines) - index, 'further line')}"))
            break
        value = clean(value)
        cut = value if len(value) <= left else f"{value[:left]}\u2026 {len(value) - left} characters more"
        left -= len(label) + len(cut)
        told.append(join(label, tag("mark", value) if value in (SECRET, UNKNOWN) else cut))
    return Html("\n".join(told))


def _lines(label: str, value: Any, depth: int) -> Iterator[tuple[str, str]]:
    """YAML to read, not to parse: a label and a value in one word or line."""
    pad = "  " * depth
    if depth > _DEEPEST:
        yield f"{pad}{label}: ", "\u2026"
    elif isinstance(value, Mapping) and value:
        yield f"{pad}{label}:", ""
        for key, item in value.items():
            yield from _lines(str(key), item, depth + 1)
    elif isinstance(value, list) and value and all(not isinstance(item, Mapping | list) for item in value):
        shown = ", ".join(str(item) for item in value)
        yield f"{pad}{label}: ", f"[{shown}]"
    elif isinstance(value, list) and value:
        yield f"{pad}{label}:", ""
        for item in value:
            yield from _lines("-", item, depth + 1)
    else:
        yield f"{pad}{label}: ", _scalar(value)


def _scalar(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case str() if "\n" in value:
            return value.replace("\n", " \u21b5 ")
        case Mapping() | list():
            return "{}" if isinstance(value, Mapping) else "[]"
        case _:
            return str(value)
