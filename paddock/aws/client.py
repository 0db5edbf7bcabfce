"""AWS as every room asks it: one session, one set of time limits and retries, one way to call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

from paddock.aws.errors import action, translated

Clients = Callable[[str, str], Any]
"""Gives the boto3 client of a service in a region."""
_READING = {"connect_timeout": 4, "read_timeout": 15, "retries": {"mode": "standard", "total_max_attempts": 4}}
"""Throttling and lost connections are met again by botocore, with growing waits."""
_CHANGING = {"connect_timeout": 10, "read_timeout": 60, "retries": {"mode": "standard", "total_max_attempts": 1}}


class Aws:
    """Calls in a region, with the credentials of the environment. For several threads at a time.

    Every method raises AwsError, as NotSignedIn where AWS takes no request of this machine.
    """

    def __init__(self, region: str, clients: Clients | None = None) -> None:
        """Take `clients` in place of boto3's own."""
        self.region = region
        session = _Session()
        self._reading = clients or _Clients(session, _READING)
        self._changing = clients or _Clients(session, _CHANGING)

    def ask(self, service: str, operation: str, *, region: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the answer of an operation that reads, or that a client token makes safe to send twice."""
        return self._call(self._reading, service, operation, region or self.region, parameters)

    def change(self, service: str, operation: str, **parameters: Any) -> dict[str, Any]:
        """Send an operation once: after a time-out nobody knows whether it was done, and the caller must look."""
        return self._call(self._changing, service, operation, self.region, parameters)

    def pages(
        self, service: str, operation: str, key: str, *, region: str = "", **parameters: Any
    ) -> Iterator[dict[str, Any]]:
        """Yield every item under `key`, over all pages."""
        region = region or self.region
        with translated(action(service, operation), region):
            for page in self._reading(service, region).get_paginator(operation).paginate(**parameters):
                yield from page.get(key) or ()

    def _call(
        self, clients: Clients, service: str, operation: str, region: str, parameters: dict[str, Any]
    ) -> dict[str, Any]:
        with translated(action(service, operation), region):
            answer: dict[str, Any] = getattr(clients(service, region), operation)(**parameters)
            return answer


def regions(service: str) -> list[str]:
    """Return the regions in which this boto3 knows a service, of every partition. It may not know a new one yet."""
    import boto3

    session = boto3.session.Session()
    partitions = session.get_available_partitions()
    return [name for partition in partitions for name in session.get_available_regions(service, partition)]


def default_region() -> str:
    """Return the region of this shell's settings; empty where they name none."""
    import boto3

    return str(boto3.session.Session().region_name or "")


class _Session:
    """boto3's session, made when the first client is: making it may already fail. It is not for several threads."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._made: Any = None

    def client(self, service: str, region: str, settings: dict[str, Any]) -> Any:
        import boto3
        from botocore.config import Config

        self._made = self._made or boto3.session.Session()
        return self._made.client(service, region_name=region, config=Config(**settings))


class _Clients:
    """boto3's clients with these settings, which are for several threads."""

    def __init__(self, session: _Session, settings: dict[str, Any]) -> None:
        self._session, self._settings = session, settings
        self._made: dict[tuple[str, str], Any] = {}

    def __call__(self, service: str, region: str) -> Any:
        with self._session.lock:
            if (service, region) not in self._made:
                self._made[service, region] = self._session.client(service, region, self._settings)
            return self._made[service, region]
