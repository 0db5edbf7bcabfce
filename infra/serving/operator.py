"""KubeRay's operator, which makes pods of a RayService. It may act in the namespace of serving and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra import workloads
from infra.component import Component
from infra.helm import charts
from infra.helm.releases import release
from infra.network.policies import Egress, kubernetes_api, name_service, network_policy, pods_of, tcp
from infra.serving.pods import CONTAINER_SECURITY, DASHBOARD_PORT, HTTP_PORT, NAMESPACE
from paddock.fleet import Fleet, nodes
from paddock.fleet.sizing import serving as sizing

OPERATOR_NAMESPACE = "ray-system"


class RayOperator(Component):
    """One Helm release after its CRDs, in a namespace without any of Ray's own pods."""

    release: k8s.helm.v3.Release

    def __init__(
        self,
        name: str,
        fleet: Fleet,
        watched: k8s.core.v1.Namespace,
        ready: Sequence[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        """`watched` is the namespace of serving; `ready` is what the operator's pod waits for."""
        super().__init__(name, opts)
        namespace = workloads.closed_namespace(self, OPERATOR_NAMESPACE)
        self._isolate(namespace, fleet)
        self.release = release(
            self,
            name,
            charts.KUBERAY,
            fleet.mirror,
            namespace=namespace.metadata.name,
            values=values(fleet),
            # The chart's Role is in the watched namespace.
            depends_on=[watched, *ready],
            crds=fleet.crds("ray"),
        )
        self.register_outputs({})

    def _isolate(self, namespace: k8s.core.v1.Namespace, fleet: Fleet) -> None:
        """Nobody calls it; it calls the Kubernetes API, and Ray's head about its applications."""
        head = Egress(to=[pods_of(NAMESPACE)], ports=tcp(DASHBOARD_PORT, HTTP_PORT))
        network_policy(
            self,
            f"{self.name}-default",
            workloads.within(namespace, "default"),
            ingress=[],
            egress=[name_service(), head, *kubernetes_api(self, fleet)],
        )


def values(fleet: Fleet) -> dict[str, Any]:
    """Values of the chart. Its tag is written out, as a chart of the same version may have another by default."""
    return {
        "image": {"tag": charts.KUBERAY.images[0].tag},
        "singleNamespaceInstall": True,
        "crNamespacedRbacEnable": True,
        "watchNamespace": [NAMESPACE],
        "nodeSelector": nodes.system_selector(fleet),
        "resources": sizing.OPERATOR.kubernetes(),
        "podSecurityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "securityContext": CONTAINER_SECURITY,
    }
