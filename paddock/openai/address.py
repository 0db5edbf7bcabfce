"""Address of a server, from the URL that a user gives."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from paddock.openai.errors import OpenAIInputError
from paddock.openai.request import CHAT, COMPLETIONS


@dataclass(frozen=True, slots=True)
class Address:
    """Address of a server; `paths` are tried in their order. `prefix` is the path before `/v1`."""

    origin: str
    prefix: str
    paths: tuple[str, ...]


def parse_url(url: str) -> Address:
    """Read the URL of a server, of its ``/v1``, or of one of its two endpoints. Raises OpenAIInputError."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    try:
        bad = parts.scheme not in ("http", "https") or not parts.hostname or parts.hostname[0] == "-" or parts.port == 0
    except ValueError:
        bad = True
    if bad or parts.query or parts.fragment or any(character <= " " for character in url):
        raise OpenAIInputError(
            f"URL: {url!r} is not the address of a server\n    expected: http:// or https://, such as http://localhost:8000"
            "\n    fix: ./inv --help bench.load lists the flags"
        )
    if parts.username is not None:
        raise OpenAIInputError(
            "URL: it holds a user or a password, which everyone on this machine can read\n"
            "    fix: put the key into an environment variable and name that with --key-env"
        )
    return _address(parts)


def _address(parts: SplitResult) -> Address:
    path = parts.path.rstrip("/")
    paths: tuple[str, ...] = (COMPLETIONS, CHAT)
    for endpoint in (CHAT, COMPLETIONS):
        if path.endswith(endpoint):
            path, paths = path.removesuffix(endpoint), (endpoint,)
            break
    return Address(f"{parts.scheme}://{parts.netloc}", path.removesuffix("/v1"), paths)
