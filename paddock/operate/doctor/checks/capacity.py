"""GPU capacity: whether AWS has the instance types in the zones, and what spot costs and promises."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

from paddock import catalog
from paddock.fleet import GpuPool, NewCluster
from paddock.fleet.nodes import capacities
from paddock.operate.doctor.context import Context
from paddock.operate.doctor.report import Amount, Result
from paddock.operate.sources.unavailable import Unavailable

AREA = "capacity"
_result = partial(Result, area=AREA)
NEAR_ON_DEMAND = 0.9
"""Spot at this share of the on-demand price is scarce: skypilot's catalogue has it where AWS hardly sells any."""
LOW_SCORE = 3
FEWEST_TYPES = 3
"""AWS always scores sets of fewer types low (EC2, "Spot placement score")."""


def offerings(context: Context) -> Iterator[Result]:
    """Check that each type of the pools, the system nodes and the image pipeline is offered in its zones."""
    fleet, zones = context.fleet, context.zones()
    required = {f"pools.{name}": (pool.instances, pool.zones or zones) for name, pool in fleet.pools.items()}
    if isinstance(fleet.cluster, NewCluster):
        required["cluster.system"] = (fleet.cluster.system.instances, zones)
    if fleet.images.ami.enabled and fleet.holds("images"):  # its instance starts in the first subnet
        required["images.ami"] = (fleet.images.ami.instances, (context.first_zone(),))
    types = sorted({name for instances, _ in required.values() for name in instances})
    offered = _offered(context, types)
    for subject, (instances, in_zones) in required.items():
        yield _offering(subject, instances, in_zones, offered, fleet.region)


def _offered(context: Context, types: list[str]) -> dict[str, set[str]]:
    """Return the zones of each type."""
    rows = context.aws.pages(
        "ec2",
        "describe_instance_type_offerings",
        "InstanceTypeOfferings",
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": types}],
    )
    zones: dict[str, set[str]] = {name: set() for name in types}
    for row in rows:
        zones.setdefault(row["InstanceType"], set()).add(row["Location"])
    return zones


def _offering(
    subject: str, instances: tuple[str, ...], zones: tuple[str, ...], offered: dict[str, set[str]], region: str
) -> Result:
    missing = {name: [zone for zone in zones if zone not in offered[name]] for name in instances}
    nowhere = [name for name in instances if len(missing[name]) == len(zones)]
    if not any(missing.values()):
        message = f"{', '.join(instances)} in {', '.join(zones)}"
        return _result(status="pass", subject=f"{subject} offered", message=message)
    parts = [f"{name} in {', '.join(sorted(gaps))}" for name, gaps in missing.items() if gaps]
    elsewhere = sorted({zone for name in instances for zone in offered[name]})
    fix = f"zones that have them: {', '.join(elsewhere)}" if elsewhere else "types that the region has"
    command = (
        f"aws ec2 describe-instance-type-offerings --region {region} --location-type availability-zone "
        f"--filters Name=instance-type,Values={','.join(instances)}"
    )
    return _result(
        status="fail" if len(nowhere) == len(instances) else "warn",
        subject=f"{subject} offered",
        message=f"AWS has no {'; no '.join(parts)}",
        fix=f"{fix}; {command}",
    )


def spot_price(pool: GpuPool) -> Callable[[Context], Iterator[Result]]:
    """Return the check of a pool's spot prices."""
    return partial(_spot_price, pool)


