"""Serving: what needs no cluster, and an endpoint of another server in one."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench.load.scripted_server import Reply, ScriptedServer, stream
from tests.support.door import Door
from tests.support.serving import SECONDS, ServingCluster, cluster_in
from tests.support.waiting import until


@pytest.mark.door("serve.plan", "this machine without a GPU, and devices of a file")
def test_a_plan_needs_no_cluster(inv: Door) -> None:
    (inv.folder / "box.json").write_text(
        json.dumps({"devices": [{"agent": "box", "backend": "cuda", "index": 0, "memory_mib": 4096, "name": None}]})
    )
    planned = inv("serve.plan", "tiny", "--devices", "box.json", "--json")
    assert planned.returncode == 0, planned.stderr
    assert json.loads(planned.stdout)["groups"][0]["devices"]
    refused = inv("serve.plan", "llama-3.1-70b", "--devices", "box.json")
    assert refused.returncode == 1
    assert "fix:" in refused.stdout


@pytest.mark.door("serve.check", "this machine: a checklist, and rules for Prometheus")
def test_a_checklist_and_the_alerts_need_no_engine(inv: Door) -> None:
    checked = inv("serve.check", "desktop", "--json")
    assert checked.returncode == 0, checked.stderr
    assert len(json.loads(checked.stdout)["items"]) > 3
    assert "groups:" in inv("serve.check", "--alerts").stdout


@pytest.fixture
def cluster(root: Path, tmp_path: Path, inv: Door) -> Iterator[ServingCluster]:
    """Yield a cluster of a head alone; it is ended afterwards."""
    inv("serve.models")  # skips where Ray is absent
    with cluster_in(root, tmp_path) as cluster:
        cluster.devices("head", "cpu")
        yield cluster


@pytest.mark.e2e
@pytest.mark.xdist_group("ray")
@pytest.mark.door("serve.load", "real Ray, an HTTP server that answers as scripted")
@pytest.mark.door("serve.infer", "real Ray, an HTTP server that stops in its answer", interrupted=True)
def test_an_endpoint_is_loaded_by_its_url_and_an_answer_interrupted(cluster: ServingCluster, inv: Door) -> None:
    waits = threading.Event()

    def script(_: int, body: Mapping[str, Any]) -> Reply:
        if "wait" in json.dumps(body):
            waits.set()
            return stream(8, gap=60.0)
        return stream(8)

    with ScriptedServer(script).running() as server:
        cluster.up()
        row = cluster.done("load", "scripted", "--url", server.url)
        assert (row["state"], row["url"]) == ("serving", server.url)
        until(lambda: cluster.serving() == [row["id"]], SECONDS)
        assert cluster.done("infer", row["id"], "hello", "--max-tokens", "8")["text"]
        process = inv.start("serve.infer", row["id"], "wait", env=cluster.environ)
        assert waits.wait(SECONDS)
        code, _, err = inv.interrupt(process)
        assert (code, err) == (130, "interrupted\n")
        assert cluster.done("unload", row["id"])["ended"]
