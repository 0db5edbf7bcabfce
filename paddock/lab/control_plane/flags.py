"""The command line of each program of the control plane. Pure data."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from paddock.lab.control_plane.identity import Identity

_NODES = "198.51.100"
"""TEST-NET-2: addresses that are written into objects and never dialled."""


def command_lines(
    folder: Path, programs: Mapping[str, Path], ports: Mapping[str, int], identity: Identity
) -> dict[str, list[str]]:
    """Return the command line of each program."""
    client, peer = (f"https://127.0.0.1:{ports[name]}" for name in ("etcd", "etcd-peer"))
    certificate, key, authority = identity.certificate, identity.key, identity.authority
    tls = {"tls-cert-file": certificate, "tls-private-key-file": key}
    services = {"service-cluster-ip-range": "10.0.0.0/16"}
    fast = {"kube-api-qps": 500, "kube-api-burst": 1000}  # else the first service account comes 5 s later

    def serving(name: str) -> dict[str, object]:
        config = folder / "kubeconfigs" / name
        address = {"bind-address": "127.0.0.1", "secure-port": ports[name], "profiling": "false", **tls}
        return {
            "kubeconfig": config,
            "authentication-kubeconfig": config,
            "authorization-kubeconfig": config,
            **address,
        }

    options: dict[str, dict[str, object]] = {
        "etcd": {
            "name": "lab",
            "data-dir": folder / "etcd",
            "unsafe-no-fsync": "true",
            "listen-client-urls": client,
            "advertise-client-urls": client,
            "listen-peer-urls": peer,
            "initial-advertise-peer-urls": peer,
            "initial-cluster": f"lab={peer}",
            "cert-file": certificate,
            "key-file": key,
            "trusted-ca-file": authority,
            "client-cert-auth": "true",
            "peer-cert-file": certificate,
            "peer-key-file": key,
            "peer-trusted-ca-file": authority,
            "peer-client-cert-auth": "true",
        },
        "kube-apiserver": {
            "etcd-servers": client,
            "etcd-cafile": authority,
            "etcd-certfile": certificate,
            "etcd-keyfile": key,
            "bind-address": "127.0.0.1",
            "secure-port": ports["kube-apiserver"],
            **tls,
            # Part of an Endpoints object, which may not name loopback; never dialled.
            "advertise-address": f"{_NODES}.1",
            **services,
            "token-auth-file": identity.tokens,
            "service-account-issuer": "https://kubernetes.default.svc.cluster.local",
            "service-account-key-file": identity.accounts_key,
            "service-account-signing-key-file": identity.accounts_key,
            "authorization-mode": "Node,RBAC",
            "allow-privileged": "true",
            "profiling": "false",
        },
        "kube-controller-manager": {
            **serving("kube-controller-manager"),
            "leader-elect": "false",
            **fast,
            **services,
            "use-service-account-credentials": "true",
            "service-account-private-key-file": identity.accounts_key,
            "root-ca-file": authority,
            "allocate-node-cidrs": "true",
            "cluster-cidr": "10.1.0.0/16",
            "node-cidr-mask-size": 24,
        },
        # At v=4 the log names the taints that kept a pod away; the event no longer does.
        "kube-scheduler": {**serving("kube-scheduler"), "leader-elect": "false", **fast, "v": 4},
        "kwok": {
            "kubeconfig": folder / "kubeconfigs" / "kwok",
            "manage-nodes-with-annotation-selector": "kwok.x-k8s.io/node=fake",
            "node-ip": f"{_NODES}.2",
            "cidr": "10.2.0.0/16",
            "node-lease-duration-seconds": 40,
            "config": Path(__file__).with_name("stages.yaml"),
            "server-address": f"127.0.0.1:{ports['kwok']}",
            **tls,
        },
    }
    return {
        name: [str(programs[name]), *(f"--{option}={value}" for option, value in flags.items())]
        for name, flags in options.items()
    }
