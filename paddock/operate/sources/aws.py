"""AWS, read only or as dry runs, by several threads at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

from paddock.build.aws import DENIED, Aws, AwsError, Clients, action
from paddock.build.errors import BuildError, BuildInputError
from paddock.operate.sources.unavailable import NotFound, Unavailable, split_error

_MISSING = {
    "ImageNotFoundException",
    "InvalidAMIID.NotFound",
    "InvalidAMIID.Unavailable",
    "InvalidSubnetID.NotFound",
    "NoSuchEntity",
    "NoSuchResourceException",
    "ParameterNotFound",
    "RepositoryNotFoundException",
    "ResourceNotFoundException",
}
"""Codes of answers that there is no such thing."""
_READS = ("describe_", "get_", "list_", "simulate_")


class NoCredentials(Unavailable):
    """Credentials are missing, or AWS does not take them: nothing else can be read either."""


class AwsReader:
    """Reads one account. Methods may be called by several threads at a time."""

    def __init__(self, region: str, clients: Callable[[str, str], Any] | None = None) -> None:
        """`clients` gives the boto3 client of a service in a region."""
        self.region = region
        self._clients = clients or _Clients()
        self._regions: dict[str, Aws] = {}

    def read(self, service: str, operation: str, *, region: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the answer of an operation that reads. Raises Unavailable, NotFound."""
        _check_reads(operation)
        try:
            return self._aws(region).ask(service, operation, **parameters)
        except BuildError as error:
            raise _unavailable(error, service, operation) from error

    def may(self, service: str, operation: str, **parameters: Any) -> bool:
        """Return whether AWS would allow an operation: it judges a dry run, and does not carry it out.

        Raises Unavailable.
        """
        try:
            self._aws("").ask(service, operation, **parameters, DryRun=True)
        except AwsError as error:
            if error.code == "DryRunOperation":
                return True
            if error.code in DENIED:
                return False
            raise _unavailable(error, service, operation) from error
        except BuildError as error:
            raise _unavailable(error, service, operation) from error
        raise Unavailable(f"{action(service, operation)} was answered as if it were no dry run")

    def pages(
        self, service: str, operation: str, key: str, *, region: str = "", **parameters: Any
    ) -> list[dict[str, Any]]:
        """Return every item under `key`, over all pages. Raises Unavailable, NotFound."""
        _check_reads(operation)
        try:
            return list(self._aws(region).pages(service, operation, key, **parameters))
        except BuildError as error:
            raise _unavailable(error, service, operation) from error

    def _aws(self, region: str) -> Aws:
        region = region or self.region
        return self._regions.setdefault(region, Aws(region, reading=self._in(region)))

    def _in(self, region: str) -> Clients:
        return lambda service: self._clients(service, region)


class _Clients:
    """Clients of boto3, made one at a time: a session is not for several threads, the clients are."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: Any = None
        self._made: dict[tuple[str, str], Any] = {}

    def __call__(self, service: str, region: str) -> Any:
        import boto3
        from botocore.config import Config

        with self._lock:
            if self._session is None:
                self._session = boto3.session.Session()
            if (service, region) not in self._made:
                # Throttling and lost connections are met again by botocore, with growing waits.
                config = Config(
                    connect_timeout=4, read_timeout=15, retries={"mode": "standard", "total_max_attempts": 4}
                )
                self._made[service, region] = self._session.client(service, region_name=region, config=config)
            return self._made[service, region]


def answered_at(answer: dict[str, Any]) -> datetime | None:
    """Return AWS's clock when it answered, None where the answer does not say."""
    header = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", "")
    try:
        return parsedate_to_datetime(header).astimezone(UTC)
    except ValueError:
        return None


def _check_reads(operation: str) -> None:
    if not operation.startswith(_READS):
        raise ValueError(f"{operation} may change something; expected: {', '.join(_READS)}")


def _unavailable(error: BuildError, service: str, operation: str) -> Unavailable:
    sentence, fix = split_error(error)
    if isinstance(error, BuildInputError):
        return NoCredentials(sentence, fix)
    code = error.code if isinstance(error, AwsError) else ""
    if code in _MISSING:
        return NotFound(sentence, fix)
    return Unavailable(sentence, fix, action(service, operation) if code in DENIED else "")
