"""Readers of a fleet for a command: what cannot be reached becomes a reason in the snapshot, not an end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paddock.errors import PaddockError
from paddock.fleet import Fleet
from paddock.operate.cli.credential import credential
from paddock.operate.snapshot.model import NOT_READ, Snapshot
from paddock.operate.snapshot.read import KINDS, Sources
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.github import GitHubReader, installation_reader
from paddock.operate.sources.kubeconfig import Cluster
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import Unavailable
from paddock.terminal import BadFlag


class NoCluster(PaddockError):
    """The cluster cannot be reached, so nothing can be done in it, or said of it."""


@dataclass(frozen=True, slots=True)
class Access:
    """Flags that say where a fleet is read. `clients` gives the boto3 client of a service in a region."""

    kubeconfig: Path | None = None
    context: str | None = None
    github_key: Path | None = None
    clients: Callable[[str, str], Any] | None = None


def connect(fleet: Fleet, access: Access, job: str = "") -> Sources:
    """Return the readers. Raises BadFlag for a flag that names what is not there."""
    reasons: dict[str, Unavailable] = {}
    kubernetes: KubernetesReader | None = None
    github: GitHubReader | None = None
    key = credential(access.github_key) if access.github_key else ""
    try:
        kubernetes = KubernetesReader(kubeconfig.load(access.kubeconfig, access.context, fleet))
    except Unavailable as error:
        reasons["kubernetes"] = error
    try:
        github = installation_reader(fleet.github, key) if key else None
    except Unavailable as error:
        reasons["github"] = error
    aws = AwsReader(fleet.region, access.clients) if fleet.owns_nodes else None
    return Sources(kubernetes, aws, github, reasons, job)


def reached(sources: Sources) -> Cluster:
    """Return the cluster. Raises NoCluster with the reason why there is none."""
    if sources.kubernetes is None:
        reason = sources.reasons["kubernetes"]
        raise NoCluster(f"the cluster cannot be reached: {reason}\n    fix: {reason.fix or 'kubectl get nodes'}")
    return sources.kubernetes.cluster


def check_reached(snapshot: Snapshot) -> None:
    """Raise NoCluster where nothing of the cluster could be read: each of its parts would only say so again."""
    readings = [reading for part in KINDS if (reading := snapshot.readings()[part]) is not NOT_READ]
    if readings and not any(reading.known for reading in readings):
        fix = readings[0].fix or "kubectl get nodes"
        raise NoCluster(f"nothing of the cluster can be read: {readings[0].reason}\n    fix: {fix}")


def to_change(fleet: Fleet, sources: Sources) -> Cluster:
    """Return the cluster where a name says that it is the fleet's. Raises NoCluster and BadFlag."""
    cluster = reached(sources)
    if not cluster.named:
        raise BadFlag(
            f"context {cluster.context} is only the current one, and no name says that it is {fleet.cluster_name}"
            f"\n    expected: the fleet's cluster, since it is changed\n    fix: --context {cluster.context}"
        )
    return cluster
