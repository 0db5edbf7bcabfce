"""The App's private key, looked at and never shown."""

from __future__ import annotations

import base64
import hashlib
import stat
from dataclasses import dataclass
from pathlib import Path

from paddock.errors import PaddockError

_LARGEST = 64 * 1024
"""Bytes; a key has less than 4 KiB."""


class BadKey(PaddockError):
    """A file that is not a private key of a GitHub App."""

    exit_code = 2


@dataclass(frozen=True, slots=True)
class Key:
    """Properties of a private key that may be seen."""

    file: str
    bits: int
    fingerprint: str
    """GitHub shows the same next to the key in the App's settings."""
    readable_by_others: bool


def read(path: Path) -> Key:
    """Look at a private key. Raises BadKey, whose text never holds any of the file."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

    content = _content(path)
    if b"PRIVATE KEY-----" not in content:
        raise _refused(path, _other_kind(content))
    try:
        key = load_pem_private_key(content.strip() + b"\n", password=None)
    except TypeError:
        raise _refused(path, "the key has a passphrase, which GitHub's keys do not have") from None
    except (ValueError, UnsupportedAlgorithm):
        raise _refused(path, "the key is damaged: a part of it may be missing") from None
    if not isinstance(key, RSAPrivateKey):
        raise _refused(path, "the key is not an RSA key")
    public = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    fingerprint = base64.b64encode(hashlib.sha256(public).digest()).decode()
    others = bool(path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH))
    return Key(str(path), key.key_size, f"SHA256:{fingerprint}", others)


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST)
    except IsADirectoryError:
        raise _refused(path, "it is a folder") from None
    except FileNotFoundError:
        raise _refused(path, "no such file") from None
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from None


def _other_kind(content: bytes) -> str:
    for mark, kind in ((b"PUBLIC KEY-----", "a public key"), (b"CERTIFICATE-----", "a certificate")):
        if mark in content:
            return f"it is {kind}"
    return "it is empty" if not content.strip() else "it is not a key in PEM form"


def _refused(path: Path, why: str) -> BadKey:
    return BadKey(
        f"--key {path}: {why}\n"
        "    expected: the file that GitHub downloads, which begins with -----BEGIN RSA PRIVATE KEY-----\n"
        '    fix: "Generate a private key" on the page of the App\'s settings'
    )
