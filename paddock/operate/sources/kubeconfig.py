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

from paddock.errors import did_you_mean, one_line
from paddock.fleet import Fleet
from paddock.kube.client import Api, Token
from paddock.kube.connection import DIRECT, Route, proxy_of
from paddock.operate.sources import tokens
from paddock.operate.sources.unavailable import Unavailable
from paddock.terminal import BadFlag


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server with what it takes to ask it."""

    context: str
    server: str
    trust: ssl.SSLContext = field(repr=False)
    token: str | Token = field(repr=False)
    named: bool = True
    """False where the context is only the current one, and no name says that it is the fleet's."""
    route: Route = DIRECT

    def api(self, seconds: float) -> Api:
        """Return a client whose requests take at most so many seconds."""
        return Api(self.server, self.token, self.trust, seconds, self.route)


def paths(chosen: Path | None) -> list[Path]:
    """Return the files that kubectl would read."""
    if chosen:
        return [chosen]
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path.home() / ".kube/config"]


def load(chosen: Path | None, context: str | None, fleet: Fleet) -> Cluster:
    """Return the context of that name, else the one of the fleet's cluster, else the current one.

    Raises BadFlag for a file or context that is not there, Unavailable where no credential can be had.
    """
    document, cluster_name = _merged(paths(chosen), fleet), fleet.cluster_name
    contexts = {str(entry["name"]): entry["context"] for entry in document["contexts"]}
    if context and context not in contexts:
        hint = did_you_mean(context, contexts, f"one of {', '.join(sorted(contexts)) or 'none'}")
        raise BadFlag(f"--context {context}: the kubeconfig has none of that name\n    expected: {hint}")
    own = [name for name, entry in contexts.items() if _is_of(str(entry.get("cluster", "")), fleet)]
    name = context or _only(own, document["current"], cluster_name) or document["current"]
    if name not in contexts:
        raise BadFlag(
            f"the kubeconfig has no context for {cluster_name}, and no current one"
            f"\n    expected: a context of that cluster\n    fix: {_update(fleet)}"
        )
    entry = contexts[name]
    clusters = {str(item["name"]): item["cluster"] for item in document["clusters"]}
    users = {str(item["name"]): item["user"] for item in document["users"]}
    try:
        cluster, user = clusters[entry["cluster"]], users.get(entry.get("user", ""), {}) or {}
        server = str(cluster["server"])
        route = Route(str(cluster.get("proxy-url") or proxy_of(server)), str(cluster.get("tls-server-name") or ""))
        token = "" if server.startswith("http:") else tokens.of(user)  # as kubectl: no credential goes in clear
        result = Cluster(name, server, _trust(cluster, user), token, bool(context or own), route)
        result.api(1.0).close()  # a proxy of a kind that is not known is said now
        return result
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise Unavailable(
            f"context {name} of the kubeconfig is not whole: {one_line(str(error))}",
            _update(fleet),
        ) from None


def _update(fleet: Fleet) -> str:
    """Return the command that writes the cluster's context."""
    return f"aws eks update-kubeconfig --name {fleet.cluster_name} --region {fleet.region}"


def _is_of(cluster: str, fleet: Fleet) -> bool:
    """Return whether a kubeconfig's cluster is the fleet's EKS cluster, as the AWS CLI and eksctl write them."""
    name = fleet.cluster_name
    if cluster.startswith("arn:"):  # arn:aws:eks:us-west-2:123456789012:cluster/NAME
        return cluster.endswith(f":cluster/{name}") and cluster.split(":")[3] == fleet.region
    return cluster in (name, f"{name}.{fleet.region}.eksctl.io")


def _only(own: Sequence[str], current: str, cluster_name: str) -> str:
    """Return the one context of a cluster's, empty for none. Raises BadFlag for several of which none is current."""
    if len(own) < 2:
        return "".join(own)
    if current in own:
        return current
    raise BadFlag(
        f"the kubeconfig has {len(own)} contexts for {cluster_name}: {', '.join(own)}"
        f"\n    expected: the one of this fleet's account\n    fix: --context {own[0]}"
    )


def _merged(files: Sequence[Path], fleet: Fleet) -> dict[str, Any]:
    result: dict[str, Any] = {"contexts": [], "clusters": [], "users": [], "current": ""}
    read = 0
    for path in files:
        try:
            document = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
        except FileNotFoundError:
            continue
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadFlag(f"{path} is no kubeconfig: {one_line(str(error))}\n    expected: YAML of kubectl's") from None
        if not isinstance(document, Mapping):
            raise BadFlag(f"{path} is no kubeconfig\n    expected: a mapping with clusters, contexts and users")
        read += 1
        for key, part in (("contexts", "context"), ("clusters", "cluster"), ("users", "user")):
            items = [item for item in document.get(key) or [] if isinstance(item, Mapping) and "name" in item]
            result[key] += [{**item, part: _with_paths(item.get(part), path.parent)} for item in items]
        result["current"] = result["current"] or str(document.get("current-context") or "")
    if not read:
        raise BadFlag(
            f"there is no kubeconfig: {', '.join(map(str, files))}\n    expected: the file that kubectl reads"
            f"\n    fix: {_update(fleet)}, or --kubeconfig FILE"
        )
    return result


_FILES = ("certificate-authority", "client-certificate", "client-key", "tokenFile")


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
