"""GPU instances by what is asked for: what there is, what it costs, and where that was read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paddock.catalog.gpus import gpu as gpu_of
from paddock.catalog.instances import InstanceType, UnknownInstanceType, gpu_instances, instances

Sort = Literal["price", "spot", "name", "gpu-memory", "vcpus", "price-per-gpu"]


@dataclass(frozen=True, slots=True)
class Row:
    """One instance type in one region. Prices are USD per hour, None where nobody has read one."""

    instance: InstanceType
    region: str
    on_demand: float | None
    spot: float | None
    interruption_band: int | None
    sources: tuple[str, ...]

    @property
    def on_demand_per_gpu(self) -> float | None:
        """USD per hour of a whole GPU: a fraction of one is charged as if it were whole."""
        whole = self.instance.gpu_count * self.instance.gpu_fraction
        return None if self.on_demand is None else self.on_demand / whole


def choose(
    gpus: int = 1,
    min_memory_gib: float = 0,
    gpu: str | None = None,
    region: str = "us-east-1",
    max_price: float | None = None,
    sort: Sort = "price",
) -> tuple[Row, ...]:
    """GPU instances with at least `gpus` GPUs of at least `min_memory_gib` GiB each.

    A GPU of 24 GB nominal reports 22.4 GiB; asking for 24 finds it: 8 % less than asked for is taken for the same.
    `max_price` is USD per hour on demand; a type without a price stays in, marked as unknown. Unknown prices sort last.
    """
    if gpu is not None:
        gpu_of(gpu)
    matching = []
    for instance in gpu_instances(gpu, gpus):
        price = instance.price(region)
        large_enough = instance.gpu_memory_mib >= min_memory_gib * 1024 * 0.92
        cheap_enough = max_price is None or price.on_demand is None or price.on_demand <= max_price
        if large_enough and cheap_enough:
            sources = tuple(key for key in (price.on_demand_source, price.spot_source) if key)
            matching.append(Row(instance, region, price.on_demand, price.spot, price.interruption_band, sources))
    return tuple(sorted(matching, key=lambda row: _key(row, sort)))


def _key(row: Row, sort: Sort) -> tuple[bool, float, str]:
    values: dict[Sort, float | None] = {
        "price": row.on_demand,
        "spot": row.spot,
        "name": 0.0,
        "gpu-memory": float(row.instance.gpu_memory_mib),
        "vcpus": float(row.instance.vcpus),
        "price-per-gpu": row.on_demand_per_gpu,
    }
    value = values[sort]
    return (value is None, value or 0.0, row.instance.name)


def priced_regions() -> tuple[str, ...]:
    """Regions of which the catalogue has prices."""
    return tuple(sorted({region for instance in instances().values() for region in instance.prices}))


def sizes(name: str) -> tuple[InstanceType, ...]:
    """The sizes of an instance type's family with as many GPUs of its kind, smallest first.

    Raises UnknownInstanceType with the nearest names.
    """
    if name not in instances():
        raise UnknownInstanceType(name, instances())
    named = instances()[name]
    same = [
        other
        for other in instances().values()
        if (other.family, other.gpu, other.gpu_count, other.gpu_fraction)
        == (named.family, named.gpu, named.gpu_count, named.gpu_fraction)
    ]
    return tuple(sorted(same, key=lambda other: (other.vcpus, other.memory_mib)))
