"""Faults that versions in use are known to have, and settings of ours that an image is too old to follow."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from infra import versions
from infra.gpu import user_data
from paddock import catalog
from paddock.catalog.cuda_match import Outcome
from paddock.catalog.faults import Fault, Setting, fault_sources, known_faults, not_followed, order
from paddock.fleet import Fleet, NewCluster
from paddock.fleet.model.pool import Bottlerocket, Custom, EksManaged, GpuPool
from paddock.plan.compatibility.verdict import Verdict
from paddock.plan.finding import Edit, Severity, put

FAULT, TOO_OLD = "CMP011", "CMP012"
_WRITTEN: Mapping[str, frozenset[str]] = {
    "vpc-cni": frozenset({"managed-cni-policy", "network-policy"}),
    "kuberay": frozenset({"token-authentication"}),
    "fluent-bit": frozenset({"pod-identity"}),
}
"""What is written into the settings of what is deployed, by software, as the catalogue calls it."""
_SOFTWARE: Mapping[str, str] = {"al2023": "EKS release", "bottlerocket": "Bottlerocket"}


class Node(NamedTuple):
    """Nodes of pools: a release of `software`, with the settings and families that its faults ask for."""

    software: str
    release: str
    settings: frozenset[str]
    families: frozenset[str]

    def faults(self) -> Iterator[Fault]:
        return known_faults(self.software, self.release, self.settings, self.families)

    def too_old_for(self) -> Iterator[Setting]:
        return not_followed(self.software, self.release, self.settings)

    @property
    def is_good(self) -> bool:
        severities = {fault.severity for fault in self.faults()} | {row.severity for row in self.too_old_for()}
        return severities <= {"info"}


def check(fleet: Fleet) -> Iterator[Verdict]:
    """Return the verdicts of the images of pools, of the image that is built, and of what the cluster runs."""
    if fleet.owns_nodes:
        yield from _pools(fleet)
        yield from _own_images(fleet)
    if fleet.images.ami.enabled and fleet.holds("images") and fleet.eks_release:
        pre_pulled = fleet.images.ami.pre_pull and fleet.images.runner is not None
        settings = user_data.image_settings(pre_pulled=pre_pulled)
        yield from _image(fleet, Node("al2023", fleet.eks_release, settings, frozenset()), ())
    yield from _deployed(fleet)


def _pools(fleet: Fleet) -> Iterator[Verdict]:
    """Yield what is wrong with the images of pools; pools with the same in the same image are one verdict."""
    alike: dict[tuple[object, ...], list[str]] = {}
    nodes: dict[str, Node] = {}
    for name, pool in fleet.pools.items():
        if node := _node(fleet, pool):
            wrong = (*(row.breaks for row in node.faults()), *(row.without for row in node.too_old_for()))
            if wrong:
                nodes[name] = node
                key = (node.software, node.release, *wrong, *neighbours(fleet.cluster.version, node))
                alike.setdefault(key, []).append(name)
    for names in alike.values():
        yield from _image(fleet, nodes[names[0]], names)


def _node(fleet: Fleet, pool: GpuPool) -> Node | None:
    match fleet.ami(pool):
        case EksManaged(release=release):
            return made_from(pool, release)
        case Bottlerocket(bottlerocket=release):
            return made_from(pool, release.partition("-")[0], "bottlerocket")
        case _:
            return None


def made_from(pool: GpuPool, release: str, software: str = "al2023") -> Node:
    """Return the nodes of a pool that boot a release, or an image built from it."""
    settings = user_data.settings(pool, on_bottlerocket=software == "bottlerocket")
    return Node(software, release, settings, frozenset(instance.family for instance in pool.types))


def _image(fleet: Fleet, node: Node, names: Collection[str]) -> Iterator[Verdict]:
    """Yield what is wrong with one image of some pools; of no pool, with the base of the image that is built."""
    pools = tuple(names)
    subject = "images.ami" if not pools else f"pools.{pools[0]}.ami" if len(pools) == 1 else "pools"
    where = "" if len(pools) < 2 else f" of pools {', '.join(pools)}"
    before, after = neighbours(fleet.cluster.version, node)
    choices = [
        [put("pools", name, "ami", value={"release": good}) for name in pools] for good in (before, after) if good
    ]
    fix = " or ".join(" and ".join(map(str, choice)) for choice in choices if choice)
    numbers: dict[str, str | int | None] = {
        "image": node.release,
        "settings": ", ".join(sorted(node.settings)),
        "good_before": before,
        "good_after": after,
    }
    edits = tuple(choices[-1]) if choices else ()  # the later one, which brings other fixes too
    label = f"{_SOFTWARE[node.software]} {node.release}{where}"
    for fault in node.faults():
        until = f", fixed by {fault.until}" if fault.until else ""
        with_ours = f" with {', '.join(fault.settings)}" if fault.settings else ""
        message = f"{label} is known to fail{with_ours}: {fault.breaks}{until} ({cited(fault.source)})"
        more = {"since": fault.since, "until": fault.until, "source": fault.source}
        yield _verdict(FAULT, subject, message, fault.severity, numbers | more, fix or _other(node, fault.until), edits)
    for row in node.too_old_for():
        message = f"{label} is older than {row.since}, the first with {row.setting}: {row.without}"
        more = {"setting": row.setting, "since": row.since, "source": row.source}
        yield _verdict(TOO_OLD, subject, message, row.severity, numbers | more, fix or _other(node, row.since), edits)


def _other(node: Node, first: str | None) -> str:
    """Return what helps where the catalogue has no release to name: those from `first` on."""
    if node.software == "bottlerocket" and first:
        return f"a Bottlerocket release from {first} on"
    return "another release; ./inv catalog.refresh adds those that came since"


def neighbours(minor: str, node: Node) -> tuple[str | None, str | None]:
    """Return the nearest releases before and after that the catalogue has for a minor and nothing is known against."""
    if node.software != "al2023":
        return None, None  # a Bottlerocket release is named with its commit, which the catalogue has not
    has = order(node.release)
    good = sorted(
        (
            ami.release
            for ami in catalog.eks_amis()
            if ami.os == "al2023" and ami.kubernetes == minor and node._replace(release=ami.release).is_good
        ),
        key=order,
    )
    return (
        next((release for release in reversed(good) if order(release) < has), None),
        next((release for release in good if order(release) > has), None),
    )


def _own_images(fleet: Fleet) -> Iterator[Verdict]:
    """Say of images of one's own that their base is not in the stack file."""
    names = [name for name, pool in fleet.pools.items() if isinstance(fleet.ami(pool), Custom)]
    if names:
        subject = f"pools.{names[0]}.ami" if len(names) == 1 else "pools"
        yield Verdict(
            FAULT,
            subject,
            "unknown",
            f"which EKS release the image of {', '.join(names)} was built from is not in the stack file, so its known "
            "faults are not known; ./inv doctor reads the image's tags",
            {"image": None},
        )