def _spot_price(pool: GpuPool, context: Context) -> Iterator[Result]:
    now, subject = datetime.now(UTC), f"pools.{pool.name} spot price"
    zones = set(pool.zones or context.zones())
    rows = context.aws.pages(
        "ec2",
        "describe_spot_price_history",
        "SpotPriceHistory",
        InstanceTypes=list(pool.instances),
        ProductDescriptions=["Linux/UNIX"],
        StartTime=now,
    )
    newest = _newest(row for row in rows if row["AvailabilityZone"] in zones)
    if not newest:
        message = f"EC2 has no spot price for {', '.join(pool.instances)} in {', '.join(sorted(zones))}"
        fix = f"pools.{pool.name}.fallback: on-demand, or other types and zones"
        yield _result(status="warn", subject=subject, message=message, fix=fix)
        return
    ratios: dict[tuple[str, str], float] = {}
    for (name, zone), row in newest.items():
        on_demand = catalog.instance(name).price(context.fleet.region).on_demand
        if on_demand:
            ratios[name, zone] = float(row["SpotPrice"]) / on_demand
    amounts = tuple(_amount(name, zone, row) for (name, zone), row in sorted(newest.items()))
    hours = max((now - _utc(row["Timestamp"])).total_seconds() / 3600 for row in newest.values())
    prices = sorted(float(row["SpotPrice"]) for row in newest.values())
    message = f"{prices[0]:.4g} to {prices[-1]:.4g} USD an hour, the oldest set {hours:.0f} h ago"
    if not ratios:
        message += "; the on-demand price here is not in the catalogue"
        fix = "./inv catalog.refresh"
        yield _result(status="unknown", subject=subject, message=message, fix=fix, amounts=amounts)
        return
    message += f"; {min(ratios.values()):.0%} to {max(ratios.values()):.0%} of on demand"
    scarce = sorted(key for key, ratio in ratios.items() if ratio > NEAR_ON_DEMAND)
    if scarce:
        message += f"; scarce: {', '.join(f'{name} in {zone}' for name, zone in scarce)}"
        fix = f"pools.{pool.name}.zones without those zones, other types, or capacity: on-demand"
        yield _result(status="warn", subject=subject, message=message, fix=fix, amounts=amounts)
        return
    yield _result(status="pass", subject=subject, message=message, amounts=amounts)


def _newest(rows: Iterator[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    newest: dict[tuple[str, str], dict[str, Any]] = {}
    for row in rows:
        key = row["InstanceType"], row["AvailabilityZone"]
        if key not in newest or _utc(row["Timestamp"]) > _utc(newest[key]["Timestamp"]):
            newest[key] = row
    return newest


def _amount(name: str, zone: str, row: dict[str, Any]) -> Amount:
    return Amount(
        name=f"{name} {zone}",
        value=float(row["SpotPrice"]),
        unit="USD/hour",
        source="ec2:DescribeSpotPriceHistory",
        as_of=_utc(row["Timestamp"]).isoformat(),
    )


def _utc(moment: datetime) -> datetime:
    return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)


def placement_score(pool: GpuPool) -> Callable[[Context], Iterator[Result]]:
    """Return the check of AWS's estimate that spot requests for a whole pool succeed."""
    return partial(_placement_score, pool)


def _placement_score(pool: GpuPool, context: Context) -> Iterator[Result]:
    subject, region = f"pools.{pool.name} spot score", context.fleet.region
    answer = context.aws.pages(
        "ec2",
        "get_spot_placement_scores",
        "SpotPlacementScores",
        InstanceTypes=list(pool.instances),
        TargetCapacity=pool.nodes.max,
        TargetCapacityUnitType="units",
        SingleAvailabilityZone=False,
        RegionNames=[region],
    )
    score = next((int(row["Score"]) for row in answer if row.get("Region") == region), None)
    if score is None:
        raise Unavailable(f"EC2 gives {', '.join(pool.instances)} no score in {region}")
    amount = Amount(name="score", value=score, unit="of 10", source="ec2:GetSpotPlacementScores",
                    as_of=datetime.now(UTC).isoformat())  # fmt: skip
    message = f"{score} of 10 for {pool.nodes.max} nodes in {region}"
    more = f"more types in pools.{pool.name}.instances" + (
        "" if "on-demand" in capacities(pool) else f", or pools.{pool.name}.fallback: on-demand"
    )
    if score > LOW_SCORE:
        yield _result(status="pass", subject=subject, message=message, amounts=(amount,))
    elif len(pool.instances) < FEWEST_TYPES:
        message += f", which says nothing: AWS scores fewer than {FEWEST_TYPES} types low"
        yield _result(status="unknown", subject=subject, message=message, fix=more, amounts=(amount,))
    else:
        yield _result(status="warn", subject=subject, message=message, fix=more, amounts=(amount,))
