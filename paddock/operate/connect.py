"""Readers of a fleet for a command: what cannot be reached becomes a reason in the snapshot, not an end."""

from __future__ import annotations

from paddock.console.output import BadFlag
from paddock.errors import PaddockError
from paddock.fleet import Fleet
from paddock.kubernetes.kubeconfig import Cluster
from paddock.operate.credential import credential
from paddock.operate.parameters import OfCluster, OfClusterAndGitHub
from paddock.operate.snapshot.model import NOT_READ, Snapshot
from paddock.operate.snapshot.read import KINDS, Sources
from paddock.operate.sources import kubeconfig
from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.github import GitHubReader, installation_reader
from paddock.operate.sources.kubernetes import KubernetesReader
from paddock.operate.sources.unavailable import Unavailable


class NoCluster(PaddockError):
    """The cluster cannot be reached, so its state is not known and nothing can be changed."""


def connect(fleet: Fleet, parameters: OfCluster, job: str = "") -> Sources:
    """Return the readers. `job` is a job's id at GitHub. Raises BadFlag for a flag that names what is not there."""
    reasons: dict[str, Unavailable] = {}
    kubernetes: KubernetesReader | None = None
    github: GitHubReader | None = None
    file = parameters.github_key if isinstance(parameters, OfClusterAndGitHub) else None
    key = credential(file) if file else ""
    try:
        kubernetes = KubernetesReader(kubeconfig.load(parameters.kubeconfig, parameters.context, fleet))
    except Unavailable as error:
        reasons["kubernetes"] = error
    try:
        github = installation_reader(fleet.github, key) if key else None
    except Unavailable as error:
        reasons["github"] = error
    aws = AwsReader(fleet.region) if fleet.owns_nodes else None
    return Sources(kubernetes, aws, github, reasons, job)


def check_reached(snapshot: Snapshot) -> None:
    """Raise NoCluster where nothing of the cluster could be read: each of its parts would only say so again."""
    readings = [reading for part in KINDS if (reading := snapshot.readings()[part]) is not NOT_READ]
    if readings and not any(reading.known for reading in readings):
        fix = readings[0].fix or "kubectl get nodes"
        raise NoCluster(f"nothing of the cluster can be read: {readings[0].reason}\n    fix: {fix}")


def to_change(fleet: Fleet, sources: Sources) -> Cluster:
    """Return the cluster where a name says that it is the fleet's. Raises NoCluster and BadFlag."""
    if sources.kubernetes is None:
        reason = sources.reasons["kubernetes"]
        raise NoCluster(f"the cluster cannot be reached: {reason}\n    fix: {reason.fix or 'kubectl get nodes'}")
    cluster = sources.kubernetes.cluster
    if not cluster.named:
        raise BadFlag(
            f"context {cluster.context} is only the current one, and no name says that it is {fleet.cluster_name}"
            f"\n    expected: the fleet's cluster, since it is changed\n    fix: --context {cluster.context}"
        )
    return cluster
