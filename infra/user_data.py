"""What a GPU node is told when it boots. Pure text: nothing here talks to AWS."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import yaml

from paddock.fleet.pool import GpuPool, Mig

_BOUNDARY = "==PADDOCK=="


def node_config(pool: GpuPool, max_pods: int, join: Mapping[str, str] | None = None) -> dict[str, Any]:
    """nodeadm's NodeConfig for an AL2023 GPU node.

    `join` (name, apiServerEndpoint, certificateAuthority, cidr) is needed with an image of one's own;
    for EKS's images the managed node group adds it.
    """
    spec: dict[str, Any] = {
        # Parallel pull and unpack: a 10 GB CUDA image in a third of the time.
        "featureGates": {"FastImagePull": True},
        "kubelet": {
            "config": {"maxPods": max_pods, "serializeImagePulls": False},
            # The kubelet's reserve follows this expression, not maxPods: that is what returns the memory.
            "maxPodsExpression": str(max_pods),
        },
    }
    if pool.nvme == "auto" and any(instance.nvme_count for instance in pool.types):
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if join is not None:
        spec["cluster"] = dict(join)
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": spec}


def al2023(pool: GpuPool, max_pods: int, join: Mapping[str, str] | None = None) -> str:
    """The MIME document that AL2023 boots with."""
    parts = [("application/node.eks.aws", yaml.safe_dump(node_config(pool, max_pods, join), sort_keys=True))]
    if isinstance(pool.sharing, Mig):
        parts.append(("text/x-shellscript", mig_script(pool.sharing.mig)))
    body = "".join(f"--{_BOUNDARY}\nContent-Type: {kind}\n\n{text}\n" for kind, text in parts)
    return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n{body}--{_BOUNDARY}--\n'


def mig_script(profile: str) -> str:
    """Cuts every GPU into as many instances of `profile` as it holds, before the kubelet starts."""
    return f"""#!/bin/bash
set -euo pipefail
nvidia-smi -mig 1
nvidia-smi --gpu-reset || true   # A100 applies the mode at a reset; H100 and later at once
for gpu in $(nvidia-smi --query-gpu=index --format=csv,noheader); do
  while nvidia-smi mig -i "$gpu" -cgi {profile} -C; do :; done
  nvidia-smi mig -i "$gpu" -lgi
done
"""


def bottlerocket(pool: GpuPool, max_pods: int) -> str:
    """Bottlerocket's settings: its kubelet computes the reserve from max-pods itself."""
    lines = ["[settings.kubernetes]", f"max-pods = {max_pods}"]
    if pool.nvme == "auto" and any(instance.nvme_count for instance in pool.types):
        lines += [
            "[settings.bootstrap-commands.local-storage]",
            'commands = [["apiclient", "ephemeral-storage", "init"],'
            ' ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet"]]',
            'mode = "always"',
            "essential = true",
        ]
    return "\n".join(lines) + "\n"
