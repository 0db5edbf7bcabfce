"""System nodes: what one has for pods, and what runs on them besides the runners of jobs."""

from __future__ import annotations

from paddock.catalog import InstanceType
from paddock.fleet.model.cluster import NewCluster
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.sizing.capacity import (
    EVICTION_MEMORY_MIB,
    Container,
    Resources,
    address_limit,
    capacity,
    reserved,
)
from paddock.fleet.sizing.daemonsets import node_daemonsets

SYSTEM_LOAD = Resources(cpu_m=1000, memory_mib=1536, pods=12)
"""What system nodes carry besides runners: ARC, autoscaler, CoreDNS, NFD master and the EBS CSI controllers."""
METRICS_SERVER = Resources(cpu_m=200, memory_mib=400, pods=2)
"""Two pods of 100m / 200Mi, the add-on's defaults (kubernetes-sigs/metrics-server, charts/metrics-server/values.yaml;
EKS runs two; read 2026-11-23)."""
LISTENER = Resources(cpu_m=50, memory_mib=64, pods=1)
"""One a scale set, at all times: without it GitHub has nobody to give the scale set's jobs to."""

PROMETHEUS = Container(250, 1536, 1536)
"""Some 100 series a GPU and 20 a pod: 1536 MiB hold 100,000 of them with the rules (8 KiB a series; Paddock's estimate,
2026-11-24)."""
KUBE_STATE_METRICS = Container(50, 192, 192)
"""Nodes and pods alone, and seven metrics of theirs (its own advice for all metrics of 100 nodes: 100m, 250Mi)."""

COLLECTOR = Container(100, 256, 256)
"""OpenTelemetry's collector for CloudWatch: ten metrics of each GPU and scale set (Paddock's estimate, 2026-11-24)."""


def system_load(fleet: Fleet) -> Resources:
    """Return what all system nodes together carry besides runners and listeners."""
    metrics = isinstance(fleet.cluster, NewCluster) and fleet.cluster.metrics_server
    load = SYSTEM_LOAD + METRICS_SERVER if metrics else SYSTEM_LOAD
    if fleet.own_prometheus:
        for container in (PROMETHEUS, KUBE_STATE_METRICS):
            load += Resources(container.cpu_m, container.memory_mib, pods=1)
    if fleet.sends_to_cloudwatch:
        load += Resources(COLLECTOR.cpu_m, COLLECTOR.memory_mib, pods=1)
    return load


def system_node(fleet: Fleet, instance: InstanceType) -> Resources:
    """Return what a system node has for pods besides its DaemonSets. It keeps EKS's own maxPods."""
    has, keeps, own = capacity(instance), reserved(instance, instance.max_pods), node_daemonsets(fleet)
    return Resources(
        cpu_m=has.cpu_m - keeps.cpu_m - sum(daemonset.cpu_m for daemonset in own),
        memory_mib=has.cautious_memory_mib
        - keeps.memory_mib
        - EVICTION_MEMORY_MIB
        - sum(daemonset.memory_mib for daemonset in own),
        pods=address_limit(instance) - len(own),
    )
