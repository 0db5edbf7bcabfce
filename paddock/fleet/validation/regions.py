"""Checks of the region, and of the zones that the network takes there."""

from __future__ import annotations

from collections.abc import Iterator

from paddock import catalog
from paddock.fleet.errors import Problem, did_you_mean
from paddock.fleet.model.cluster import KubeconfigCluster
from paddock.fleet.model.fleet import Fleet
from paddock.fleet.model.network import NewNetwork


def problems(fleet: Fleet) -> Iterator[Problem]:
    """Yield problems of a region that the catalogue does not list, or that lacks the zones counted on."""
    regions = catalog.regions()
    if fleet.region not in regions:
        expected = "a region of AWS, such as us-west-2"
        yield Problem(
            ("region",),
            f"the catalogue has no AWS region {fleet.region}",
            expected,
            did_you_mean(fleet.region, regions)
            or "one that AWS added since goes into paddock/catalog/data/regions.json",
        )
        return
    zones, letters = getattr(fleet.network, "zones", None), regions[fleet.region]
    if not isinstance(fleet.network, NewNetwork) or isinstance(fleet.cluster, KubeconfigCluster):
        return
    command = f"aws ec2 describe-availability-zones --region {fleet.region}"
    if isinstance(zones, int) and letters is None:
        message = f"accounts have different zones in {fleet.region}, so they cannot be counted"
        expected = f"their names: [{fleet.region}a, {fleet.region}c]"
        yield Problem(("network", "zones"), message, expected, f"{command} lists those of your account")
    elif isinstance(zones, int) and letters is not None and zones > len(letters):
        message = f"{fleet.region} has {len(letters)} zones, not {zones}"
        yield Problem(("network", "zones"), message, f"{len(letters)} or fewer", f"write zones: {len(letters)}")
