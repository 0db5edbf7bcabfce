"""Stands in for the `aws` command line: its version, and a token for the lab's own cluster."""

from __future__ import annotations

import base64
import json
import os
import sys
from pathlib import Path

import yaml

KUBECONFIG = "PADDOCK_LAB_KUBECONFIG"
"""The cluster that every EKS cluster then is."""


def main(arguments: list[str]) -> int:
    if "--version" in arguments:
        print("aws-cli/2.27.0 Python/3.12 stand-in of paddock's lab")  # noqa: T201 - a program of its own
        return 0
    path = os.environ.get(KUBECONFIG)
    if arguments[:2] != ["eks", "get-token"] or not path:
        print("aws: the lab's stand-in knows only --version and, with a cluster, eks get-token", file=sys.stderr)  # noqa: T201
        return 2
    user = yaml.safe_load(Path(path).read_text(encoding="utf-8"))["users"][0]["user"]
    credential = {
        "token": user.get("token"),
        "clientCertificateData": _pem(user, "client-certificate"),
        "clientKeyData": _pem(user, "client-key"),
    }
    version, status = "client.authentication.k8s.io/v1beta1", {key: value for key, value in credential.items() if value}
    print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "spec": {}, "status": status}))  # noqa: T201
    return 0


def _pem(user: dict[str, str], key: str) -> str | None:
    if data := user.get(f"{key}-data"):
        return base64.b64decode(data).decode()
    return Path(user[key]).read_text(encoding="utf-8") if key in user else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
