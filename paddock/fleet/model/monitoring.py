"""Metrics of GPUs and alerts on them."""

from __future__ import annotations

from typing import Annotated, Literal

from paddock.fleet.model.base import Matching, Model


class Monitoring(Model):
    """GPU metrics by DCGM and alerts on them."""

    enabled: bool = False
    """Install DCGM Exporter and the alert rules."""
    rules: Literal["configmap", "prometheus-rule"] = "configmap"
    """`prometheus-rule` needs the Prometheus operator's CRDs in the cluster."""
    namespace: Annotated[str, Matching(r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?$", "a namespace")] = "monitoring"
    """Namespace that it all goes to."""
    service_monitor: bool = False
    """Make a ServiceMonitor for DCGM; needs the Prometheus operator's CRDs."""