def _deployed(fleet: Fleet) -> Iterator[Verdict]:
    """Yield what is known against add-ons, charts and images that are deployed."""
    deployed = {
        "arc": versions.ARC,
        "nvidia-device-plugin": versions.NVIDIA_DEVICE_PLUGIN,
        "dcgm-exporter": versions.DCGM_EXPORTER,
        **({"kuberay": versions.KUBERAY, "ray": versions.RAY} if fleet.served else {}),
        **({"fluent-bit": versions.FLUENT_BIT} if fleet.logs.jobs.to == "cloudwatch" else {}),
    }
    addons = catalog.eks_addons().get(fleet.cluster.version, {}) if isinstance(fleet.cluster, NewCluster) else {}
    for software, version in (*deployed.items(), *addons.items()):
        used = _WRITTEN.get(software, frozenset())
        file = "paddock/catalog/data/eks_addons.json" if software in addons else "infra/versions.py"
        pinned = f"{software} in {file}"
        numbers: dict[str, str | int | None] = {"version": version}
        for fault in known_faults(software, version, used, used_with=deployed):
            message = f"{software} {version} is known to fail: {fault.breaks} ({cited(fault.source)})"
            fix = f"{fault.until} or newer of {pinned}" if fault.until else f"another {pinned}"
            yield _verdict(FAULT, "cluster", message, fault.severity, numbers | {"until": fault.until}, fix)
        for row in not_followed(software, version, used):
            message = f"{software} {version} is older than {row.since}, the first with {row.setting}: {row.without}"
            fix = f"{row.since} or newer of {pinned}"
            yield _verdict(TOO_OLD, "cluster", message, row.severity, numbers | {"since": row.since}, fix)


def cited(source: str) -> str:
    """Return the address of a source and the day on which it was read."""
    cited_ = fault_sources()[source]
    return f"{cited_.url}, read {cited_.as_of}"


def _verdict(
    id_: str,
    subject: str,
    message: str,
    severity: Severity,
    numbers: Mapping[str, str | int | None],
    fix: str,
    edits: tuple[Edit, ...] = (),
) -> Verdict:
    outcome: Outcome = "impossible" if severity == "error" else "ok"
    return Verdict(id_, subject, outcome, message, numbers, fix, severity, edits)
