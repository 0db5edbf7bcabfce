"""Parts of a fleet that another stack holds, read through one stack reference each."""

from __future__ import annotations

import pulumi
import pulumi_kubernetes as k8s

from paddock.fleet import Fleet


def kubernetes_elsewhere(fleet: Fleet) -> k8s.Provider:
    """The cluster of the stack that holds it."""
    reference = pulumi.StackReference(fleet.layers.cluster)
    return k8s.Provider(
        "kubernetes",
        kubeconfig=reference.require_output("kubeconfig").apply(str),
        cluster_identifier=fleet.cluster_name,
    )
