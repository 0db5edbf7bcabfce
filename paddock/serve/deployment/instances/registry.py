"""Registry of what is declared on a cluster: instances and endpoints, kept in a file on the head.

A scheduler or a head that starts again declares them again.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from paddock import files
from paddock.serve.agents.members import Agent
from paddock.serve.deployment.instances.instance import Instance, declared_again
from paddock.serve.deployment.row import Endpoint
from paddock.serve.gateway.external import External
from paddock.serve.placement.device import SERVES, Device

FILE = "models.saved"
"""Name of the file, in the folder of the cluster's state."""
_SCHEMA = 3
_Instances = TypeAdapter(list[Instance])


class Registry:
    """Instances and endpoints by their ids. `lock` holds while something is decided on them."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.lock = threading.RLock()
        self._entries: dict[str, Instance | Endpoint] = {}
        for entry in read(file) if file else ():
            self._entries[entry.id] = declared_again(entry, time.time()) if isinstance(entry, Instance) else entry

    def instances(self) -> list[Instance]:
        with self.lock:
            return [entry for entry in self._entries.values() if isinstance(entry, Instance)]

    def endpoints(self) -> list[Endpoint]:
        with self.lock:
            return [entry for entry in self._entries.values() if isinstance(entry, Endpoint)]

    def rows(self) -> list[dict[str, Any]]:
        """Return every row as JSON types, with a note where machines run different versions of an engine."""
        rows = [entry.document() for entry in self._sorted()]
        versions = {(row["engine"], row["engine_version"]) for row in rows if row["engine_version"]}
        for row in rows:
            others = sorted(version for engine, version in versions if engine == row["engine"])
            if len(others) > 1:
                row["notes"].append(f"{row['engine']} differs between machines: {', '.join(others)}")
        return rows

    def routes(self) -> list[dict[str, Any]]:
        """Return every row with the way to its server, which holds keys."""
        return [{**entry.document(), "upstream": entry.upstream()} for entry in self._sorted()]

    def get(self, id: str) -> Instance | Endpoint | None:
        with self.lock:
            return self._entries.get(id)

    def add(self, entry: Instance | Endpoint) -> None:
        """Declare an instance or an endpoint."""
        with self.lock:
            self._entries[entry.id] = entry
            self._save()

    def remove(self, id: str) -> None:
        """Forget an instance or an endpoint."""
        with self.lock:
            self._entries.pop(id, None)
            self._save()

    def change(self, before: Instance, after: Instance) -> bool:
        """Put an instance in the place of the former one, and return whether nobody else had changed that."""
        with self.lock:
            if self._entries.get(before.id) is not before:
                return False
            self._entries[after.id] = after
            if (before.state, before.plan, before.generation) != (after.state, after.plan, after.generation):
                self._save()
            return True

    def new_id(self, model: str) -> str:
        """Return an id that nothing has."""
        stem = re.sub(r"[^a-z0-9.]+", "-", model.lower().rpartition("/")[2].removesuffix(".gguf")).strip("-") or "model"
        with self.lock:
            ids = (stem, *(f"{stem}-{number}" for number in range(2, 10_000)))
            return next(id for id in ids if id not in self._entries)

    def used(self, without: str = "") -> dict[str, str]:
        """Return which instance has which device."""
        own = (instance for instance in self.instances() if instance.deployed and instance.id != without)
        return {label: instance.id for instance in own for label in instance.devices}

    def free(self, agents: Iterable[Agent], without: str = "") -> tuple[Device, ...]:
        """Return the devices of live agents; those of another instance as unavailable."""
        used = self.used(without)
        return tuple(
            replace(device, unavailable=f"{SERVES}{used[device.label]}") if device.label in used else device
            for agent in agents
            if agent.alive
            for device in agent.devices
        )

    def _sorted(self) -> list[Instance | Endpoint]:
        with self.lock:
            return sorted(self._entries.values(), key=lambda entry: isinstance(entry, Endpoint))

    def _save(self) -> None:
        if self._file is None:
            return
        kept = [instance for instance in self.instances() if instance.state != "unloading"]
        try:
            write(self._file, kept, self.endpoints())
        except OSError as error:
            print(f"{self._file}: {error.strerror}", flush=True)  # noqa: T201 - goes to the actor's log


def write(path: Path, instances: Iterable[Instance], endpoints: Iterable[Endpoint] = ()) -> None:
    """Write the instances with their plans, and the endpoints. Raises OSError."""
    # The status holds the keys of a server that only its replica can name again.
    without = [replace(instance, status=None) for instance in instances]
    document = {
        "schema": _SCHEMA,
        "models": _Instances.dump_python(without, mode="json"),
        "endpoints": [{"id": one.id, "concurrency": one.concurrency, **asdict(one.external)} for one in endpoints],
    }
    files.write(path, json.dumps(document) + "\n", 0o600)


def read(path: Path) -> tuple[Instance | Endpoint, ...]:
    """Return what a file has; nothing where it is absent, or of another version."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if document["schema"] != _SCHEMA:
            return ()
        endpoints = [Endpoint(row.pop("id"), row.pop("concurrency"), External(**row)) for row in document["endpoints"]]
        return (*_Instances.validate_python(document["models"]), *endpoints)
    except (OSError, ValueError, KeyError, TypeError):
        return ()
