"""KubeRay's operator, which makes pods of a RayService. It may act in the namespace of serving and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from infra.component import Component
from infra.helm import charts
from infra.helm.releases import release
from infra.network.policies import Egress, Port, kubernetes_api, name_service, network_policy, pods_of
from infra.serving.pods import DASHBOARD_PORT, HTTP_PORT, NAMESPACE
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
        namespace = k8s.core.v1.Namespace(
            f"{name}-namespace",
            metadata={"name": OPERATOR_NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
            opts=self.child(),
        )
        self._isolate(namespace, fleet)
        self.release = release(
            self,
            name,
            charts.KUBERAY,
            fleet.mirror,
            release_name="kuberay-operator",
            namespace=namespace.metadata.name,
            values=values(fleet),
            # The chart's Role is in the watched namespace.
            depends_on=[watched, *ready],
        )
        self.register_outputs({})

    def _isolate(self, namespace: k8s.core.v1.Namespace, fleet: Fleet) -> None:
        """Nobody calls it; it calls the Kubernetes API, and Ray's head about its applications."""
        head = Egress(
            to=[pods_of(NAMESPACE)], ports=[Port(port=port, protocol="TCP") for port in (DASHBOARD_PORT, HTTP_PORT)]
        )
        network_policy(
            self,
            f"{self.name}-default",
            k8s.meta.v1.ObjectMetaArgs(name="default", namespace=namespace.metadata.name),
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
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "runAsNonRoot": True,
            "capabilities": {"drop": ["ALL"]},
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
