"""Names that Pulumi's bridge gives to parts of a Terraform provider, reversed by the provider's own schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any


@dataclass(frozen=True, slots=True)
class Argument:
    """An attribute or a block of a resource."""

    name: str
    type: Any
    """As Terraform writes types, `["list", "string"]`; None for a block."""
    block: Block | None = None
    single: bool = False
    """A block that may stand once: Pulumi has it as the object itself, without a list around it."""
    writable: bool = True

    @property
    def listed(self) -> bool:
        return not self.single and (self.type is None or self.type[0] in ("list", "set"))


class Block:
    """A block of the schema. A list of objects that is no block reads as one, for its fields have names too."""

    def __init__(self, arguments: Mapping[str, Argument]) -> None:
        self.arguments = arguments

    @classmethod
    def of(cls, schema: Mapping[str, Any]) -> Block:
        """From a `block` of `terraform providers schema -json`."""
        arguments = {
            name: Argument(
                name,
                attribute["type"],
                cls._objects(attribute["type"]),
                writable=bool(attribute.get("required") or attribute.get("optional")),
            )
            for name, attribute in schema.get("attributes", {}).items()
        }
        for name, nested in schema.get("block_types", {}).items():
            single = nested["nesting_mode"] in ("single", "group") or nested.get("max_items") == 1
            arguments[name] = Argument(name, None, cls.of(nested["block"]), single)
        return cls(arguments)

    @classmethod
    def _objects(cls, type_: Any) -> Block | None:
        match type_:
            case [_, ["object", fields]] | ["object", fields]:
                return cls({name: Argument(name, type_, cls._objects(type_)) for name, type_ in fields.items()})
            case _:
                return None

    def find(self, key: str) -> Argument | None:
        """Return the argument that Pulumi calls `key`; None where the schema knows none."""
        # Where the bridge was told that a list holds one element it leaves the name alone, and the schema says nothing
        # of it: the name as it is comes second.
        return self._by_key.get(key) or self.arguments.get(snake(key))

    @cached_property
    def _by_key(self) -> dict[str, Argument]:
        return {camel(self._plural(argument)): argument for argument in self.arguments.values()}

    def _plural(self, argument: Argument) -> str:
        plural = _pluralize(argument.name)
        return plural if argument.listed and plural not in self.arguments else argument.name


def snake(name: str) -> str:
    """`launchTemplate` -> `launch_template`."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


def camel(name: str) -> str:
    """`launch_template` -> `launchTemplate`."""
    return re.sub(r"(?<=.)_([a-z])", lambda match: match[1].upper(), name)


def _pluralize(name: str) -> str:
    """As the bridge's inflector does with the words that a provider uses."""
    if name.endswith("s"):
        return name
    if re.search(r"[^aeiou]y$", name):
        return f"{name[:-1]}ies"
    return f"{name}es" if re.search(r"(x|ch|sh)$", name) else f"{name}s"
