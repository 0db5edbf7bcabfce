"""Facts, from the catalogue."""

from __future__ import annotations

import json

import pytest

from tests.support.door import Door


@pytest.mark.door("catalog", "the facts of this checkout")
def test_instances_with_a_gpu_are_listed(inv: Door) -> None:
    listed = inv("catalog", "--gpu", "t4", "--json")
    assert listed.returncode == 0, listed.stderr
    assert "g4dn.xlarge" in {row["instance"] for row in json.loads(listed.stdout)["instances"]}
