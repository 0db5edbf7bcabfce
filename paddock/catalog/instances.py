"""EC2 instance types: hardware, pod limit and price."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, fields
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from paddock.catalog import _data
from paddock.catalog.gpus import gpus

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnknownInstanceType(_data.UnknownName):
    """No instance type of that name; `suggestions` are the nearest names."""

    kind = "instance type"


@dataclass(frozen=True, slots=True)
class RegionPrice:
    """Price of one type in one region, USD per hour, Linux; None is not known.

    `interruption_band` is the Spot Advisor's: 0 below 5 %, 1 to 10 %, 2 to 15 %, 3 to 20 %, 4 above.
    `spot_source` says what `spot` is: ``feed`` the lowest zone of the region, ``advisor`` computed from a published
    saving, ``ec2`` the median of the zones. Both sources are keys of `price_sources`.
    """

    on_demand: float | None
    spot: float | None
    interruption_band: int | None
    spot_source: str | None = None
    on_demand_source: str | None = None


@dataclass(frozen=True, slots=True)
class InstanceType:
    """One instance type.

    `gpu` is a key of `gpus()`. `gpu_count` is what pods can ask for with no sharing: a fraction of an L4 is one device
    with `gpu_fraction` below 1 and its share of the memory in `gpu_memory_mib` (MiB, of one device). `api_gpu_count` is
    what EC2 reports (0 for a fraction), and so what Cluster Autoscaler believes. `nvme_gb` is GB of one disk.
    `enis` and `ipv4_per_eni` are of the default network card; `efa` is the most EFA interfaces, 0 without.
    """

    name: str
    family: str
    arch: str
    vcpus: int
    memory_mib: int
    gpu: str | None
    gpu_count: int
    gpu_fraction: float
    gpu_memory_mib: int
    nvme_count: int
    nvme_gb: int
    enis: int
    ipv4_per_eni: int
    max_pods: int
    efa: int
    bare_metal: bool
    api_gpu_count: int
    prices: Mapping[str, RegionPrice] = field(hash=False)

    @property
    def nvme_total_gb(self) -> int:
        """Local NVMe of the instance in GB, 0 when it has only EBS."""
        return self.nvme_count * self.nvme_gb

    @property
    def quota_class(self) -> Literal["G", "P", "Standard"]:
        """The class its vCPUs count in; `quota_for` names the quota, which for Spot also depends on the generation."""
        letter = self.family[0]
        return "G" if letter == "g" else "P" if letter == "p" else "Standard"

    def price(self, region: str) -> RegionPrice:
        """Price in `region`; every field is None where the catalogue has no price."""
        return self.prices.get(region, _UNPRICED)


_UNPRICED = RegionPrice(on_demand=None, spot=None, interruption_band=None)


def max_pods(enis: int, ipv4_per_eni: int) -> int:
    """Pods a node takes with VPC addresses and no prefix delegation.

    nodeadm's formula (amazon-eks-ami, ``nodeadm/internal/kubelet``): each ENI keeps one address for itself, and two
    host-network pods need none. A managed node group without custom AMI caps the result at 110 (below 30 vCPU) or 250.
    """
    return enis * (ipv4_per_eni - 1) + 2


@cache
def instances() -> Mapping[str, InstanceType]:
    """Every instance type by name, in file order: system types, then by family and size."""
    prices = _prices()
    return MappingProxyType({row["name"]: _instance(row, prices) for row in _data.rows("instances.json")})


def instance(name: str) -> InstanceType:
    """The instance type of that name. Raises UnknownInstanceType with the nearest names."""
    try:
        return instances()[name]
    except KeyError:
        raise UnknownInstanceType(name, instances()) from None


def gpu_instances(gpu: str | None = None, min_gpus: int = 1) -> tuple[InstanceType, ...]:
    """Types with at least `min_gpus` GPU devices, of one model when `gpu` (a key of `gpus()`) is given."""
    return tuple(
        candidate
        for candidate in instances().values()
        if candidate.gpu is not None and candidate.gpu_count >= min_gpus and gpu in (None, candidate.gpu)
    )


def other_type(name: str) -> str:
    """Return what an instance type is that the catalogue has for no pool, as half a sentence; `` where unknown."""
    family, dot, size = name.partition(".")
    if not (dot and size):
        return ""
    return next((str(row["what"]) for row in _data.rows("other_types.json") if re.match(row["pattern"], family)), "")


@cache
def price_sources() -> Mapping[str, _data.Source]:
    """Sources of the prices of instance types were read, by the key that prices cite."""
    stamp = next(stamp for stamp in _data.stamps() if stamp.file == "instance_prices.json")
    return MappingProxyType({source.key: source for source in stamp.sources})


def _prices() -> dict[str, dict[str, RegionPrice]]:
    prices: dict[str, dict[str, RegionPrice]] = {}
    for row in _data.rows("instance_prices.json"):
        own = {field.name: row[field.name] for field in fields(RegionPrice)}
        prices.setdefault(row["type"], {})[row["region"]] = RegionPrice(**own)
    return prices


def _instance(row: _data.Row, prices: Mapping[str, Mapping[str, RegionPrice]]) -> InstanceType:
    memory = gpus()[row["gpu"]].memory_mib if row["gpu"] else 0
    return InstanceType(
        **row,
        family=row["name"].split(".")[0],
        gpu_memory_mib=int(memory * row["gpu_fraction"]),
        max_pods=max_pods(row["enis"], row["ipv4_per_eni"]),
        prices=MappingProxyType(prices.get(row["name"], {})),
    )
