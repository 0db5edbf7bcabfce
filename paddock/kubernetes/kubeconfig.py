"""Kubeconfig files as kubectl takes them: one context's server, trust and credential."""

from __future__ import annotations

import base64
import os
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paddock.errors import one_line
from paddock.kubernetes import credentials
from paddock.kubernetes.client import Api
from paddock.kubernetes.connection import DIRECT, Route, proxy_of
from paddock.kubernetes.credentials import Token
from paddock.kubernetes.errors import KubeconfigError

_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")
_LAB = "./inv lab.status, then ./inv lab.up"


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server with what it takes to ask it."""

    context: str
    server: str
    trust: ssl.SSLContext = field(repr=False)
    token: str | Token = field(repr=False)
    named: bool = True
    """False where the context is only the current one, and no name says that it is the one that is wanted."""
    route: Route = DIRECT

    def api(self, seconds: float, fix: str = "kubectl get nodes") -> Api:
        """Return a client whose requests take at most so many seconds."""
        return Api(self.server, self.token, self.trust, seconds, self.route, fix)


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """Contents of all of kubectl's files together."""

    contexts: Mapping[str, Any]
    """Of each context: `cluster` and `user`, the names of its parts."""
    clusters: Mapping[str, Any] = field(repr=False)
    users: Mapping[str, Any] = field(repr=False)
    current: str = ""

    def cluster(self, context: str, *, named: bool = True, fix: str = "") -> Cluster:
        """Return the cluster of a context. Raises KubeconfigError, and CredentialError where no token can be had."""
        try:
            entry = self.contexts[context]
            cluster, user = self.clusters[entry["cluster"]], self.users.get(entry.get("user", ""), {}) or {}
            server = str(cluster["server"])
            route = Route(str(cluster.get("proxy-url") or proxy_of(server)), str(cluster.get("tls-server-name") or ""))
            token = "" if server.startswith("http:") else credentials.of(user)  # as kubectl: not over plain HTTP
            result = Cluster(context, server, _trust(cluster, user), token, named, route)
            result.api(1.0).close()  # a proxy of an unknown kind is reported now
            return result
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise KubeconfigError(
                f"context {context} of the kubeconfig is not whole: {one_line(str(error))}\n    fix: {fix}"
            ) from None


def paths(chosen: Path | None) -> list[Path]:
    """Return the files that kubectl would read."""
    if chosen:
        return [chosen]
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path.home() / ".kube/config"]


def read(files: Sequence[Path], fix: str) -> Kubeconfig:
    """Return what the files that exist say together. Raises KubeconfigError, with `fix` where none exists."""
    parts: dict[str, dict[str, Any]] = {"context": {}, "cluster": {}, "user": {}}
    documents: list[Mapping[str, Any]] = []
    for path in files:
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise KubeconfigError(
                f"{path} is not a kubeconfig: {one_line(str(error))}\n    expected: YAML of kubectl's"
            ) from None
        if not isinstance(document, Mapping):
            raise KubeconfigError(
                f"{path} is not a kubeconfig\n    expected: a mapping with clusters, contexts and users"
            )
        documents.append(document)
        for part, known in parts.items():
            for item in document.get(f"{part}s") or []:
                if isinstance(item, Mapping) and "name" in item:
                    known.setdefault(str(item["name"]), _with_paths(item.get(part), path.parent))  # as kubectl
    if not documents:
        raise KubeconfigError(
            f"there is no kubeconfig: {', '.join(map(str, files))}\n    expected: the file that kubectl reads"
            f"\n    fix: {fix}"
        )
    current = next((str(found) for document in documents if (found := document.get("current-context"))), "")
    return Kubeconfig(parts["context"], parts["cluster"], parts["user"], current)


def lab_api(kubeconfig: Path, timeout: float = 30) -> Api:
    """Return a client of a lab's cluster. Raises KubeconfigError."""
    config = read([kubeconfig], _LAB)
    return config.cluster(config.current or next(iter(config.contexts), ""), fix=_LAB).api(timeout, _LAB)


def _with_paths(part: Any, folder: Path) -> Any:
    """Return a part whose files are named from its kubeconfig's folder, as kubectl reads them."""
    if not isinstance(part, Mapping):
        return part
    return {**part, **{key: str(folder / str(part[key])) for key in _FILES if part.get(key)}}


def _trust(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    if data := cluster.get("certificate-authority-data"):
        trust = ssl.create_default_context(cadata=base64.b64decode(data).decode())
    else:
        trust = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
    if cluster.get("insecure-skip-tls-verify") is True:  # the user's own choice, and kubectl's
        trust.check_hostname, trust.verify_mode = False, ssl.CERT_NONE
    certificate, key = user.get("client-certificate"), user.get("client-key")
    if data := user.get("client-certificate-data"):
        with tempfile.TemporaryDirectory() as folder:  # private to this user; OpenSSL takes files alone
            one, two = Path(folder, "certificate"), Path(folder, "key")
            one.write_bytes(base64.b64decode(data))
            two.touch(0o600)
            two.write_bytes(base64.b64decode(user["client-key-data"]))
            trust.load_cert_chain(one, two)
    elif certificate:
        trust.load_cert_chain(certificate, key)
    return trust
