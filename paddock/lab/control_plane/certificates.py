"""Who is who in the lab: one certificate authority, one server certificate, a signing key and a token for each client.

Made by the `openssl` program, with keys that never leave the state folder. Clients prove themselves by random tokens
that the API server reads from a file: one secret each instead of a key, a request and a certificate.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from paddock.lab.errors import LabError

USERS: Mapping[str, tuple[str, ...]] = {
    "admin": ("system:masters",),
    "kwok": ("system:masters",),
    "system:kube-controller-manager": (),
    "system:kube-scheduler": (),
}
"""Clients of the API server and their groups; what the two without a group may do is in Kubernetes' own roles."""

_DAYS = "3650"
_NAMES = (
    "IP:127.0.0.1,IP:10.0.0.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc"
    ",DNS:kubernetes.default.svc.cluster.local"
)


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of the lab's certificates; made once, valid as long as the lab's state is kept."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """Of every server here, and of the API server as etcd's client."""
        return self.folder / "server.crt"

    @property
    def key(self) -> Path:
        return self.folder / "server.key"

    @property
    def accounts_key(self) -> Path:
        """Signs the tokens of service accounts."""
        return self.folder / "accounts.key"

    @property
    def tokens(self) -> Path:
        """Static tokens, as kube-apiserver's --token-auth-file reads them."""
        return self.folder / "tokens.csv"

    def token(self, user: str) -> str:
        rows = (line.split(",") for line in self.tokens.read_text().splitlines())
        return next(row[0] for row in rows if row[1] == user)


def create(folder: Path, openssl: Path) -> Identity:
    """Makes what is not there yet. Raises LabError."""
    identity = Identity(folder)
    marker = folder / "complete"
    if marker.exists():
        return identity
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority_key, request, extensions = folder / "ca.key", folder / "server.csr", folder / "server.ext"
    for key in (authority_key, identity.key, identity.accounts_key):
        _run(openssl, "ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", key)
    usage = "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"
    subject = ("-subj", "/CN=paddock-lab", "-addext", "basicConstraints=critical,CA:TRUE", "-addext", usage)
    signed = ("-sha256", "-days", _DAYS)
    _run(openssl, "req", "-x509", "-new", "-key", authority_key, *signed, *subject, "-out", identity.authority)
    _run(openssl, "req", "-new", "-key", identity.key, "-subj", "/CN=kube-apiserver", "-out", request)
    extensions.write_text(
        "basicConstraints=CA:FALSE\nkeyUsage=critical,digitalSignature\nextendedKeyUsage=serverAuth,clientAuth\n"
        # Python 3.13 refuses a certificate that does not name its issuer's key.
        f"authorityKeyIdentifier=keyid\nsubjectKeyIdentifier=hash\nsubjectAltName={_NAMES}\n"
    )
    issuer = ("-CA", identity.authority, "-CAkey", authority_key, "-set_serial", f"0x{secrets.token_hex(12)}")
    _run(
        openssl, "x509", "-req", "-in", request, *signed, *issuer, "-extfile", extensions, "-out", identity.certificate
    )
    write_private(identity.tokens, "".join(f"{_row(user, groups)}\n" for user, groups in USERS.items()))
    request.unlink()
    extensions.unlink()
    marker.touch()
    return identity


def kubeconfig(identity: Identity, server: str, user: str, context: str = "paddock-lab") -> str:
    """A kubeconfig with everything inside: it can be handed on as one text. JSON, which is YAML too."""
    authority = base64.b64encode(identity.authority.read_bytes()).decode()
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": context, "cluster": {"server": server, "certificate-authority-data": authority}}],
        "users": [{"name": user, "user": {"token": identity.token(user)}}],
        "contexts": [{"name": context, "context": {"cluster": context, "user": user}}],
        "current-context": context,
    }
    return f"{json.dumps(config, indent=2)}\n"


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner ever could read, whole or not at all. Raises LabError, for a full disk too."""
    part = path.with_name(f".{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
        part.replace(path)
    except OSError as error:
        raise LabError(
            f"cannot write {path}: {error.strerror}\n    fix: make room there, or PADDOCK_LAB_STATE=<another folder>"
        ) from None


def _row(user: str, groups: tuple[str, ...]) -> str:
    return ",".join((secrets.token_urlsafe(32), user, user, *groups))


def _run(openssl: Path, *words: str | Path) -> None:
    # Of the child alone: this process may be making a second lab in another thread.
    done = subprocess.run([openssl, *words], capture_output=True, text=True, check=False, timeout=60, umask=0o077)
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise LabError(
            f"{openssl} {words[0]} failed: {said}\n    fix: is the disk full, or is this not OpenSSL 1.1.1 or newer?"
        )
