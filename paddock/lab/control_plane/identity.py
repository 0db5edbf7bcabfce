"""Files that prove who is who in the lab: certificates, keys, tokens and kubeconfigs.

`certificates` creates them. Clients authenticate with random tokens that the API server reads from a file: one secret
each instead of a key, a request and a certificate.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Identity:
    """Files of the lab's certificates; made once, valid as long as the lab's state is kept."""

    folder: Path

    @property
    def authority(self) -> Path:
        return self.folder / "ca.crt"

    @property
    def certificate(self) -> Path:
        """Return the certificate of every server here, and of the API server as etcd's client."""
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


def kubeconfig(identity: Identity, server: str, user: str, context: str = "paddock-lab") -> str:
    """Return a kubeconfig with everything inside: it can be handed on as one text. JSON, which is YAML too."""
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
