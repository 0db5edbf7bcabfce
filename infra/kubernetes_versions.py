"""Kubernetes minors that this program pins add-ons, an autoscaler and kubectl for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from infra import versions
from paddock.catalog import eks_addons
from paddock.fleet import Fleet, NewCluster, Problem


def problems(fleet: Fleet) -> Iterator[Problem]:
    """The problem with the cluster's version, where something that is deployed has no pin for it."""
    minor = fleet.cluster.version
    pins = dict(_pins(fleet))
    unpinned = [name for name, table in pins.items() if minor not in table]
    if unpinned:
        supported = sorted(set.intersection(*(set(table) for table in pins.values())))
        yield Problem(
            ("paddock:fleet", "cluster", "version"),
            f"this Paddock has no {' and no '.join(unpinned)} for Kubernetes {minor}",
            f"one of {', '.join(supported)}",
            "upgrade the cluster; or ./inv catalog.refresh for EKS add-ons, and the others in infra/versions.py",
        )


def _pins(fleet: Fleet) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Tables of versions by minor that the fleet's resources take one of."""
    if fleet.holds("cluster") and (
        isinstance(fleet.cluster, NewCluster) or (fleet.makes_network and fleet.uses_ebs_volumes)
    ):
        yield "EKS add-ons", eks_addons()
    if fleet.makes_network:
        yield "cluster-autoscaler", versions.CLUSTER_AUTOSCALER
    if fleet.holds("runners") and any(runner.warm for runner in fleet.runners.values()):
        yield "kubectl", versions.KUBECTL
