"""Cost of a cluster's nodes by the catalogue."""

from __future__ import annotations

from dataclasses import dataclass

from paddock import catalog
from paddock.slurm.cloud.request import ClusterRequest


@dataclass(frozen=True, slots=True)
class NodePrice:
    """USD an hour of one node, None where no price is known. `as_of` is the day of its source, ISO 8601."""

    instance: str
    usd_per_hour: float | None
    spot: bool
    source: str
    as_of: str | None


def node_prices(request: ClusterRequest) -> tuple[NodePrice, ...]:
    """Return the head node's price, on demand, and then each instance type's."""
    rows = [(request.head, False), *((kind, request.spot) for kind in request.instances)]
    result = []
    for kind, spot in rows:
        price = kind.prices.get(request.region)
        value = key = None
        if price:
            value, key = (price.spot, price.spot_source) if spot else (price.on_demand, price.on_demand_source)
        origin = catalog.price_sources().get(key) if key else None
        day = origin.as_of.isoformat() if origin and origin.as_of else None
        result.append(NodePrice(kind.name, value, spot, origin.name if origin else "unknown", day))
    return tuple(result)
