"""A pipeline over two agents on a real Ray, over real HTTP: its commands, its tokens, and its start anew."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.models.shapes import shape
from paddock.serve.own.protocol import Spec
from tests.support.answers import alone
from tests.support.serving import SECONDS, ServingCluster, cluster_in
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.explore, pytest.mark.xdist_group("ray")]

NEW = 64


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[ServingCluster]:
    with cluster_in(root, tmp_path) as cluster:
        yield cluster


def test_a_model_too_large_for_each_backend_serves_over_two(cluster: ServingCluster) -> None:
    for agent, backend, mib in (("head", "cpu", 4), ("box", "cuda", 17), ("mac", "metal", 17)):
        cluster.devices(agent, backend, mib=mib)  # type: ignore[arg-type]  # each is one
    address = cluster.up()["address"]
    for agent in ("box", "mac"):
        cluster.join(address, agent)
    load = ("load", "tiny", "--dtype", "fp32", "--context", "256", "--concurrency", "2")
    refused = cluster.run(*load)
    assert refused.returncode == 1
    assert "two stages on two backends, which is experimental (--pipeline)" in refused.stdout
    loaded = cluster.done(*load, "--pipeline")
    assert (loaded["class"], loaded["devices"]) == ("HeterogeneousPipeline", ["box/cuda:0", "mac/metal:0"])
    assert [group["layers"] for group in loaded["plan"]["groups"]] == [3, 1]
    until(lambda: cluster.serving() == ["tiny"], SECONDS)

    spec = Spec(shape("tiny"), "fp32", "cpu", 1, 256)
    (expected,) = alone(spec, [list(b"hello")], NEW)
    events = [event["choices"][0] for event in cluster.stream("tiny", NEW)]
    assert "".join(choice["text"] for choice in events) == "".join(chr(32 + token % 95) for token in expected)

    stream = cluster.stream("tiny", 200)
    assert "choices" in next(stream)
    (stage,) = cluster.processes("mac", "ray::Stage")
    cluster.kill([stage])
    *_, last = stream
    assert last["error"]["code"] == "agent_lost", last
    assert "stage 1 on mac/metal:0" in last["error"]["message"]
    until(lambda: cluster.processes("mac", "ray::Stage") not in ([], [stage]), SECONDS)
    cluster.answers_again("tiny")
