"""Parts of a fleet that another stack holds, read through one stack reference each."""

from __future__ import annotations

from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from paddock.fleet import Fleet


def kubernetes_elsewhere(fleet: Fleet) -> k8s.Provider:
    """The cluster of the stack that holds it. Raises RunError where that stack has none."""
    holder = fleet.layers.cluster

    def there(kubeconfig: Any) -> str:
        if kubeconfig is None:
            raise pulumi.RunError(
                f"paddock:layers: {holder} has no cluster\n    fix: pulumi up of that stack, which says cluster: here"
            )
        return str(kubeconfig)

    return k8s.Provider(
        "kubernetes",
        kubeconfig=pulumi.StackReference(holder).get_output("kubeconfig").apply(there),
        cluster_identifier=fleet.cluster_name,
    )
