"""Contents: every command by name, with its group, its other names and its old names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.util import find_spec

from paddock.console.command import Entry
from paddock.errors import did_you_mean, nearest, program


@dataclass(frozen=True)
class Contents:
    """The commands of a program. `on_a_node` are those that need no checkout, or groups of them."""

    listed: Iterable[Entry]
    aliases: Mapping[str, str] = field(default_factory=dict)
    """Second name -> name, and the words that stand behind it."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Old name -> what replaces it."""
    on_a_node: Collection[str] = ()

    @cached_property
    def entries(self) -> dict[str, Entry]:
        return {entry.name: entry for entry in self.listed}

    @cached_property
    def names(self) -> list[str]:
        """Every name, the second ones too."""
        return [*self.entries, *self.aliases]

    def find(self, name: str) -> tuple[Entry, list[str]] | None:
        """Return the command of a name, and the other words that the name holds."""
        own, *words = self.aliases.get(name, name).split(" ")
        entry = self.entries.get(own)
        return (entry, words) if entry else None

    def aliases_of(self, name: str) -> list[str]:
        return [alias for alias, own in self.aliases.items() if own.split()[0] == name]

    def members(self, group: str) -> list[Entry]:
        """Return the commands that have the word before a dot."""
        return [entry for entry in self.entries.values() if entry.name.startswith(f"{group}.")]

    def groups(self, *, hidden: bool = False) -> dict[str, list[Entry]]:
        """Return the commands that this installation has, under the heading of their group."""
        found: dict[str, list[Entry]] = {}
        here = is_checkout()
        for entry in self.entries.values():
            if (here or self.needs_no_checkout(entry.name)) and (hidden or not entry.hidden):
                found.setdefault(entry.group, []).append(entry)
        return found

    def needs_no_checkout(self, name: str) -> bool:
        return any(name == room or name.startswith(f"{room}.") for room in self.on_a_node)

    def dotted(self, word: str, behind: str) -> str:
        """Return a hint for two words that are a command, or were one, with a dot between; else nothing."""
        name = f"{word}.{behind}"
        if self.find(name):
            return f"did you mean {name}?"
        return f"it is now {self.renamed[name]}" if name in self.renamed else ""

    def explain(self, word: str, following: Iterable[str] = ()) -> str:
        """Return a hint for a word that is not a command, before these words."""
        if word in self.renamed:
            return f"it is now {self.renamed[word]}"
        members = {entry.name.removeprefix(f"{word}."): entry.name for entry in self.members(word)}
        behind = next((item for item in following if not item.startswith("-")), "")
        if known := self.dotted(word, behind):
            return known
        if members:
            near = nearest(behind, members)
            return f"did you mean {members[near]}?" if near else f"it is a group: {', '.join(members.values())}"
        return did_you_mean(word, self.names, f"`{program()} --list` shows the commands")


def is_checkout() -> bool:
    """Report whether the Pulumi program is here: an installation on a node has only what works on a machine's GPUs."""
    return find_spec("infra") is not None
