"""GPUs to choose from, each with the instance types of its first pool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from paddock import catalog
from paddock.catalog import InstanceType
from paddock.catalog.cuda_match import drives
from paddock.catalog.gpus import Gpu
from paddock.catalog.table import priced_regions
from paddock.console import table as console_table
from paddock.fleet.model.cluster import KUBERNETES
from paddock.plan.cost.rightsizing import NO_DISCOUNT, SPOT_TYPES


@dataclass(frozen=True)
class Choice:
    """A GPU in a region: the smallest whole instance types that have it."""

    gpu: Gpu
    region: str
    types: tuple[InstanceType, ...]
    on_spot: bool
    """Spot is cheaper than on demand, or neither price is known."""

    @property
    def spot(self) -> float | None:
        """USD an hour of the cheapest type on spot; None is not known."""
        return min((price for t in self.types if (price := t.price(self.region).spot)), default=None)

    @property
    def on_demand(self) -> float | None:
        return min((price for t in self.types if (price := t.price(self.region).on_demand)), default=None)

    @cached_property
    def gpus_per_node(self) -> int:
        return self.types[0].gpu_count

    @property
    def nodes(self) -> int:
        """Return a first maximum: about as many jobs at a time whatever a node holds."""
        return 5 if self.gpus_per_node == 1 else 1

    def document(self) -> dict[str, object]:
        return {
            "gpu": self.gpu.key,
            "name": self.gpu.name,
            "memory_mib": self.gpu.memory_mib,
            "gpus_per_node": self.gpus_per_node,
            "instances": [instance.name for instance in self.types],
            "spot": self.spot,
            "on_demand": self.on_demand,
        }


def choices(region: str) -> tuple[Choice, ...]:
    """Return the GPUs of a region, cheapest first; of a region without known prices, every GPU."""
    by_gpu: dict[str, list[InstanceType]] = {}
    for instance in catalog.gpu_instances():
        if instance.gpu and sold_whole(instance, region):
            by_gpu.setdefault(instance.gpu, []).append(instance)
    offered = [_choice(catalog.gpu(gpu), region, types) for gpu, types in by_gpu.items() if _driven(gpu, types)]
    return tuple(sorted(offered, key=lambda choice: choice.on_demand or choice.spot or float("inf")))


def sold_whole(instance: InstanceType, region: str) -> bool:
    """Return whether a region may have a type, whose jobs get whole GPUs of a virtual machine."""
    price = instance.price(region)
    sold = region not in priced_regions() or price.on_demand is not None or price.spot is not None
    return sold and instance.gpu_fraction == 1 and not instance.bare_metal


def _choice(gpu: Gpu, region: str, types: list[InstanceType]) -> Choice:
    chosen, on_spot = smallest(types, region)
    return Choice(gpu, region, chosen, on_spot)


def smallest(types: Iterable[InstanceType], region: str) -> tuple[tuple[InstanceType, ...], bool]:
    """Return the smallest types with the fewest GPUs, on spot only those that spot makes cheaper; and if it does."""
    types = tuple(types)
    fewest = min(instance.gpu_count for instance in types)
    alike = sorted(
        (instance for instance in types if instance.gpu_count == fewest),
        key=lambda instance: (instance.vcpus, instance.memory_mib),
    )
    discounted = [instance for instance in alike if _discounted(instance, region)]
    # On demand one type is enough: what is larger only costs more.
    return tuple(discounted[:SPOT_TYPES] or alike[:1]), bool(discounted)


def _discounted(instance: InstanceType, region: str) -> bool:
    price = instance.price(region)
    if price.spot is None:
        return price.on_demand is None
    return price.on_demand is None or price.spot <= NO_DISCOUNT * price.on_demand


def _driven(gpu: str, types: list[InstanceType]) -> bool:
    """Return whether the driver of the nodes' default image knows the GPU."""
    image = catalog.latest_ami(KUBERNETES)
    families = sorted({instance.family for instance in types})
    return not (image and image.driver) or drives(image.driver, catalog.gpu(gpu), families).outcome != "impossible"


def table(offered: tuple[Choice, ...]) -> Iterator[str]:
    """Yield the choices as lines; an unknown price is a question mark."""
    rows = [
        (
            choice.gpu.key,
            f"{choice.gpu.memory_mib / 1024:.0f} GiB",
            str(choice.gpus_per_node),
            _usd(choice.on_demand),
            _usd(choice.spot),
            choice.types[0].name,
        )
        for choice in offered
    ]
    head = ("GPU", "memory", "a node", "USD/h", "spot", "smallest instance")
    yield from console_table.table(head, rows, right=head[1:5])
    (prices,) = (stamp for stamp in catalog.stamps() if stamp.file == "instance_prices.json")
    yield f"USD an hour of the cheapest size, on demand and on spot; prices of {prices.as_of}, ? is not known."


def _usd(price: float | None) -> str:
    return "?" if price is None else f"{price:.2f}"
