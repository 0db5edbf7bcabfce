"""Requests to a gateway without keys: only programs of this machine may send them, and no page of a browser here.

A page may send plain text to any address without asking, and a name of its own may lead to loopback (DNS rebinding).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

from paddock.serve.admission.refusal import RequestError

_JSON = "application/json"


def check_local(method: str, headers: Mapping[str, str]) -> None:
    """Check the address that was asked for, and that a body says that it is JSON. Raises RequestError."""
    host = headers.get("host", "")
    if not _is_loopback(host):
        raise RequestError(
            f"Host is {host[:100]!r}: without API keys this answers only at localhost or 127.0.0.1", 403,
            "host_not_allowed",
        )  # fmt: skip
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if method == "POST" and kind != _JSON:
        raise RequestError(f"Content-Type: {_JSON} is needed", 415, "unsupported_media_type")


def _is_loopback(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
