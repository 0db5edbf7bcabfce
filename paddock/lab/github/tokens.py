"""The tokens of the stand-in for GitHub: JSON web tokens, so that ARC reads from them when they end."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
import time
from pathlib import Path
from typing import Any

from paddock.lab.control_plane.certificates import write_private
from paddock.lab.github.model import Refused

LIFETIME_SECONDS = 3600.0
_LONGEST_APP_TOKEN_SECONDS = 600
"""GitHub refuses an App's token that lives longer."""


class Tokens:
    """Makes tokens and checks them. What is signed needs no list of what was given out."""

    def __init__(self, file: Path | None = None, lifetime: float = LIFETIME_SECONDS) -> None:
        """`file` keeps the key, so that tokens outlive a restart."""
        self.lifetime = lifetime
        if file is None:
            self._key = secrets.token_bytes(32)
            return
        if not file.exists():
            write_private(file, secrets.token_hex(32))
        self._key = bytes.fromhex(file.read_text(encoding="utf-8"))

    def make(self, kind: str, subject: str = "") -> str:
        body = {"kind": kind, "sub": subject, "exp": int(time.time() + self.lifetime)}
        signed = f"{_encoded({'alg': 'HS256', 'typ': 'JWT'})}.{_encoded(body)}"
        return f"{signed}.{self._signature(signed)}"

    def check(self, header: str, kind: str, subject: str = "", scheme: str = "Bearer") -> None:
        """Raises Refused unless an Authorization header holds a token of this kind that has not ended."""
        token = bearer(header, scheme)
        signed, _, signature = token.rpartition(".")
        if not hmac.compare_digest(signature.encode(), self._signature(signed).encode()):
            raise Refused(401, "Unauthorized", "the token is none of this service")
        body = _decoded(signed.partition(".")[2])
        if body["kind"] != kind or body["sub"] != subject:
            raise Refused(401, "Unauthorized", f"the token is for {body['kind']}, and this needs one for {kind}")
        if body["exp"] <= time.time():
            raise Refused(401, "TokenExpiredException", "the token has expired")

    def _signature(self, signed: str) -> str:
        return _text(hmac.new(self._key, signed.encode(), hashlib.sha256).digest())


def bearer(header: str, scheme: str = "Bearer") -> str:
    """The token of an Authorization header. Raises Refused."""
    prefix, _, token = header.partition(" ")
    if prefix.casefold() != scheme.casefold() or not token.strip():
        raise Refused(401, "Unauthorized", f"expected: Authorization: {scheme} <token>")
    return token.strip()


def check_app_token(header: str) -> str:
    """What GitHub wants of an App's own token, but for its signature; returns the issuer. Raises Refused."""
    parts = bearer(header).split(".")
    if len(parts) != 3 or not all(parts):
        raise Refused(401, "Unauthorized", "A JSON web token could not be decoded")
    head, body, now = _decoded(parts[0]), _decoded(parts[1]), time.time()
    if head.get("alg") != "RS256":
        raise Refused(401, "Unauthorized", "A JSON web token could not be decoded: it must be signed with RS256")
    if not body.get("iss"):
        raise Refused(401, "Unauthorized", "Missing 'issuer' claim ('iss') in assertion")
    try:
        issued, ends = float(body["iat"]), float(body["exp"])
    except (KeyError, TypeError, ValueError):
        raise Refused(401, "Unauthorized", "'iat' and 'exp' must be numeric values") from None
    if ends <= now:
        raise Refused(401, "Unauthorized", "'Expiration time' claim ('exp') must be in the future")
    if ends - now > _LONGEST_APP_TOKEN_SECONDS or issued > now + 60:
        raise Refused(401, "Unauthorized", "'Expiration time' claim ('exp') is too far in the future")
    return str(body["iss"])


def _encoded(value: dict[str, Any]) -> str:
    return _text(json.dumps(value).encode())


def _text(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _decoded(text: str) -> dict[str, Any]:
    try:
        claims = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (binascii.Error, ValueError):
        claims = None
    if not isinstance(claims, dict):
        raise Refused(401, "Unauthorized", "A JSON web token could not be decoded")
    return claims
