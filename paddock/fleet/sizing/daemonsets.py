"""Pods on every node beside the jobs, and their requests.

Numbers of Helm charts are ours: the charts are installed with the requests that stand here. Numbers of EKS add-ons are
their published defaults. Several add-ons request no memory although they use some; Kubernetes does not count it, and
`paddock.fleet.sizing.capacity` leaves a margin for it.
"""

from __future__ import annotations

from dataclasses import dataclass

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


# Two containers of 25m each, aws-node and the network policy agent; no memory. Chart aws-vpc-cni, and 50m / 0 on EKS
# 1.34 nodes (2025-12).
AWS_NODE = DaemonSet("aws-node", 50, 0, "every node of an EKS cluster")

# 100m, no memory: EKS add-on kube-proxy, on EKS 1.32 and 1.34 nodes (2025-11, 2025-12). kubeadm's asks nothing.
KUBE_PROXY = DaemonSet("kube-proxy", 100, 0, "every node of an EKS cluster")

# `resources: {}` in aws/eks-pod-identity-agent, charts/eks-pod-identity-agent/values.yaml (2025).
POD_IDENTITY_AGENT = DaemonSet("eks-pod-identity-agent", 0, 0, "every node of an EKS cluster")

# 10m / 30Mi in aws/eks-node-monitoring-agent, charts/.../values.yaml of v1.5.1 (2026).
NODE_MONITORING_AGENT = DaemonSet("eks-node-monitoring-agent", 10, 30, "every node of an EKS cluster")

# `dcgmAgent.resources: {}` of the same chart. Its affinity names the GPU types, but it tolerates no taint by default:
# it runs on tainted GPU nodes only where the add-on is told to, so it is counted as a pod that asks for nothing.
DCGM_SERVER = DaemonSet("dcgm-server", 0, 0, "GPU nodes of an EKS cluster with the node monitoring agent")

# Three containers of 10m / 40Mi: charts/aws-ebs-csi-driver/values.yaml, and 30m / 120Mi on EKS 1.34 nodes (2025-12).
EBS_CSI_NODE = DaemonSet("ebs-csi-node", 30, 120, "every node, when a runner has an EBS volume")

# Set by us; the charts' own default is none. The worker's is NFD's own, 5m / 64Mi (chart 0.19).
DEVICE_PLUGIN = DaemonSet("nvidia-device-plugin", 10, 64, "GPU nodes whose image has no device plugin")
GPU_FEATURE_DISCOVERY = DaemonSet("gpu-feature-discovery", 10, 64, "GPU nodes whose image has no device plugin")
NFD_WORKER = DaemonSet("node-feature-discovery-worker", 5, 64, "GPU nodes whose image has no device plugin")
MPS_CONTROL_DAEMON = DaemonSet("mps-control-daemon", 10, 64, "GPU nodes that share their GPUs through MPS")

# Set by us, memory as request and limit: below 512Mi DCGM was OOM-killed on 8-GPU nodes.
DCGM_EXPORTER = DaemonSet("dcgm-exporter", 100, 512, "GPU nodes, when monitoring is enabled")


# Set by us, memory as request and limit: 32 MiB of buffers, and what Fluent Bit is itself (aws/eks-charts asks 50m and
# 50Mi for it, limit 250Mi; read 2026-11-23).
FLUENT_BIT = DaemonSet("fluent-bit", 50, 128, "nodes of runner pods, when logs.jobs goes to CloudWatch")


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
