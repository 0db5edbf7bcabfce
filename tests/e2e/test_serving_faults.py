"""Faults of a cluster on a real Ray, over real HTTP: a wrong token, an engine that dies, a head that is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.serving import SECONDS, ServingCluster, cluster_in
from tests.support.small_gguf import small_gguf
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[ServingCluster]:
    """Yield a cluster whose head will be too small."""
    with cluster_in(root, tmp_path) as cluster:
        cluster.devices("head", "cpu", mib=8)
        cluster.devices("box", "cuda", name="NVIDIA A10G")
        small_gguf(cluster.folder)
        yield cluster


def test_models_outlive_a_missing_agent_a_dead_engine_and_a_killed_head(cluster: ServingCluster) -> None:
    address = cluster.up()["address"]
    (cluster.folder / "wrong").write_text("a" * 64)
    refused = cluster.run("join", address, "--name", "box", "--token-file", "wrong")
    assert (refused.returncode, "refuses the token" in refused.stderr) == (2, True), refused.stderr
    second = cluster.run("up")
    assert (second.returncode, "a head already runs here" in second.stderr) == (2, True), second.stderr

    declared = cluster.done("load", "tiny.gguf", "--pending")
    assert declared["state"] == "pending"
    assert "head/cpu:0 lacks " in declared["reason"]
    cluster.join(address, "box")
    until(lambda: cluster.serving() == ["tiny"], SECONDS)
    assert cluster.model("tiny")["devices"] == ["box/cuda:0"]

    events = cluster.stream("tiny", 4000)
    assert "choices" in next(events)
    (engine,) = cluster.engines("box")
    cluster.kill([engine])
    *_, last = events
    assert last["error"]["code"] in ("agent_lost", "engine_error"), last
    cluster.answers_again("tiny")
    assert cluster.engines("box") != [engine]

    cluster.kill(cluster.processes("head"))
    assert cluster.serving() == []
    assert cluster.up()["address"] == address
    until(lambda: cluster.serving() == ["tiny"], SECONDS)
    model = cluster.model("tiny")
    assert model["devices"] == ["box/cuda:0"], "it waited for the agent that it ran on"
    cluster.answers_again("tiny")
