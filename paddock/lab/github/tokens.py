"""The tokens of the stand-in for GitHub: JSON web tokens, so that ARC reads from them when they end."""

from __future__ import annotations

import secrets
import time
from pathlib import Path

import jwt

from paddock.lab.control_plane.state import write_private
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
        claims = {"kind": kind, "sub": subject, "exp": int(time.time() + self.lifetime)}
        return jwt.encode(claims, self._key, "HS256")

    def check(self, header: str, kind: str, subject: str = "", scheme: str = "Bearer") -> None:
        """Raises Refused unless an Authorization header holds a token of this kind that has not expired."""
        try:
            claims = jwt.decode(bearer(header, scheme), self._key, ["HS256"], options={"verify_exp": False})
        except jwt.InvalidTokenError:
            raise Refused(401, "Unauthorized", "the token is not from this service") from None
        if claims["kind"] != kind or claims["sub"] != subject:
            raise Refused(401, "Unauthorized", f"the token is for {claims['kind']}, and this needs one for {kind}")
        if claims["exp"] <= time.time():
            raise Refused(401, "TokenExpiredException", "the token has expired")

    def check_login(self, header: str) -> None:
        """Check an installation's token, or a personal one, which works like it and may be any other text."""
        if bearer(header).count(".") == 2:
            self.check(header, "installation")


def bearer(header: str, scheme: str = "Bearer") -> str:
    """Return the token of an Authorization header. Raises Refused."""
    prefix, _, token = header.partition(" ")
    if prefix.casefold() != scheme.casefold() or not token.strip():
        raise Refused(401, "Unauthorized", f"expected: Authorization: {scheme} <token>")
    return token.strip()


def check_app_token(header: str) -> str:
    """Check an App's own token as GitHub does, except for its signature, and return the issuer. Raises Refused."""
    try:
        token = jwt.decode_complete(bearer(header), options={"verify_signature": False})
    except jwt.InvalidTokenError:
        raise Refused(401, "Unauthorized", "A JSON web token could not be decoded") from None
    head, claims, now = token["header"], token["payload"], time.time()
    if head.get("alg") != "RS256":
        raise Refused(401, "Unauthorized", "A JSON web token could not be decoded: it must be signed with RS256")
    if not claims.get("iss"):
        raise Refused(401, "Unauthorized", "Missing 'issuer' claim ('iss') in assertion")
    try:
        issued, ends = float(claims["iat"]), float(claims["exp"])
    except (KeyError, TypeError, ValueError):
        raise Refused(401, "Unauthorized", "'iat' and 'exp' must be numeric values") from None
    if ends <= now:
        raise Refused(401, "Unauthorized", "'Expiration time' claim ('exp') must be in the future")
    if ends - now > _LONGEST_APP_TOKEN_SECONDS or issued > now + 60:
        raise Refused(401, "Unauthorized", "'Expiration time' claim ('exp') is too far in the future")
    return str(claims["iss"])
