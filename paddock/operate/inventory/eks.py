"""An EKS cluster as it is: its state and version, what stands in the way of the next one, and what it has already."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from paddock.operate.sources.aws import AwsReader
from paddock.operate.sources.unavailable import NotFound, Unavailable

WORST_FIRST = ("ERROR", "UNKNOWN", "WARNING", "PASSING")
"""States of an insight."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A cluster that is there."""

    name: str
    version: str
    """Kubernetes minor of the control plane, such as "1.36"."""
    status: str
    """EKS's word, such as ACTIVE, UPDATING or DELETING."""
    arn: str = ""
    tags: Mapping[str, str] | None = None
    """None where EKS does not say."""
    authentication: str = ""
    """API where access entries alone say who may enter; empty where EKS does not say."""


@dataclass(frozen=True, slots=True)
class Insight:
    """Finding of EKS in a cluster about its next Kubernetes version."""

    name: str
    status: str
    reason: str
    recommendation: str = ""


def read_cluster(aws: AwsReader, name: str) -> Cluster | None:
    """Return the cluster of a name, None where there is none. Raises Unavailable."""
    try:
        said = aws.read("eks", "describe_cluster", name=name)["cluster"]
    except NotFound:
        return None
    return Cluster(
        name,
        str(said.get("version", "")),
        str(said.get("status", "")),
        str(said.get("arn", "")),
        said.get("tags"),
        str(said.get("accessConfig", {}).get("authenticationMode", "")),
    )


def read_insights(aws: AwsReader, cluster: str, version: str) -> tuple[Insight, ...]:
    """Return what EKS found about an upgrade to a version, worst first. Raises Unavailable.

    The recommendation is read for what does not pass; it is empty where it cannot be read.
    """
    chosen = {"categories": ["UPGRADE_READINESS"], "kubernetesVersions": [version]}
    listed = aws.pages("eks", "list_insights", "insights", clusterName=cluster, filter=chosen)
    found = []
    for item in listed:
        if item.get("kubernetesVersion", version) != version:
            continue
        state = item.get("insightStatus", {})
        status = str(state.get("status", "UNKNOWN"))
        advice = "" if status == "PASSING" else _recommendation(aws, cluster, str(item.get("id", "")))
        found.append(Insight(str(item.get("name", "")), status, str(state.get("reason", "")), advice))
    return tuple(sorted(found, key=lambda insight: _rank(insight.status)))


def read_addons(aws: AwsReader, cluster: str) -> tuple[str, ...]:
    """Return the names of a cluster's add-ons. Raises Unavailable, NotFound."""
    return tuple(map(str, aws.pages("eks", "list_addons", "addons", clusterName=cluster)))


def read_associations(aws: AwsReader, cluster: str) -> dict[tuple[str, str], str]:
    """Return the ids of a cluster's Pod Identity associations by namespace and service account.

    Raises Unavailable, NotFound.
    """
    listed = aws.pages("eks", "list_pod_identity_associations", "associations", clusterName=cluster)
    return {(str(item["namespace"]), str(item["serviceAccount"])): str(item["associationId"]) for item in listed}


def read_tags(aws: AwsReader, kind: str, cluster: str, **of: str) -> dict[str, str]:
    """Return the tags of an `addon`, `access_entry` or `pod_identity_association`. Raises Unavailable, NotFound."""
    (said,) = (value for key, value in aws.read("eks", f"describe_{kind}", clusterName=cluster, **of).items()
               if key != "ResponseMetadata")  # fmt: skip
    return {str(key): str(value) for key, value in said.get("tags", {}).items()}


def _recommendation(aws: AwsReader, cluster: str, id_: str) -> str:
    try:
        said = aws.read("eks", "describe_insight", clusterName=cluster, id=id_)["insight"]
    except Unavailable:
        return ""
    return str(said.get("recommendation", ""))


def _rank(status: str) -> int:
    return WORST_FIRST.index(status) if status in WORST_FIRST else WORST_FIRST.index("UNKNOWN")
