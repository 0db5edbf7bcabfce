"""Checks of monitoring: one Prometheus, and rules where it reads them."""

from __future__ import annotations

from collections.abc import Iterator

from paddock.fleet.errors import Problem
from paddock.fleet.model.cluster import KubeconfigCluster
from paddock.fleet.model.fleet import Fleet


def problems(fleet: Fleet) -> Iterator[Problem]:
    settings = fleet.monitoring
    for key, reader in (("prometheus", settings.prometheus), ("cloudwatch", settings.cloudwatch)):
        if reader and not settings.enabled:
            yield Problem(
                ("monitoring", key),
                f"there is nothing for {key} to read: monitoring is not enabled",
                "monitoring.enabled: true as well",
                f"write enabled: true, or remove {key}",
            )
    if settings.cloudwatch and isinstance(fleet.cluster, KubeconfigCluster):
        yield Problem(
            ("monitoring", "cloudwatch"),
            "a cluster that is reached by kubeconfig alone cannot give a pod a role in AWS",
            "an EKS cluster",
            "remove cloudwatch, and use prometheus",
        )
    if settings.prometheus is None:
        return
    for key, set_ in (("rules", settings.rules == "prometheus-rule"), ("serviceMonitor", settings.service_monitor)):
        if set_:
            yield Problem(
                ("monitoring", key),
                "that is for a cluster whose Prometheus operator runs a Prometheus already, and there is another in "
                "monitoring.prometheus",
                "one of the two",
                f"remove {key}, or remove prometheus",
            )
