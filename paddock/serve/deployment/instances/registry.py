"""Registry of what is declared on a cluster: instances and external engines, kept in a file on the head."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from paddock.serve.agents.members import Agent
from paddock.serve.deployment.external import Endpoint
from paddock.serve.deployment.instances import saved
from paddock.serve.deployment.instances.instance import Instance, declared_again
from paddock.serve.placement.device import Device


class Registry:
    """Instances and endpoints by their ids. `lock` holds while something is decided on them."""

    def __init__(self, file: Path | None) -> None:
        self._file = file
        self.lock = threading.RLock()
        self._instances: dict[str, Instance] = {}
        self._endpoints: dict[str, Endpoint] = {}
        for instance in saved.read(file) if file else ():
            self._instances[instance.id] = declared_again(instance, time.time())
        for endpoint in saved.read_endpoints(file) if file else ():
            self._endpoints[endpoint.id] = endpoint

    def instances(self) -> list[Instance]:
        with self.lock:
            return list(self._instances.values())

    def endpoints(self) -> list[Endpoint]:
        with self.lock:
            return list(self._endpoints.values())

    def rows(self) -> list[dict[str, Any]]:
        """Return every row as JSON types."""
        with self.lock:
            rows = [instance.row().document() for instance in self._instances.values()]
            return rows + [endpoint.document() for endpoint in self._endpoints.values()]

    def get(self, id: str) -> Instance | Endpoint | None:
        with self.lock:
            return self._instances.get(id) or self._endpoints.get(id)

    def add(self, entry: Instance | Endpoint) -> None:
        """Declare an instance or an endpoint."""
        with self.lock:
            if isinstance(entry, Endpoint):
                self._endpoints[entry.id] = entry
            else:
                self._instances[entry.id] = entry
            self._save()

    def remove(self, id: str) -> None:
        """Forget an instance or an endpoint."""
        with self.lock:
            self._instances.pop(id, None)
            self._endpoints.pop(id, None)
            self._save()

    def change(self, before: Instance, after: Instance) -> bool:
        """Put an instance in the place of the former one, and return whether nobody else had changed that."""
        with self.lock:
            if self._instances.get(before.id) is not before:
                return False
            self._instances[after.id] = after
            if (before.state, before.plan) != (after.state, after.plan):
                self._save()
            return True

    def new_id(self, model: str) -> str:
        """Return an id that nothing has."""
        stem = re.sub(r"[^a-z0-9.]+", "-", model.lower().rpartition("/")[2]).strip("-") or "model"
        with self.lock:
            used = {*self._instances, *self._endpoints}
        if stem not in used:
            return stem
        return next(f"{stem}-{number}" for number in range(2, 10_000) if f"{stem}-{number}" not in used)

    def used(self, without: str = "") -> dict[str, str]:
        """Return which instance has which device."""
        with self.lock:
            return {
                label: instance.id
                for instance in self._instances.values()
                if instance.deployed and instance.id != without
                for label in instance.devices
            }

    def free(self, agents: Iterable[Agent], without: str = "") -> tuple[Device, ...]:
        """Return the devices of live agents; those of another instance as unavailable."""
        used = self.used(without)
        return tuple(
            replace(device, unavailable=f"it serves {used[device.label]}") if device.label in used else device
            for agent in agents
            if agent.alive
            for device in agent.devices
        )

    def _save(self) -> None:
        if self._file is None:
            return
        kept = [instance for instance in self._instances.values() if instance.state != "unloading"]
        try:
            saved.write(self._file, kept, [endpoint.saved() for endpoint in self._endpoints.values()])
        except OSError as error:
            print(f"{self._file}: {error.strerror}", flush=True)  # noqa: T201 - goes to the actor's log
