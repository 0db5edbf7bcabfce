"""Changes of a world's objects, as an API server makes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paddock.operate.sources.unavailable import Unavailable
from tests.support.chain_world import World


class StandInForChanges:
    """Merges changes into the world's objects, as the API server does; `refuses` names a kind."""

    def __init__(self, world: World, refuses: str = "") -> None:
        self.world, self.refuses = world, refuses
        self.deleted: list[str] = []

    def patch(self, item: Mapping[str, Any], change: Mapping[str, Any]) -> None:
        if item["kind"] == self.refuses:
            raise Unavailable(f"{self.refuses}: may not patch nodes", "a role that allows: patch nodes", "patch nodes")
        merge(self.world.get(item["kind"], item["metadata"]["name"]), change)

    def delete(self, item: Mapping[str, Any]) -> None:
        self.deleted.append(item["metadata"]["name"])
        self.world.drop(item["kind"], item["metadata"]["name"])


def merge(into: dict[str, Any], change: Mapping[str, Any]) -> None:
    for key, value in change.items():
        if value is None:
            into.pop(key, None)
        elif isinstance(value, Mapping):
            merge(into.setdefault(key, {}), value)
        else:
            into[key] = value
