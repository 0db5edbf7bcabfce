"""NVIDIA's device plugin with feature discovery: makes GPUs something a pod can ask for."""

from __future__ import annotations

from typing import Any

import pulumi
import yaml

from infra.cluster.control_plane import Cluster
from infra.component import Component
from infra.gpu import access as gpu_access
from infra.helm import charts
from infra.helm.releases import release
from infra.manifests import manifest
from paddock.fleet import Fleet, nodes
from paddock.fleet.model.pool import GpuPool, Mig, Mps, TimeSlicing
from paddock.fleet.sizing import daemonsets
from paddock.labels import BOTTLEROCKET, DEVICE_PLUGIN

NAMESPACE = "kube-system"


class DevicePlugin(Component):
    """One release for all pools; how a pool shares its GPUs is chosen by a label of its nodes."""

    def __init__(self, name: str, fleet: Fleet, cluster: Cluster, opts: pulumi.ResourceOptions | None = None) -> None:
        super().__init__(name, opts)
        release(
            self,
            name,
            charts.DEVICE_PLUGIN,
            fleet.mirror,
            namespace=NAMESPACE,
            values=values(fleet),
            depends_on=cluster.ready,
            crds=fleet.crds("nfd"),
        )
        self.register_outputs({})


def values(fleet: Fleet) -> dict[str, Any]:
    """Values of the chart."""
    shared = {name: sharing_config(pool) for name, pool in fleet.pools.items() if pool.sharing != "none"}
    values: dict[str, Any] = manifest(
        "device-plugin",
        configs={"default": sharing_config(None), **shared},
        strategy=gpu_access.STRATEGY,
        daemon=dict(gpu_access.DAEMON),
        toleration=nodes.TAINT.toleration(),
        affinity=manifest("gpu-nodes", label=DEVICE_PLUGIN, bottlerocket=BOTTLEROCKET),
        resources=daemonsets.DEVICE_PLUGIN.kubernetes(),
        nfd_worker=daemonsets.NFD_WORKER.kubernetes(),
        selector=nodes.system_selector(fleet),
    )
    return values


def sharing_config(pool: GpuPool | None) -> str:
    """The device plugin's configuration file for a pool, or for pools that do not share."""
    sharing = pool.sharing if pool else "none"
    config: dict[str, Any] = {
        "version": "v1",
        "flags": {"migStrategy": "single" if isinstance(sharing, Mig) else "none"},
    }
    match sharing:
        case TimeSlicing(time_slicing=replicas):
            resources = [{"name": nodes.GPU, "replicas": replicas}]
            config["sharing"] = {"timeSlicing": {"failRequestsGreaterThanOne": True, "resources": resources}}
        case Mps(mps=replicas):
            config["sharing"] = {"mps": {"resources": [{"name": nodes.GPU, "replicas": replicas}]}}
    return yaml.safe_dump(config, sort_keys=True)
