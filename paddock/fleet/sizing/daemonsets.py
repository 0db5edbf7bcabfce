"""Pods on every node besides the jobs, and their requests.

Numbers of Helm charts are ours: the charts are installed with the requests listed here. Numbers of EKS add-ons are
their published defaults. Several add-ons request no memory although they use some; Kubernetes does not count it, and
`paddock.fleet.sizing.capacity` leaves a margin for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from paddock.fleet.model.cluster import KubeconfigCluster
from paddock.fleet.model.fleet import Fleet, once_per_fleet
from paddock.fleet.model.pool import Bottlerocket, GpuPool, Mps
from paddock.fleet.model.quantity import format_cpu, format_memory


@dataclass(frozen=True, slots=True)
class DaemonSet:
    """One pod a node. `cpu_m` millicores and `memory_mib` MiB are the sum of its containers' requests."""

    name: str
    cpu_m: int
    memory_mib: int
    when: str

    def kubernetes(self) -> dict[str, dict[str, str]]:
        """`resources` of its one container: memory is request and limit, CPU only a request."""
        memory = {"memory": format_memory(self.memory_mib)}
        return {"requests": {"cpu": format_cpu(self.cpu_m), **memory}, "limits": memory}


_TEXT = Path(__file__).with_name("daemonsets.yaml").read_text(encoding="utf-8")
_ROWS = yaml.load(_TEXT, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506 - a safe one, in C
_DAEMONSETS = {row["name"]: DaemonSet(**row) for row in _ROWS}

AWS_NODE = _DAEMONSETS["aws-node"]
KUBE_PROXY = _DAEMONSETS["kube-proxy"]
POD_IDENTITY_AGENT = _DAEMONSETS["eks-pod-identity-agent"]
NODE_MONITORING_AGENT = _DAEMONSETS["eks-node-monitoring-agent"]
DCGM_SERVER = _DAEMONSETS["dcgm-server"]
EBS_CSI_NODE = _DAEMONSETS["ebs-csi-node"]
DEVICE_PLUGIN = _DAEMONSETS["nvidia-device-plugin"]
GPU_FEATURE_DISCOVERY = _DAEMONSETS["gpu-feature-discovery"]
NFD_WORKER = _DAEMONSETS["node-feature-discovery-worker"]
MPS_CONTROL_DAEMON = _DAEMONSETS["mps-control-daemon"]
DCGM_EXPORTER = _DAEMONSETS["dcgm-exporter"]
FLUENT_BIT = _DAEMONSETS["fluent-bit"]


@once_per_fleet
def gpu_node_daemonsets(fleet: Fleet, pool: GpuPool) -> tuple[DaemonSet, ...]:
    """Return the DaemonSets on each node of the pool.

    A cluster reached by a kubeconfig has DaemonSets of its own that nobody here knows: for it this is what Paddock
    adds, and AWS's are left out.
    """
    daemonsets = list(node_daemonsets(fleet))
    if not isinstance(fleet.cluster, KubeconfigCluster):
        daemonsets.append(DCGM_SERVER)
    if not isinstance(pool.ami, Bottlerocket):
        daemonsets += [DEVICE_PLUGIN, GPU_FEATURE_DISCOVERY, NFD_WORKER]
    if isinstance(pool.sharing, Mps):
        daemonsets.append(MPS_CONTROL_DAEMON)
    if fleet.monitoring.enabled:
        daemonsets.append(DCGM_EXPORTER)
    if fleet.logs.jobs.to == "cloudwatch" and FLUENT_BIT not in daemonsets:
        daemonsets.append(FLUENT_BIT)
    return tuple(daemonsets)


def node_daemonsets(fleet: Fleet) -> tuple[DaemonSet, ...]:
    """Return the DaemonSets on every node, with a GPU or without."""
    if isinstance(fleet.cluster, KubeconfigCluster):
        return ()
    storage = (EBS_CSI_NODE,) if fleet.uses_ebs_volumes else ()
    logs = (FLUENT_BIT,) if fleet.logs.jobs.to == "cloudwatch" and fleet.steers_job_pods else ()
    return (AWS_NODE, KUBE_PROXY, POD_IDENTITY_AGENT, NODE_MONITORING_AGENT, *storage, *logs)
