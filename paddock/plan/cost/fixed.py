"""Cost of a fleet without jobs, item by item, and the prices of what is paid by use."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from paddock import catalog
from paddock.fleet import Fleet, NewCluster
from paddock.fleet.model.pool import GP3_IOPS, GP3_THROUGHPUT
from paddock.plan.cost.money import HOURS_A_MONTH, Money, fixed, on_demand, total, unknown, volume
from paddock.plan.engine import resource_types as types
from paddock.plan.engine.graph import Graph, Resource

SYSTEM_NODES = "system nodes"


@dataclass(frozen=True, slots=True)
class Line:
    """One item. `quantity` counts `what`; None where it follows use that is not stated, and then so is `monthly`.

    `urns` are the resources that it prices.
    """

    item: str
    quantity: float | None
    what: str
    price: Money
    monthly: Money
    note: str = ""
    urns: tuple[str, ...] = ()


def lines(fleet: Fleet, graph: Graph, today: date | None) -> tuple[Line, ...]:
    """Return the costs by the hour or month that do not depend on use."""
    region = fleet.region
    gateways = graph.of_type(types.NAT_GATEWAY)
    endpoints = tuple(
        endpoint
        for endpoint in graph.of_type(types.VPC_ENDPOINT)
        if endpoint.inputs.get("vpcEndpointType") == "Interface"
    )
    attachments = sum(len(endpoint.inputs.get("subnetIds") or ()) for endpoint in endpoints)
    candidates = [
        *_control_plane(fleet, graph, today),
        _hourly("NAT gateways", "vpc.nat-gateway", gateways, len(gateways), "gateways", region),
        _hourly(
            "public IPv4 addresses",
            "vpc.public-ipv4",
            graph.of_type(types.ELASTIC_IP),
            len(graph.of_type(types.ELASTIC_IP)),
            "addresses",
            region,
        ),
        _hourly(
            "interface endpoints",
            "vpc.interface-endpoint",
            endpoints,
            attachments,
            "endpoints x zones",
            region,
            note=f"{len(endpoints)} endpoints" if endpoints else "",
        ),
        _keys(graph, region),
        *_system_nodes(fleet, graph),
        *_prometheus(fleet, graph),
    ]
    return tuple(line for line in candidates if line.quantity)


def by_use(fleet: Fleet, graph: Graph) -> tuple[Line, ...]:
    """Return what is paid by use: its price where that is known, and no amount."""
    region = fleet.region
    kinds = (
        (types.NAT_GATEWAY, "NAT traffic", "GB carried", "vpc.nat-gateway.data"),
        (types.VPC_ENDPOINT, "endpoint traffic", "GB carried", "vpc.interface-endpoint.data"),
        (types.LOG_GROUP, "logs", "GB taken in", "cloudwatch.logs.ingest"),
        (types.REPOSITORY, "images in ECR", "GB-months kept", "ecr.storage"),
        (types.IMAGE_PIPELINE, "AMI snapshots", "GB-months kept", "ebs.snapshot"),
    )
    return tuple(
        Line(item, None, unit_name, fixed(key, region), unknown(f"{item}: use not stated", "USD/month"))
        for type_, item, unit_name, key in kinds
        if any(resource.inputs.get("vpcEndpointType") != "Gateway" for resource in graph.of_type(type_))
    )


def _control_plane(fleet: Fleet, graph: Graph, today: date | None) -> Iterator[Line]:
    clusters = graph.of_type(types.CLUSTER)
    eks_version = catalog.eks_versions().get(fleet.cluster.version)
    extended = bool(today and eks_version and eks_version.support_on(today) == "extended")
    key = "eks.control-plane.extended" if extended else "eks.control-plane"
    note = "extended support" if extended else "standard support"
    yield _hourly("EKS control plane", key, clusters, len(clusters), "clusters", fleet.region, note=note)


def _keys(graph: Graph, region: str) -> Line:
    keys = graph.of_type(types.KMS_KEY)
    price = fixed("kms.key", region)
    note = "each of the first two yearly rotations adds as much again"
    return Line("KMS keys", len(keys), "keys", price, price.times(len(keys)), note, _urns(keys))


def _system_nodes(fleet: Fleet, graph: Graph) -> Iterator[Line]:
    """System nodes at their minimum, of their first instance type."""
    groups = tuple(group for group in graph.of_type(types.NODE_GROUP) if is_system(group))
    if not groups or not isinstance(fleet.cluster, NewCluster):
        return
    system = fleet.cluster.system
    instance = catalog.instance(system.instances[0])
    node = on_demand(instance, fleet.region)
    disk = volume(system.disk // 1024, GP3_IOPS, GP3_THROUGHPUT, fleet.region)
    price = total((node, disk), "USD/hour")
    yield Line(
        SYSTEM_NODES,
        system.nodes.min,
        f"{instance.name}, {system.disk // 1024} GiB gp3",
        price,
        price.times(HOURS_A_MONTH * system.nodes.min, "USD/month"),
        f"at least {system.nodes.min}, at most {system.nodes.max}",
        _urns(groups),
    )


def _prometheus(fleet: Fleet, graph: Graph) -> Iterator[Line]:
    """Volume of the fleet's own Prometheus; its pods run on system nodes."""
    sets = tuple(item for item in graph.of_type(types.STATEFUL_SET) if item.name == "prometheus")
    if fleet.own_prometheus and (gib := fleet.own_prometheus.disk // 1024):
        price = volume(gib, GP3_IOPS, GP3_THROUGHPUT, fleet.region)
        monthly = price.times(HOURS_A_MONTH, "USD/month")
        yield Line(
            "Prometheus' volume", 1, f"{gib} GiB gp3", price, monthly, "its pods are on system nodes", _urns(sets)
        )


def more_system_nodes(fleet: Fleet, lines: tuple[Line, ...]) -> Money:
    """Return the cost of a month in which there are as many system nodes as there may be, beyond the fewest."""
    nodes = fleet.cluster.system.nodes if isinstance(fleet.cluster, NewCluster) else None
    line = next((line for line in lines if line.item == SYSTEM_NODES), None)
    if nodes is None or line is None:
        return Money(0.0, "USD/month")
    return line.price.times(HOURS_A_MONTH * (nodes.max - nodes.min), "USD/month")


def is_system(group: Resource) -> bool:
    """Return whether a node group holds controllers rather than jobs."""
    return bool((group.inputs.get("labels") or {}).get("role") == "system")


def _hourly(
    item: str, key: str, resources: tuple[Resource, ...], count: int, unit_name: str, region: str, note: str = ""
) -> Line:
    price = fixed(key, region)
    return Line(item, count, unit_name, price, price.times(count * HOURS_A_MONTH, "USD/month"), note, _urns(resources))


def _urns(resources: tuple[Resource, ...]) -> tuple[str, ...]:
    return tuple(resource.urn for resource in resources)
