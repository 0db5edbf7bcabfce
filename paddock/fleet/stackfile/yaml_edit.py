"""Sets and removes one value of a YAML text and leaves every other byte as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

from paddock.fleet.errors import EditError, Key, dotted
from paddock.fleet.stackfile.scalars import resolve

_ALIAS = "alias"
_PLAIN = re.compile(r"[A-Za-z_][\w./-]*|\d+(?:m|[KMGT]i)", re.ASCII)
_NULL, _STR = "tag:yaml.org,2002:null", "tag:yaml.org,2002:str"
_RESOLVER: Any = yaml.SafeLoader("")
"""YAML 1.1, for which `on` is not text."""


def put(text: str, path: Key, value: Any) -> str:
    """The text with `value` at `path`; maps on the way that are missing are made, in the style of what is around.

    A number in the path is an item of a list, which is there.
    Raises EditError where the path meets an anchor or something that is not a map.
    """
    tree = _Tree(text)
    node, step = tree.root, 2
    for at, name in enumerate(path):
        if at and node.tag == _NULL:  # a key that has nothing yet
            value = _nested(_names(path[at:]), value)
            break
        if isinstance(name, int):
            node = tree.item(node, path[: at + 1])
            continue
        entry = _entry(tree.mapping(node, path[:at]), name)
        if entry is None:
            return _insert(text, node, _names(path[at:]), value, step)
        step = max(_column(entry[1]) - _column(node), 0) or step
        node = entry[1]
    tree.refuse_anchors(node, path)
    start, end = node.start_mark.index, _end(node, text)
    return text[:start] + (" " if start == end else "") + render(value) + text[end:]


def drop(text: str, path: Key) -> str:
    """The text without the value at `path`, which is there and is not the only one of its map or list."""
    tree = _Tree(text)
    node = tree.root
    for at, name in enumerate(path[:-1]):
        if isinstance(name, int):
            node = tree.item(node, path[: at + 1])
            continue
        entry = _entry(tree.mapping(node, path[:at]), name)
        assert entry, path  # noqa: S101 - the caller has read it there
        node = entry[1]
    last = path[-1]
    if isinstance(last, int):
        tree.item(node, path)
        entries = [(item, item) for item in node.value]
        index = last
    else:
        entries = tree.mapping(node, path[:-1]).value
        index = next(number for number, (name, _) in enumerate(entries) if name.value == last)
    key, value = entries[index]
    tree.refuse_anchors(value, path)
    if not node.flow_style:
        start = text.rfind("\n", 0, key.start_mark.index) + 1
        return text[:start] + text[_line_end(text, _end(value, text)) :]
    if index + 1 < len(entries):
        return text[: key.start_mark.index] + text[entries[index + 1][0].start_mark.index :]
    return text[: _end(entries[index - 1][1], text)] + text[_end(value, text) :]


def _names(path: Key) -> tuple[str, ...]:
    """Return a path of keys alone: an item of a list that is not there cannot be made."""
    if any(isinstance(name, int) for name in path):
        raise EditError(f"{dotted(path)}: no such item to change\n    fix: write it by hand")
    return tuple(map(str, path))


def render(value: Any) -> str:
    """A value on one line, in flow style; text without quotes only where no YAML reader takes it for something else."""
    match value:
        case str():
            return _text(value)
        case Mapping():
            return "{" + ", ".join(f"{_text(str(name))}: {render(item)}" for name, item in value.items()) + "}"
        case Sequence():
            return "[" + ", ".join(map(render, value)) + "]"
        case _:
            return json.dumps(value)


class _Tree(yaml.SafeLoader):
    """The nodes of a text with their places; an alias is a node of its own, where it is."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._anchored: set[int] = set()
        self.root: Any = self.get_single_node()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> Any:
        reader: Any = self
        event: Any = reader.peek_event()
        if self.check_event(yaml.AliasEvent):
            reader.get_event()
            return yaml.ScalarNode(_ALIAS, event.anchor, event.start_mark, event.end_mark)
        node = super().compose_node(parent, index)
        if event.anchor is not None:
            self._anchored.add(id(node))
        return node

    def item(self, node: Any, path: Key) -> Any:
        """The item at the end of `path` of the list `node`, which may be changed."""
        if id(node) in self._anchored or node.tag == _ALIAS:
            raise _shared(path[:-1])
        index = path[-1]
        if not isinstance(node, yaml.SequenceNode) or not isinstance(index, int) or index >= len(node.value):
            raise EditError(f"{dotted(path)}: no such item in a list\n    fix: write it by hand")
        return node.value[index]

    def mapping(self, node: Any, path: Key) -> Any:
        """The node as a map that may be changed."""
        if id(node) in self._anchored or node.tag == _ALIAS:
            raise _shared(path)
        if not isinstance(node, yaml.MappingNode):
            raise EditError(
                f"{dotted(path)}: this is not a map, so nothing can be set in it"
                "\n    expected: settings below it, or nothing\n    fix: remove what is there"
            )
        return node

    def refuse_anchors(self, node: Any, path: Key) -> None:
        if id(node) in self._anchored or node.tag == _ALIAS:
            raise _shared(path)
        for child in _children(node):
            self.refuse_anchors(child, path)


