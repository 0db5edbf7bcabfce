"""Copies between GPUs, judged beside those between GPUs that are connected alike."""

from __future__ import annotations

import pytest

from paddock.gpu.model import Pair
from paddock.smoke.stages import pairs
from paddock.smoke.verdict.model import PairSpeed

# Three GPUs of a V100 machine: two NVLinks, one, and none.
TOPOLOGY = (
    Pair(0, 1, "numa-node", nvlinks=2),
    Pair(0, 2, "numa-node", nvlinks=1),
    Pair(1, 2, "system"),
)


def test_pairs_are_measured_by_those_connected_alike() -> None:
    speeds = [PairSpeed(0, 1, 48.0, direct=True), PairSpeed(1, 0, 47.0, direct=True),
              PairSpeed(0, 2, 24.0, direct=True), PairSpeed(2, 0, 23.5, direct=True),
              PairSpeed(1, 2, 9.0, direct=False), PairSpeed(2, 1, 9.2, direct=False)]  # fmt: skip
    judged = pairs.with_floors(speeds, TOPOLOGY)
    assert pairs.slow(judged) == ""
    assert pairs.measurement(judged).status == "pass"
    slowed = pairs.with_floors([*speeds[:3], PairSpeed(2, 0, 6.0, direct=True), *speeds[4:]], TOPOLOGY)
    assert pairs.slow(slowed) == "slow for their connection: 2 to 0 (6 GB/s)"
    assert pairs.measurement(slowed).name == "slowest of 6 pairs (2 to 0)"


def test_a_connection_that_nobody_knows_has_no_limit() -> None:
    speeds = [PairSpeed(0, 1, 20.0, direct=True), PairSpeed(1, 0, 2.0, direct=True), PairSpeed(0, 2, 20.0, direct=True)]
    for topology in ((), (Pair(0, 1, None), Pair(0, 2, None))):
        judged = pairs.with_floors(speeds, topology)
        assert {pair.floor for pair in judged} == {None}
        assert pairs.measurement(judged).warn is None


@pytest.mark.parametrize(("direct", "found"), [(True, ""), (False, "copies go through the host: 0 to 1")])
def test_a_detour_counts_where_nvlinks_join_the_two(direct: bool, found: str) -> None:
    speeds = [PairSpeed(0, 1, 48.0, direct=direct), PairSpeed(1, 2, 9.0, direct=False)]
    assert found in pairs.detours(speeds, TOPOLOGY)
    assert "1 to 2" not in pairs.detours(speeds, TOPOLOGY)
