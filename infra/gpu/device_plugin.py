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
from paddock.fleet import Fleet, nodes
from paddock.fleet.model.pool import GpuPool, Mig, Mps, TimeSlicing
from paddock.fleet.sizing import daemonsets

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
            release_name="nvidia-device-plugin",
            namespace=NAMESPACE,
            values=values(fleet),
            depends_on=cluster.ready,
        )
        self.register_outputs({})


def values(fleet: Fleet) -> dict[str, Any]:
    """Values of the chart."""
    # NFD's own default tolerates another value of our taint, which would keep it off every GPU node.
    tolerations = [nodes.TAINT.toleration()]
    return {
        "config": {
            "map": {
                "default": sharing_config(None),
                **{n: sharing_config(p) for n, p in fleet.pools.items() if p.sharing != "none"},
            },
            "default": "default",
        },
        "deviceListStrategy": gpu_access.STRATEGY,
        "securityContext": dict(gpu_access.DAEMON),
        "tolerations": tolerations,
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _gpu_nodes()}},
        "resources": daemonsets.DEVICE_PLUGIN.kubernetes(),
        # Privileged is the chart's default, and its MPS daemon's only way; written here, where a rule reads it.
        "gfd": {"enabled": True, "securityContext": {"privileged": True}},
        "nfd": {
            "worker": {
                "tolerations": tolerations,
                "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": _gpu_nodes()}},
                "resources": daemonsets.NFD_WORKER.kubernetes(),
            },
            "master": {"nodeSelector": nodes.system_selector(fleet)},
            "gc": {"nodeSelector": nodes.system_selector(fleet)},
        },
    }


def _gpu_nodes() -> dict[str, Any]:
    # Bottlerocket's NVIDIA variant runs a device plugin of its own; two would both claim the GPUs.
    return {
        "nodeSelectorTerms": [
            {
                "matchExpressions": [
                    {"key": f"{nodes.GPU}.present", "operator": "In", "values": ["true"]},
                    {"key": "paddock.dev/device-plugin", "operator": "NotIn", "values": ["bottlerocket"]},
                ]
            }
        ]
    }


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