def _shared(path: Key) -> EditError:
    return EditError(
        f"{dotted(path)}: this is shared with other places by an anchor (&name, *name), so a change would reach them"
        "\n    fix: write it out here"
    )


def _children(node: Any) -> list[Any]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _entry(node: Any, name: str) -> tuple[Any, Any] | None:
    return next((pair for pair in node.value if isinstance(pair[0], yaml.ScalarNode) and pair[0].value == name), None)


def _end(node: Any, text: str) -> int:
    """Return the end of a value's last character: a block's own end mark is at the next token."""
    children = _children(node)
    if children and not node.flow_style:
        return _end(children[-1], text)
    start: int = node.start_mark.index
    return start + len(text[start : node.end_mark.index].rstrip())


def _line_end(text: str, index: int) -> int:
    """Behind the line break of the line that holds `index`."""
    end = text.find("\n", index)
    return len(text) if end < 0 else end + 1


def _column(node: Any) -> int:
    """Spaces before the entries of a block; 0 where there are none."""
    column: int = node.start_mark.column
    return column if _children(node) and not node.flow_style else 0


def _insert(text: str, node: Any, path: tuple[str, ...], value: Any, step: int) -> str:
    """A new last entry of the map `node`: `path` below it, each map `step` spaces deeper, with the value at its end."""
    if node.flow_style:
        at = _end(node.value[-1][1], text) if node.value else node.start_mark.index + 1
        return f"{text[:at]}{', ' if node.value else ''}{_text(path[0])}: {render(_nested(path[1:], value))}{text[at:]}"
    column = _column(node)
    at = _behind_comments(text, _line_end(text, _end(node, text)), column)
    newline = "\r\n" if "\r\n" in text[:at] else "\n"
    lines = [f"{' ' * (column + step * depth)}{_text(name)}:" for depth, name in enumerate(path)]
    added = newline.join(lines) + f" {render(value)}"
    return text[:at] + (added + newline if text[:at].endswith("\n") else newline + added) + text[at:]


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for name in reversed(path):
        value = {name: value}
    return value


def _behind_comments(text: str, at: int, column: int) -> int:
    """Past the comments below the last entry that are indented deeper than the map: they are of what is above."""
    while comment := re.compile(rf" {{{column + 1},}}#.*(\n|$)").match(text, at):
        at = comment.end()
    return at


def _text(value: str) -> str:
    plain = _PLAIN.fullmatch(value) and resolve(value) == value
    if plain and _RESOLVER.resolve(yaml.ScalarNode, value, (True, False)) == _STR:
        return value
    return json.dumps(value, ensure_ascii=False)
