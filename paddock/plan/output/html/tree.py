"""The resource tree: what would be made, below what, with the inputs in a compact form."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paddock.html.components import folded, section
from paddock.html.markup import Child, Html, clean, join, tag
from paddock.plan.document.model import PlanDocument, Resource
from paddock.plan.engine.values import SECRET, UNKNOWN
from paddock.plan.output.format import count
from paddock.plan.output.view import cloud_resources

BUDGET = 900_000
"""Characters of a page; longer inputs are cut, all to the same length, until it is kept."""
_LENGTHS = (4000, 1500, 600, 240, 80, 0)
_DEEPEST = 24
Line = tuple[str, str]
"""A label and a value."""


def tree(document: PlanDocument, used: int) -> Html | None:
    """Return all resources, children below parents; `used` is the size of the rest of the page."""
    if not document.resources:
        return None
    children = _children(document.resources)
    lines = {resource.urn: _input_lines(resource) for resource in document.resources}
    listed, length = Html(""), 0
    for length in _LENGTHS:
        listed = join(_branch(children, lines, "", 0, length))
        if len(listed) + used <= BUDGET:
            break
    cut = (
        "" if length == _LENGTHS[0] else f" Inputs longer than {length} characters are cut here; --json has them whole."
    )
    note = (
        f"{count(len(cloud_resources(document)), 'resource')} that a provider makes, below the components that group "
        f"them. "
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


def _children(resources: list[Resource]) -> dict[str, list[Resource]]:
    """Return children by parent. Those without a parent here, with too many or in a cycle, are at the top."""
    parents = {resource.urn: resource.parent for resource in resources}
    children: dict[str, list[Resource]] = {}
    for resource in resources:
        parent = resource.parent if _nested(resource.urn, parents) else ""
        children.setdefault(parent, []).append(resource)
    return children


def _nested(urn: str, parents: Mapping[str, str]) -> bool:
    """Return whether the way up ends, at every few levels: a browser nests no deeper than some hundred elements."""
    ancestors: set[str] = set()
    here = urn
    while here in parents and here not in ancestors:
        ancestors.add(here)
        here = parents[here]
    return here not in ancestors and len(ancestors) % _DEEPEST != 1


def _branch(
    children: dict[str, list[Resource]], lines: Mapping[str, list[Line]], parent: str, depth: int, length: int
) -> Iterator[Html]:
    for resource in children.get(parent, []) if depth <= _DEEPEST else []:
        urn = resource.urn
        below = list(_branch(children, lines, urn, depth + 1, length)) if urn else []
        name = tag("span", tag("b", resource.name), " ", tag("span", _kind(resource.type), class_="kind"))
        marks = [
            tag("span", mark, class_="mark")
            for applies, mark in ((resource.protect, "protected"), (resource.expanded, "by a component"))
            if applies
        ]
        inputs = _inputs(lines[urn], length)
        if below:
            inside: list[Child] = [_fold("inputs", inputs, "inputs own")] if inputs else []
            summary = tag("summary", name, marks, tag("span", f" {_size(children, urn)}", class_="note"))
            yield tag("li", tag("details", summary, inside, tag("ul", below), open=depth == 0))
        else:
            yield tag("li", _fold(join(name, marks), inputs) if inputs else join(name, marks), class_="leaf")


def _size(children: dict[str, list[Resource]], urn: str) -> int:
    visited, queue, size = {urn}, [urn], 0
    while queue:
        for child in children.get(queue.pop(), []):
            size += 1
            if child.urn not in visited:
                visited.add(child.urn)
                queue.append(child.urn)
    return size


def _fold(summary: Child, inputs: Html, class_: str = "inputs") -> Html:
    return folded(summary, tag("pre", inputs, tabindex="0"), class_=class_)


def _kind(type_: str) -> str:
    """`aws:ec2/vpc:Vpc` -> `aws ec2 Vpc`; `kubernetes:core/v1:Secret` -> `kubernetes core/v1 Secret`."""
    package, _, rest = type_.partition(":")
    module, _, kind = rest.rpartition(":")
    group, slash, version = module.partition("/")
    return f"{package} {group if slash and version.lower() == kind.lower() else module} {kind}".strip()


def _input_lines(resource: Resource) -> list[Line]:
    lines = (line for key, value in resource.inputs.items() for line in _lines(str(key), value, 0))
    return [(label, clean(value)) for label, value in lines]


def _inputs(lines: Sequence[Line], length: int) -> Html | None:
    if not lines or not length:
        return None
    output: list[Html] = []
    budget = length
    for index, (label, value) in enumerate(lines):
        if budget <= 0:
            output.append(tag("i", f"\u2026 {count(len(lines) - index, 'further line')}"))
            break
        cut = value if len(value) <= budget else f"{value[:budget]}\u2026 {len(value) - budget} characters more"
        budget -= len(label) + len(cut)
        output.append(join(label, tag("mark", value) if value in (SECRET, UNKNOWN) else cut))
    return Html("\n".join(output))


def _lines(label: str, value: Any, depth: int) -> Iterator[Line]:
    """YAML to read, not to parse: a label and a value in one word or line."""
    pad = "  " * depth
    if depth > _DEEPEST:
        yield f"{pad}{label}: ", "\u2026"
    elif isinstance(value, Mapping) and value:
        yield f"{pad}{label}:", ""
        for key, item in value.items():
            yield from _lines(str(key), item, depth + 1)
    elif isinstance(value, list) and value and all(not isinstance(item, Mapping | list) for item in value):
        items = ", ".join(str(item) for item in value)
        yield f"{pad}{label}: ", f"[{items}]"
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
