"""Holdings of a fleet that a removal takes or leaves, by state and cluster. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from paddock.fleet import Fleet
from paddock.fleet.model.pool import CapacityBlock, Reserved
from paddock.operate.destroy import leftovers
from paddock.operate.destroy.report import FREE, NEEDED, WITH_PROTECTED, Item
from paddock.operate.snapshot.model import Object, Snapshot, name
from paddock.operate.why.subject import SET_LABEL, own_sets, set_name
from paddock.plan.cost.money import on_demand
from paddock.pulumi_cli.stack import Resource

PROTECTED: Mapping[str, str] = {
    "aws:eks/cluster:Cluster": "the runners, and everything in the cluster, are gone with it",
    "aws:ec2/vpc:Vpc": "nodes, endpoints and the cluster are in it",
    "aws:kms/key:Key": "what they encrypted is unreadable without them",
    "aws:ecr/repository:Repository": "images that workflows and runners name",
}
"""Why each type is protected, as docs/protected.md says."""
NAMESPACE = "kubernetes:core/v1:Namespace"
VPC = "aws:ec2/vpc:Vpc"
_CLUSTER = "aws:eks/cluster:Cluster"
_NODES = "aws:eks/nodeGroup:NodeGroup"
_KEY = "aws:kms/key:Key"
_REPOSITORY = "aws:ecr/repository:Repository"
_CRD = "kubernetes:apiextensions.k8s.io/v1:CustomResourceDefinitionPatch"
_WORKLOADS = ("kubernetes:apps/v1:StatefulSet", "kubernetes:apps/v1:Deployment", "kubernetes:helm.sh/v3:Release")
_NO_THING = ("pulumi:", "paddock:", "eks:index:")
"""Types that are not a thing of a cloud: providers, components, the stack itself."""


def things(resources: Sequence[Resource]) -> list[Resource]:
    """Return the resources that are something outside the state."""
    return [item for item in resources if not item.type.startswith(_NO_THING)]


def cluster_in(resources: Sequence[Resource]) -> Resource | None:
    """Return the EKS cluster that the stack holds."""
    return next((item for item in resources if item.type == _CLUSTER), None)


def node_groups(resources: Sequence[Resource]) -> list[Resource]:
    """Return the node groups that the stack holds."""
    return [item for item in resources if item.type == _NODES]


def in_kubernetes(resources: Sequence[Resource]) -> bool:
    """Return whether the stack holds objects of a cluster."""
    return any(item.type.startswith("kubernetes:") for item in resources)


def repositories(resources: Sequence[Resource]) -> list[Resource]:
    return [item for item in resources if item.type == _REPOSITORY]


def namespaces(resources: Sequence[Resource]) -> list[str]:
    """Return the namespaces that the stack holds: what is in them goes with them."""
    return [item.id for item in resources if item.type == NAMESPACE and item.id]


def goes(resources: Sequence[Resource], deleted: Collection[str]) -> dict[str, int]:
    """Return the number of things that are deleted, by type."""
    types = Counter(item.type for item in things(resources) if item.urn in deleted and not item.retained)
    return dict(sorted(types.items()))


def stays(
    fleet: Fleet,
    resources: Sequence[Resource],
    deleted: Collection[str],
    images: Mapping[str, int | str | None],
    claims: Sequence[Object],
    volumes: Sequence[Object],
) -> tuple[Item, ...]:
    """Return what is there afterwards, with the reason.

    `deleted` are the URNs that Pulumi would delete; `images` of a repository are their number, or why that is unknown.
    """
    cluster = cluster_in(resources)
    cluster_stays = cluster is None or cluster.urn not in deleted
    claimed = []
    for item in things(resources):
        if item.urn not in deleted:
            usd, cost = leftovers.cost_of(item, fleet.region)
            reason, removal = _kept(item, images.get(item.urn))
            claimed.append(Item(what=_what(item), reason=reason, usd_per_month=usd, cost=cost, removal=removal))
        elif item.type == _CRD and cluster_stays:
            crd = item.urn.partition("::arc-")[2] or item.id.rpartition("/")[2] or item.title
            reason = "Kubernetes deletes every object of a kind with its CRD"
            claimed.append(Item(what=f"CRD {crd}", reason=reason, cost=FREE, removal=f"kubectl delete crd {crd}"))
        elif item.retained and item.type != _CRD:
            usd, cost = leftovers.cost_of(item, fleet.region)
            claimed.append(
                Item(what=_what(item), reason="it outlives the stack by design", usd_per_month=usd, cost=cost)
            )
        elif item.type == _KEY:
            reason = "pending deletion for 30 days, in which aws kms cancel-key-deletion brings it back"
            claimed.append(Item(what=_what(item), reason=reason, usd_per_month=0.0, cost="free while pending"))
    claimed += [kept for claim in claims if (kept := _claim(claim, volumes)) is not None]
    return (*claimed, *_reservations(fleet), *_outside(fleet))


def held_claims(claims: Sequence[Object], resources: Sequence[Resource]) -> list[Object]:
    """Return the claims in namespaces that the stack holds."""
    own = set(namespaces(resources))
    return [claim for claim in claims if claim["metadata"].get("namespace") in own]


def workloads(claims: Sequence[Object], resources: Sequence[Resource]) -> list[str]:
    """Return the URNs of workloads in the namespaces of claims: a claim goes only when no pod has it."""
    places = {claim["metadata"].get("namespace") for claim in claims}
    return [item.urn for item in resources if item.type in _WORKLOADS and _namespace(item) in places]


def policy(claim: Object, volumes: Sequence[Object]) -> str | None:
    """Return the reclaim policy of a claim's volume; None where it has no volume."""
    volume_name = (claim.get("spec") or {}).get("volumeName")
    volume = next((item for item in volumes if item["metadata"]["name"] == volume_name), None)
    return str(volume["spec"].get("persistentVolumeReclaimPolicy", "Retain")) if volume else None


