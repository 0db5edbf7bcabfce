"""A Prometheus over its HTTP API, read only."""

from __future__ import annotations

import http.client
import json
import math
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode, urlsplit

from paddock.errors import one_line
from paddock.operate.sources.unavailable import Unavailable

_PATIENCE = 30.0
_LARGEST = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Sample:
    """One element of an instant vector."""

    labels: Mapping[str, str]
    value: float


class PrometheusReader:
    """Asks one server. Its answers are others' text."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def query(self, expression: str, at: datetime) -> tuple[Sample, ...]:
        """Return the instant vector of an expression, of numbers alone. Raises Unavailable."""
        address = f"{self.url}/api/v1/query?{urlencode({'query': expression, 'time': at.timestamp()})}"
        request = urllib.request.Request(address, headers={"Accept": "application/json"})  # noqa: S310 - check_url holds
        try:
            with urllib.request.urlopen(request, timeout=_PATIENCE) as answer:  # noqa: S310 - check_url holds
                body = answer.read(_LARGEST + 1)
        except urllib.error.HTTPError as error:
            with error:
                raise Unavailable(
                    f"Prometheus answers {error.code}: {_reason(error.read(4096))}", "look at the address and the query"
                ) from None
        except (OSError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise Unavailable(
                f"Prometheus does not answer: {one_line(str(reason))}",
                "look at --prometheus; from outside the cluster: kubectl port-forward to its service",
            ) from None
        return _samples(body)


def check_url(url: str) -> str:
    """Return what is wrong with the address of a server, empty where nothing is."""
    try:
        parts = urlsplit(url)
        valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return "it is not an address"
    if parts.username or parts.password:
        return "it holds a credential, which every process of this machine could read"
    if parts.query or parts.fragment or not valid:
        return "it is not an address of a server"
    return ""


def _samples(body: bytes) -> tuple[Sample, ...]:
    try:
        document = json.loads(body) if len(body) <= _LARGEST else {}
        if document["status"] != "success" or document["data"]["resultType"] != "vector":
            raise ValueError
        samples = [Sample(item["metric"], float(item["value"][1])) for item in document["data"]["result"]]
    except (ValueError, KeyError, TypeError, IndexError):
        raise Unavailable("the answer is not one of Prometheus' API", "look at --prometheus") from None
    return tuple(sample for sample in samples if math.isfinite(sample.value))


def _reason(body: bytes) -> str:
    try:
        return one_line(str(json.loads(body)["error"]))
    except (ValueError, KeyError, TypeError):
        return "no reason"
