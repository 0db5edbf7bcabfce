"""The table of Xids: complete, and what NVIDIA's catalogue says."""

from __future__ import annotations

import pytest

from paddock.catalog import _data
from paddock.catalog.xids import xid, xids

# Typed by hand from the catalogue, not read from our file.
PUBLISHED = {
    "restart-app": [8, 11, 13, 25, 31, 32, 39, 40, 41, 60, 68, 69, 70, 71, 72, 75, 76, 77, 80, 82, 83, 84, 85, 86, 88,
                    89, 94, *range(96, 106), *range(126, 136), 139],
    "ignore": [14, 37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 108, 121, 137, 141, 152, 153, 157, 160, 161],
    "reset": [46, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158],
    "reboot": [79, 151],
    "workflow": [48, 54, 74, 78, *range(144, 151), 154, 171, 172],
    "replace": [56, 57, 58, 65, 73, 81],
}  # fmt: skip


def test_every_xid_has_the_action_that_is_published_for_it() -> None:
    catalogued = {action: [entry.code for entry in xids().values() if entry.action == action] for action in PUBLISHED}
    assert catalogued == PUBLISHED
    assert sum(map(len, PUBLISHED.values())) == len(xids())


@pytest.mark.parametrize("code", [1, 61, 90, 999])
def test_a_number_without_a_known_action_is_not_guessed(code: int) -> None:
    assert xid(code) is None


def test_a_workflow_ends_in_something_and_an_action_needs_no_workflow() -> None:
    keys = {source["key"] for source in _data.document("xids.json")["sources"]}
    for entry in xids().values():
        assert (entry.then is None) == (entry.action != "workflow"), entry
        assert entry.source in keys
        assert entry.what


def test_only_a_broken_gpu_is_taken_out() -> None:
    assert {entry.code for entry in xids().values() if entry.action == "restart-app" and entry.severity != "note"} == {
        94
    }
    broken = [entry for entry in xids().values() if entry.action in {"reset", "reboot", "replace"}]
    assert {entry.severity for entry in broken} == {"unhealthy"}
