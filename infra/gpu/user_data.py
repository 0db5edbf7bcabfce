"""User data of GPU nodes. Pure text: nothing here talks to AWS."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.gpu import access as gpu_access
from paddock.catalog import InstanceType
from paddock.fleet.model.pool import GpuPool, Mig
from paddock.fleet.nodes import Taint

_BOUNDARY = "==PADDOCK=="


@dataclass(frozen=True, slots=True)
class Join:
    """Cluster data that a node with a custom image needs; for its own images EKS adds all of it by itself."""

    cluster: Mapping[str, str]
    """name, apiServerEndpoint, certificateAuthority, cidr."""
    labels: Mapping[str, str]
    taint: Taint

    def kubelet_flags(self) -> list[str]:
        """Labels and taint from the first second on; later there is a gap in which any pod gets onto the node."""
        labels = ",".join(f"{key}={value}" for key, value in self.labels.items())
        taint = f"{self.taint.key}={self.taint.value}:{self.taint.effect}"
        return [f"--node-labels={labels}", f"--register-with-taints={taint}"]


def node_config(pool: GpuPool, max_pods: int, join: Join | None = None) -> dict[str, Any]:
    """nodeadm's NodeConfig for an AL2023 GPU node; `join` only with an image of one's own."""
    spec = _every_node()
    spec["kubelet"]["config"]["maxPods"] = max_pods
    # The kubelet's reserve follows this expression, not maxPods: that is what returns the memory.
    spec["kubelet"]["maxPodsExpression"] = str(max_pods)
    if pool.nvme == "auto" and any(instance.nvme_count for instance in pool.types):
        spec["instance"] = {"localStorage": {"strategy": "RAID0"}}
    if join is not None:
        spec["cluster"] = dict(join.cluster)
        spec["kubelet"]["flags"] = join.kubelet_flags()
    return _config(spec)


def drop_in(*, pre_pulled: bool) -> str:
    """The part of a NodeConfig that is in an image of ours, and wins over user data."""
    spec = _every_node()
    if pre_pulled:
        # nodeadm copies what is there to the RAID0 before the kubelet starts: for an image that EBS has yet to fetch
        # from its snapshot, that takes longer than to pull it. Jobs still have their files on the NVMe disks.
        spec["instance"] = {"localStorage": {"disabledMounts": ["Containerd", "SOCI"]}}
    return yaml.safe_dump(_config(spec), sort_keys=True)


def pulls_fast(instance: InstanceType) -> bool:
    """Return whether nodeadm follows FastImagePull there and uses the SOCI snapshotter, by its own condition."""
    return instance.vcpus >= 4 and instance.memory_mib >= 7 * 1024


def settings(pool: GpuPool, *, on_bottlerocket: bool) -> frozenset[str]:
    """Return the settings of a pool's user data that not every image follows, as the catalogue calls them.

    Which release does is in paddock/catalog/data/versions.json.
    """
    on_nvme = pool.nvme == "auto" and any(instance.nvme_count for instance in pool.types)
    if on_bottlerocket:
        return frozenset({"device-list-strategy"} | ({"bootstrap-commands"} if on_nvme else set()))
    named = {"max-pods-expression"} | ({"raid0"} if on_nvme else set())
    if any(map(pulls_fast, pool.types)):
        named |= {"fast-image-pull"} | ({"images-on-raid0"} if on_nvme else set())
    return frozenset(named)


def image_settings(*, pre_pulled: bool) -> frozenset[str]:
    """Return the same of `drop_in`, which the release that an image of ours is built from must follow."""
    return frozenset({"drop-ins", "fast-image-pull"} | ({"soci-unmounted"} if pre_pulled else set()))


def _every_node() -> dict[str, Any]:
    return {
        # Parallel pull and unpack: a 10 GB CUDA image in a third of the time.
        "featureGates": {"FastImagePull": True},
        "kubelet": {"config": {"serializeImagePulls": False}},
    }


def _config(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "node.eks.aws/v1alpha1", "kind": "NodeConfig", "spec": dict(spec)}


def al2023(pool: GpuPool, max_pods: int, join: Join | None = None) -> str:
    """The MIME document that AL2023 boots with."""
    parts = [
        ("application/node.eks.aws", _yaml(json.dumps(node_config(pool, max_pods, join)))),
        # First of the scripts: that of MIG may reboot, and none runs a second time.
        ("text/x-shellscript", gpu_access_script()),
    ]
    if isinstance(pool.sharing, Mig):
        parts.append(("text/x-shellscript", mig_script(pool.sharing.mig)))
    body = "".join(f"--{_BOUNDARY}\nContent-Type: {kind}\n\n{text}\n" for kind, text in parts)
    return f'MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary="{_BOUNDARY}"\n\n{body}--{_BOUNDARY}--\n'


@functools.cache
def _yaml(document: str) -> str:
    """Return a JSON document as YAML. Most pools of a fleet have the same one, and writing YAML is slow."""
    return yaml.safe_dump(json.loads(document), sort_keys=True)


def gpu_access_script() -> str:
    """Makes the node hand out GPUs by the device plugin's mounts alone, whatever its image has as default.

    nodeadm starts the kubelet after cloud-init's scripts. A node without the setting takes no jobs: it does not join.
    """
    return f"""#!/bin/bash
set -euo pipefail
trap 'systemctl disable --now nodeadm-run.service' ERR
{gpu_access.NVIDIA_CTK}
"""


def mig_script(profile: str) -> str:
    """Cuts every GPU into as many instances of `profile` as it holds, before the kubelet starts.

    A unit, as cloud-init runs scripts once: after a reboot the instances are gone, and the driver may load later than
    the script runs.
    """
    return Path(__file__).with_name("mig.sh").read_text(encoding="utf-8").replace("PROFILE", profile)


def bottlerocket(pool: GpuPool, max_pods: int) -> str:
    """Bottlerocket's settings: its kubelet computes the reserve from max-pods itself."""
    lines = ["[settings.kubernetes]", f"max-pods = {max_pods}", *gpu_access.bottlerocket_settings()]
    if pool.nvme == "auto" and any(instance.nvme_count for instance in pool.types):
        lines += [
            "[settings.bootstrap-commands.local-storage]",
            'commands = [["apiclient", "ephemeral-storage", "init"],'
            ' ["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet"]]',
            'mode = "always"',
            "essential = true",
        ]
    return "\n".join(lines) + "\n"
