"""Encrypted values in a stack file, and credentials that should be encrypted."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from typing import Any

from paddock.fleet.errors import Key, Problem
from paddock.fleet.model.github import CLEAR_TEXT
from paddock.fleet.stackfile.configuration import CREDENTIALS, FLEET


def ciphertext(value: Any) -> Any:
    match value:
        case {"secure": str(ciphertext), **rest} if not rest:
            return ciphertext
        case _:
            return value


def holds_secret(value: Any) -> bool:
    match value:
        case {"secure": str(), **rest} if not rest:
            return True
        case dict():
            return any(holds_secret(item) for item in value.values())
        case list():
            return any(holds_secret(item) for item in value)
        case _:
            return False


def secret_parts(data: Any, key: Key = ("config", FLEET)) -> Iterator[Problem]:
    match data:
        case {"secure": str(), **rest} if not rest:
            message = "an encrypted value, which the plan could not read"
            fix = "write it in clear text; credentials go to paddock:githubAppKey or paddock:githubToken"
            yield Problem(key, message, "a value in clear text", fix)
        case dict():
            for name, item in data.items():
                yield from secret_parts(item, (*key, name))
        case list():
            for index, item in enumerate(data):
                yield from secret_parts(item, (*key, index))


def clear_text_credentials(data: Any) -> Iterator[Problem]:
    """Find credentials in clear text. Messages never repeat them."""
    for key, value in _texts(data, ()):
        own = str(key[1]) if len(key) == 2 and key[0] == "config" else ""
        held = CLEAR_TEXT.search(value) or CLEAR_TEXT.search(_decoded(value))
        if own and own not in CREDENTIALS and not held and _SECRET_NAME.search(own) and value:
            yield Problem(
                key,
                "a credential in clear text: anyone who can read this file can use it",
                "an encrypted value (secure: ...)",
                f"remove it, revoke it if it was ever committed, and run: pulumi config set --secret {own}"
                + ("; or leave it out and sign in: aws sso login" if own.startswith("aws:") else ""),
            )
            continue
        if not (held or (own in CREDENTIALS and value)):
            continue
        credential = own if own in CREDENTIALS else CREDENTIALS[0 if "PRIVATE KEY" in value + _decoded(value) else 1]
        kind = "private key" if credential == CREDENTIALS[0] else "token"
        how = " < app.private-key.pem" if credential == CREDENTIALS[0] else ""
        yield Problem(
            key,
            f"a {kind} in clear text: anyone who can read this file can use it",
            "an encrypted value (secure: ...)",
            f"remove it, revoke it if it was ever committed, and run: pulumi config set --secret {credential}{how}",
        )


_SECRET_NAME = re.compile(r"(^|:)(.*[a-z_])?(secret_?key|secret|token|password|api_?key|private_?key)$", re.I)
"""Full keys of providers' credentials, such as `aws:secretKey`."""


def _decoded(text: str) -> str:
    """Return what a text says in base64, on one line or on many; nothing if it is not base64."""
    try:
        compact = "".join(text.split()).rstrip("=")
        return base64.b64decode(compact + "=" * (-len(compact) % 4), validate=True).decode("ascii")
    except ValueError:
        return ""


def _texts(value: Any, key: Key) -> Iterator[tuple[Key, str]]:
    match value:
        case str():
            yield key, value
        case {"secure": str(), **rest} if not rest:
            return
        case dict():
            for name, item in value.items():
                if CLEAR_TEXT.search(name):
                    yield key, name
                    continue
                yield from _texts(item, (*key, name))
        case list():
            for index, item in enumerate(value):
                yield from _texts(item, (*key, index))
