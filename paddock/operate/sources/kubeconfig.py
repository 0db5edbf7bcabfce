"""Kubeconfig files as kubectl takes them: one context's server, trust and credential."""

from __future__ import annotations

import base64
import json
import os
import ssl
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from paddock.errors import did_you_mean, one_line
from paddock.operate.sources.unavailable import Unavailable
from paddock.terminal import BadFlag

_PATIENCE = 20.0
"""Seconds for the program that a kubeconfig names for its credential, such as `aws eks get-token`."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A server with what it takes to ask it."""

    context: str
    server: str
    trust: ssl.SSLContext = field(repr=False)
    token: str = field(repr=False)
    named: bool = True
    """False where the context is only the current one, and no name says that it is the fleet's."""


def paths(chosen: Path | None) -> list[Path]:
    """Return the files that kubectl would read."""
    if chosen:
        return [chosen]
    named = [Path(part) for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return named or [Path.home() / ".kube/config"]


def load(chosen: Path | None, context: str | None, cluster_name: str) -> Cluster:
    """Return the context of that name, else the one of the fleet's cluster, else the current one.

    Raises BadFlag for a file or context that is not there, Unavailable where no credential can be had.
    """
    document = _merged(paths(chosen))
    contexts = {str(entry["name"]): entry["context"] for entry in document["contexts"]}
    if context and context not in contexts:
        hint = did_you_mean(context, contexts, f"one of {', '.join(sorted(contexts)) or 'none'}")
        raise BadFlag(f"--context {context}: the kubeconfig has none of that name\n    expected: {hint}")
    own = [name for name, entry in contexts.items() if _is_of(str(entry.get("cluster", "")), cluster_name)]
    name = context or (own[0] if own else document["current"])
    if name not in contexts:
        raise BadFlag(
            f"the kubeconfig has no context for {cluster_name}, and no current one"
            f"\n    expected: a context of that cluster\n    fix: aws eks update-kubeconfig --name {cluster_name}"
        )
    entry = contexts[name]
    clusters = {str(item["name"]): item["cluster"] for item in document["clusters"]}
    users = {str(item["name"]): item["user"] for item in document["users"]}
    try:
        cluster, user = clusters[entry["cluster"]], users.get(entry.get("user", ""), {}) or {}
        trust = _trust(cluster, user)
        return Cluster(name, str(cluster["server"]), trust, _token(user), bool(context or own))
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise Unavailable(
            f"context {name} of the kubeconfig is not whole: {one_line(str(error))}",
            f"aws eks update-kubeconfig --name {cluster_name}",
        ) from None


def _is_of(cluster: str, name: str) -> bool:
    """Return whether a kubeconfig's cluster is the EKS cluster of that name, as the AWS CLI and eksctl write them."""
    return cluster == name or cluster.endswith(f":cluster/{name}") or cluster.startswith(f"{name}.")


def _merged(files: Sequence[Path]) -> dict[str, Any]:
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
        for key in ("contexts", "clusters", "users"):
            result[key] += [item for item in document.get(key) or [] if isinstance(item, Mapping) and "name" in item]
        result["current"] = result["current"] or str(document.get("current-context") or "")
    if not read:
        raise BadFlag(
            f"there is no kubeconfig: {', '.join(map(str, files))}\n    expected: the file that kubectl reads"
            "\n    fix: aws eks update-kubeconfig --name CLUSTER, or --kubeconfig FILE"
        )
    return result


def _trust(cluster: Mapping[str, Any], user: Mapping[str, Any]) -> ssl.SSLContext:
    if data := cluster.get("certificate-authority-data"):
        trust = ssl.create_default_context(cadata=base64.b64decode(data).decode())
    else:
        trust = ssl.create_default_context(cafile=cluster.get("certificate-authority"))
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


def _token(user: Mapping[str, Any]) -> str:
    if token := user.get("token"):
        return str(token)
    if path := user.get("tokenFile"):
        return Path(path).read_text(encoding="ascii").strip()
    return _from_program(user["exec"]) if "exec" in user else ""


def _from_program(program: Mapping[str, Any]) -> str:
    """Return the token that a credential program prints. Raises Unavailable, with none of it."""
    command = [str(program["command"]), *map(str, program.get("args") or [])]
    own = {str(item["name"]): str(item["value"]) for item in program.get("env") or []}
    spec = {"apiVersion": program.get("apiVersion"), "kind": "ExecCredential", "spec": {"interactive": False}}
    said = " ".join(command[:3])
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **own, "KUBERNETES_EXEC_INFO": json.dumps(spec)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{said}, which the kubeconfig names, does not run: {type(error).__name__}", said) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise Unavailable(f"{said}, which the kubeconfig names, failed: {one_line(lines[-1])}", said)
    return str(json.loads(done.stdout)["status"]["token"])
