"""Addresses that a node takes of its subnet, by the VPC CNI's own rules."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock import catalog
from paddock.fleet.sizing.addresses import PREFIX, Cni, Taken, subnets, taken
from tests.support import fleets
from tests.support.fleets import changed

XLARGE = catalog.instance("g4dn.xlarge")  # three interfaces of ten addresses


@pytest.mark.parametrize(("pods", "cni", "expected"), [
    (9, Cni(), Taken(1, 10)),
    (10, Cni(), Taken(2, 20)),
    (29, Cni(), Taken(3, 30)),
    (16, Cni(prefixes=True), Taken(1, 16 + 1)),
    (17, Cni(prefixes=True), Taken(1, 2 * 16 + 1)),
    (110, Cni(prefixes=True), Taken(1, 7 * 16 + 1)),
    (16, Cni(by_address=True), Taken(2, 16 + 2)),
    (8, Cni(by_address=True, minimum=20), Taken(3, 20 + 3)),
    (16, Cni(elsewhere=True), Taken(1, 1)),
])  # fmt: skip
def test_node_takes_what_the_cni_attaches(pods: int, cni: Cni, expected: Taken) -> None:
    assert taken(XLARGE, pods, cni) == expected


@given(st.sampled_from(sorted(catalog.instances())), st.integers(1, 250), st.booleans(), st.booleans())
def test_every_pod_that_has_room_gets_an_address(name: str, pods: int, prefixes: bool, by_address: bool) -> None:
    instance = catalog.instance(name)
    took = taken(instance, pods, Cni(prefixes, by_address))
    room = instance.enis * (instance.ipv4_per_eni - 1) * (PREFIX if prefixes else 1)
    assert 1 <= took.interfaces <= instance.enis
    assert took.addresses - took.interfaces >= min(pods, room)


@pytest.mark.parametrize(("update", "nodes"), [
    ({}, 2),
    ({"maxUnavailable": 6}, 3),
    ({"strategy": "minimal"}, 0),
])  # fmt: skip
def test_update_starts_two_nodes_a_zone_first(update: dict[str, Any], nodes: int) -> None:
    (first, *_) = subnets(changed({"update": update}))
    (pool,) = (use for use in first.uses if use.who == "pools.t4")
    assert pool.updating == nodes * 20


def test_control_plane_is_in_its_own_zones_alone() -> None:
    fleet = changed({}, network={"zones": 3}, cluster={"zones": ["us-west-2a", "us-west-2b"]})
    assert [any(use.who == "cluster" for use in subnet.uses) for subnet in subnets(fleet)] == [True, True, False]


def test_sizes_of_adopted_subnets_are_not_known() -> None:
    assert {subnet.size for subnet in subnets(fleets.named("existing-network").fleet)} == {None}
