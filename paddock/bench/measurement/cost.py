"""Cost of a token: the price of an hour over the tokens of that hour."""

from __future__ import annotations

from dataclasses import dataclass

from paddock.catalog.gpus import gpus
from paddock.catalog.instances import InstanceType, instances, price_sources

_SECONDS = 3600
_WEIGHTS_FIT = 1.1
"""Memory over weights: the rest of a model and its cache take a tenth more."""


@dataclass(frozen=True, slots=True)
class TokenCost:
    """Price of a million new tokens in dollars on an instance type that does nothing else.

    `measured` is false where its speed is assumed: from its GPU's memory bandwidth, or from its number of vCPUs. Where
    it has GPUs for several `copies` of the model, each serves, and `tokens_per_s` are those of all.
    """

    instance: str
    region: str
    usd_per_hour: float
    usd_per_million: float
    tokens_per_s: float
    source: str
    as_of: str | None
    measured: bool
    copies: int = 1


def usd_per_million(usd_per_hour: float, tokens_per_s: float, utilisation: float = 1.0) -> float:
    """Return ``price / (T u 3600) 10^6``: at half utilisation a token costs twice as much."""
    return usd_per_hour / (tokens_per_s * utilisation * _SECONDS) * 1e6


def on_instance(
    name: str, region: str, tokens_per_s: float, *, devices: int | None = 1, measured: bool = True
) -> TokenCost | None:
    """Return the cost on an instance type, of whose GPUs `devices` serve one copy of the model at `tokens_per_s`.

    No `devices` are its CPUs, which serve one copy. None where the catalogue has no
    such type, or no price of it there.
    """
    instance = instances().get(name)
    price = instance.price(region) if instance else None
    if instance is None or price is None or price.on_demand is None:
        return None
    copies = max(1, instance.gpu_count // devices) if devices else 1
    source = price_sources().get(price.on_demand_source or "")
    return TokenCost(
        name, region, price.on_demand, usd_per_million(price.on_demand, tokens_per_s * copies), tokens_per_s * copies,
        source.name if source else "unknown", source.as_of.isoformat() if source and source.as_of else None, measured,
        copies,
    )  # fmt: skip


def elsewhere(
    tokens_per_s: float, region: str, *, gpu: str | None, devices: int, weight_bytes: int, vcpus: int, number: str
) -> list[TokenCost]:
    """Return the assumed cost on the cheapest instance type of each kind: first on this GPU's own, then cheapest first.

    With a GPU that the catalogue has, decoding is assumed to follow memory bandwidth on every other that holds the
    weights and computes in this number format; on the CPU, an instance type with as many vCPUs is assumed to be
    as fast.
    """
    costs: dict[str, TokenCost] = {}
    for instance in instances().values():
        speed = _speed(instance, tokens_per_s, gpu, devices, weight_bytes, vcpus)
        if instance.gpu and number in gpus()[instance.gpu].unsupported:
            continue
        cost = on_instance(instance.name, region, speed, devices=devices, measured=False) if speed else None
        kind = instance.gpu or "cpu"
        if cost is not None and (kind not in costs or cost.usd_per_million < costs[kind].usd_per_million):
            costs[kind] = cost
    return sorted(costs.values(), key=lambda cost: (instances()[cost.instance].gpu != gpu, cost.usd_per_million))


def _speed(
    instance: InstanceType, tokens_per_s: float, gpu: str | None, devices: int, weight_bytes: int, vcpus: int
) -> float | None:
    if gpu is None:
        burstable = instance.family.startswith("t")
        return tokens_per_s if instance.gpu is None and instance.vcpus == vcpus and not burstable else None
    here = gpus()[gpu].bandwidth_gbs
    other = gpus()[instance.gpu].bandwidth_gbs if instance.gpu else None
    if not here or not other or instance.gpu_count < devices or instance.gpu_fraction < 1:
        return None
    if weight_bytes * _WEIGHTS_FIT > devices * instance.gpu_memory_mib * 2**20:
        return None
    return tokens_per_s * other / here
