"""AWS, read only or as dry runs, by several threads at a time."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from paddock.aws.client import Aws, Clients
from paddock.aws.errors import DENIED, AwsError, NotSignedIn, action
from paddock.operate.sources import dates
from paddock.operate.sources.unavailable import NotFound, Unavailable, split_error

_MISSING = {
    "ImageNotFoundException",
    "InvalidAMIID.Unavailable",
    "NoSuchEntity",
    "NoSuchResourceException",
    "ParameterNotFound",
    "RepositoryNotFoundException",
    "ResourceNotFoundException",
}
"""Codes of answers that the thing does not exist; those of EC2 end in `.NotFound`."""
_READS = ("describe_", "get_", "list_", "simulate_")


class NoCredentials(Unavailable):
    """Credentials are missing, or AWS does not take them: nothing else can be read either."""


class AwsReader:
    """Reads one account. Methods may be called by several threads at a time."""

    def __init__(self, region: str, clients: Clients | None = None) -> None:
        self.region = region
        self.clock: datetime | None = None
        """Time of AWS at its last answer."""
        self._aws = Aws(region, clients)

    def read(self, service: str, operation: str, *, region: str = "", **parameters: Any) -> dict[str, Any]:
        """Return the answer of an operation that reads. Raises Unavailable, NotFound."""
        _check_reads(operation)
        try:
            answer = self._aws.ask(service, operation, region=region, **parameters)
        except AwsError as error:
            raise _unavailable(error, service, operation) from error
        self.clock = answered_at(answer) or self.clock
        return answer

    def may(self, service: str, operation: str, **parameters: Any) -> bool:
        """Return whether AWS would allow an operation: it judges a dry run, and does not carry it out.

        Raises Unavailable.
        """
        try:
            self._aws.ask(service, operation, **parameters, DryRun=True)
        except AwsError as error:
            if error.code == "DryRunOperation":
                return True
            if error.code in DENIED:
                return False
            raise _unavailable(error, service, operation) from error
        raise Unavailable(f"{action(service, operation)} was answered as if it were not a dry run")

    def pages(
        self, service: str, operation: str, key: str, *, region: str = "", **parameters: Any
    ) -> list[dict[str, Any]]:
        """Return every item under `key`, over all pages. Raises Unavailable, NotFound."""
        _check_reads(operation)
        try:
            return list(self._aws.pages(service, operation, key, region=region, **parameters))
        except AwsError as error:
            raise _unavailable(error, service, operation) from error


def answered_at(answer: dict[str, Any]) -> datetime | None:
    """Return AWS's clock when it answered, None where the answer does not say."""
    return dates.answered_at(answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date", ""))


def _check_reads(operation: str) -> None:
    if not operation.startswith(_READS):
        raise ValueError(f"{operation} may change something; expected: {', '.join(_READS)}")


def _unavailable(error: AwsError, service: str, operation: str) -> Unavailable:
    sentence, fix = split_error(error)
    if isinstance(error, NotSignedIn):
        return NoCredentials(sentence, fix)
    if error.code in _MISSING or error.code.endswith(".NotFound"):
        return NotFound(sentence, fix)
    return Unavailable(sentence, fix, action(service, operation) if error.code in DENIED else "")