def of_arc(snapshot: Snapshot) -> list[Object]:
    """Return ARC's objects of the fleet's scale sets that are still there."""
    names = {runner.scale_set for runner in snapshot.fleet.runners.values()}
    objects = [item for item in own_sets(snapshot) if set_name(item) in names]
    for item in (*snapshot.listeners, *snapshot.runner_groups, *snapshot.runners):
        label = (item["metadata"].get("labels") or {}).get(SET_LABEL)
        if {label, (item.get("spec") or {}).get("autoscalingRunnerSetName")} & names:
            objects.append(item)
    return objects


def foreign_sets(snapshot: Snapshot) -> list[str]:
    """Return the scale sets in the cluster that are of another stack, or of nobody's."""
    names = (
        {runner.scale_set for runner in snapshot.fleet.runners.values()} if snapshot.fleet.holds("runners") else set()
    )
    own = [item for item in own_sets(snapshot) if set_name(item) in names]
    return [name(item) for item in snapshot.runner_sets if item not in own]


def stuck(item: Object) -> str:
    """Return what keeps an object, for a line."""
    meta = item["metadata"]
    finalizers = ", ".join(meta.get("finalizers") or []) or "no finalizer"
    since = meta.get("deletionTimestamp")
    return f"{item['kind']} {name(item)}: {f'deleted at {since}, held by' if since else 'not deleted;'} {finalizers}"


def _kept(item: Resource, images: int | str | None) -> tuple[str, str]:
    if item.type == _REPOSITORY and images:
        text = (
            f"{images} images are in it" if isinstance(images, int) else f"unknown whether images are in it: {images}"
        )
        repository = item.inputs.get("name") or item.id
        return (
            text,
            f"aws ecr delete-repository --force --repository-name {repository}; pulumi state delete '{item.urn}'",
        )
    if item.protect:
        return f"protected: {PROTECTED.get(item.type, 'it holds data')}", WITH_PROTECTED
    return NEEDED, WITH_PROTECTED


def _claim(claim: Object, volumes: Sequence[Object]) -> Item | None:
    title = f"PersistentVolumeClaim {name(claim)}"
    if (claimed := policy(claim, volumes)) == "Delete":
        return None
    volume = (claim.get("spec") or {}).get("volumeName")
    if claimed is None:
        return Item(what=title, reason="it has no volume, and goes with its namespace", cost=FREE)
    return Item(
        what=f"volume {volume} of {title}",
        reason=f"its reclaim policy is {claimed}",
        cost="by size",
        removal=f"kubectl delete pv {volume}, then the volume in AWS",
    )


def _reservations(fleet: Fleet) -> Iterator[Item]:
    """Yield the capacity that pools run in: it was bought without the stack, and is paid for without nodes."""
    for pool in fleet.pools.values() if fleet.holds("cluster") else ():
        match pool.capacity:
            case Reserved(reserved=id_):
                money = on_demand(pool.types[0], fleet.region)
                price = f"{money.value:g} USD/hour ({', '.join(money.sources)}, {money.as_of})" if money.value else ""
                yield Item(
                    what=f"capacity reservation {id_} of pool {pool.name}",
                    reason="it is yours, and paid for each of its instances, used or not",
                    cost=price or f"by the hour; no price is known in {fleet.region}",
                    removal=f"aws ec2 cancel-capacity-reservation --capacity-reservation-id {id_}",
                )
            case CapacityBlock(capacity_block=id_):
                yield Item(
                    what=f"Capacity Block {id_} of pool {pool.name}",
                    reason="it is yours until its end, and AWS takes none back",
                    cost="paid in advance",
                )


def _outside(fleet: Fleet) -> tuple[Item, ...]:
    """Return what the stack never made, and what a user might miss."""
    source = fleet.github.secret_source
    if source.startswith("arn:"):
        reason = "the credential for GitHub is yours: Paddock only read it"
        return (Item(what=source, reason=reason, cost="Secrets Manager's price; none is known here"),)
    if fleet.github.kubernetes_secret:
        return ()
    return (
        Item(
            what="the encrypted credential for GitHub in the stack file",
            reason="the file is yours",
            cost=FREE,
            removal="delete the App's key at GitHub, and the line in the file",
        ),
    )


def _what(item: Resource) -> str:
    return f"{item.title} ({item.id})" if item.id else item.title


def _namespace(item: Resource) -> str:
    inputs = item.inputs
    return str(inputs.get("namespace") or (inputs.get("metadata") or {}).get("namespace") or "")
