"""One cluster on a real Ray, over real HTTP: what commands say, and what outlives the end of each of its processes.

The devices are those of a file, and the processor computes. The tests follow each other on the same cluster.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.serving import SECONDS, ServingCluster, cluster_in, free_port
from tests.support.small_gguf import small_gguf
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

SMALL = ("--context", "4096", "--concurrency", "2")
MODEL = "tiny.gguf"
VERSIONS = """\
import json, sys
from ray._common.usage import usage_constants
from ray._private import ray_constants
from ray._raylet import GcsClient

client = GcsClient(address=sys.argv[1])
key, namespace = usage_constants.CLUSTER_METADATA_KEY, ray_constants.KV_NAMESPACE_CLUSTER
before = json.loads(client.internal_kv_get(key, namespace=namespace))
print(before["ray_version"])
client.internal_kv_put(key, json.dumps({**before, "ray_version": sys.argv[2]}).encode(), True, namespace=namespace)
"""


@pytest.fixture(scope="module")
def cluster(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingCluster]:
    """Yield a head with a processor, and an agent with a GPU; the model `tiny` serves on the agent."""
    with cluster_in(root, tmp_path_factory.mktemp("cluster")) as cluster:
        cluster.devices("head", "cpu", mib=2048)
        cluster.devices("box", "cuda", name="NVIDIA A10G")
        small_gguf(cluster.folder)
        cluster.join(cluster.up("--queue", "0")["address"], "box")
        yield cluster


@pytest.fixture(scope="module")
def address(cluster: ServingCluster) -> str:
    return str(json.loads((cluster.state / "head.json").read_text())["address"])


def test_a_plan_of_the_cluster_and_a_load_say_what_stays_unused(cluster: ServingCluster) -> None:
    planned = cluster.run("plan", MODEL, "--cluster", "--mode", "conservative")
    assert planned.returncode == 0, planned.stderr
    assert "Plan       HomogeneousCuda: llama.cpp, Q8_0 on one device" in planned.stdout
    assert "Request    Q8_0 weights, 2 requests at once" in planned.stdout
    loaded = cluster.run("load", MODEL, *SMALL, "--mode", "conservative", "--wait")
    assert loaded.returncode == 0, loaded.stderr
    for text in ("Unused\n  head/cpu:0  another backend than cuda", "load another instance here", "tiny  "):
        assert text in loaded.stdout
    assert cluster.serving() == ["tiny"]


def test_a_model_that_fits_nowhere_says_what_each_device_lacks(cluster: ServingCluster) -> None:
    refused = cluster.run("load", "llama-3.1-8b")
    assert (refused.returncode, "llama-3.1-8b fits nowhere in the cluster" in refused.stderr) == (1, True)
    assert "head/cpu:0 lacks " in refused.stdout
    assert "box/cuda:0  it serves tiny" in refused.stdout
    assert "fix: " in refused.stdout
    assert cluster.run("plan", "llama-3.1-8b", "--cluster").returncode == 1


def test_without_a_queue_an_instance_still_answers_side_by_side(cluster: ServingCluster) -> None:
    with closing(cluster.stream("tiny", 4000)) as first, closing(cluster.stream("tiny", 4000)) as second:
        for events in (first, second):
            assert "choices" in next(events)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            next(cluster.stream("tiny", 1))
        statistics = cluster.model("tiny")["statistics"]
        assert (statistics["running"], statistics["waiting"]) == (2, 0), "a full replica tells its statistics"
    until(lambda: cluster.answers("tiny"), SECONDS)


def test_a_replica_keeps_to_the_mode_of_its_load(cluster: ServingCluster) -> None:
    for _ in range(2):
        assert cluster.run("infer", "tiny", "hello", "--max-tokens", "8").returncode == 0
    row = cluster.model("tiny")
    assert (row["mode"], row["concurrency"], row["statistics"]["slots"]) == ("conservative", 2, 2)
    (engine,) = cluster.engines("box")
    assert Path(f"/proc/{engine}/stat").read_text().rpartition(")")[2].split()[16] == "15", "nice"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--name", "box"), "has an agent box already"),
        (("--name", "head"), "--name head is the name of the head's own devices"),
        (("--name", "../../x"), "'../../x' is not an agent name"),
        (("--name", "mac", "--devices", "box.json"), "it has no device of an agent mac\n    expected: one of box"),
    ],
    ids=["taken", "the head's", "outside the folder", "not in the file"],
)
def test_an_agent_joins_under_a_name_of_its_own(
    cluster: ServingCluster, address: str, tmp_path: Path, words: tuple[str, ...], message: str
) -> None:
    """Another machine, which has the token and a state of its own."""
    token = str(cluster.state / "token")
    refused = cluster.run("join", address, *words, "--token-file", token, XDG_STATE_HOME=str(tmp_path))
    assert (refused.returncode, message in refused.stderr) == (2, True), refused.stderr


def test_another_version_of_ray_is_refused_before_anything_starts(cluster: ServingCluster, address: str) -> None:
    def head_says(version: str) -> str:
        """Change the version that the head tells of itself, and return the one before."""
        token = (cluster.state / "token").read_text().strip()
        environ = {**cluster.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": token}
        done = subprocess.run(
            [sys.executable, "-c", VERSIONS, address, version], env=environ, capture_output=True, text=True, check=True
        )
        return done.stdout.split()[-1]

    own = head_says("2.44.1")
    try:
        refused = cluster.run("join", address, "--name", "late", "--devices", "late.json")
        assert refused.returncode == 2
        cluster.devices("late", "cuda")
        refused = cluster.run("join", address, "--name", "late", "--devices", "late.json")
        assert (refused.returncode, f"runs Ray 2.44.1, and this machine {own}" in refused.stderr) == (2, True)
    finally:
        head_says(own)
    assert not (cluster.state / "late.json").exists()


def test_a_second_head_on_the_port_is_refused_to_another_user(cluster: ServingCluster, tmp_path: Path) -> None:
    words = ("--port", str(cluster.port), "--http-port", str(free_port()), "--devices", "head.json")
    refused = cluster.run("up", *words, XDG_STATE_HOME=str(tmp_path))
    assert refused.returncode == 2
    assert f"--port {cluster.port} cannot be used: " in refused.stderr
    assert "Address already in use" in refused.stderr


@pytest.mark.door("serve.up", "real Ray, devices of a file", interrupted=True)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_start_leaves_nothing(cluster: ServingCluster, tmp_path: Path, number: signal.Signals) -> None:
    other = ServingCluster(cluster._root, tmp_path)
    other.devices("head", "cpu")
    words = ("--port", str(other.port), "--http-port", str(other.http_port), "--devices", "head.json")
    command = other.command("up", *words)
    with subprocess.Popen(command, cwd=tmp_path, env=other.environ, stderr=subprocess.PIPE, text=True) as up:
        until(lambda: (other.state / "head.json").exists() or up.poll() is not None, SECONDS)
        assert up.poll() is None, up.communicate()
        processes = until(lambda: other.processes("head"), SECONDS)
        up.send_signal(number)
        assert up.wait(SECONDS) == 130
    assert not (other.state / "head.json").exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)


def test_an_unloaded_model_ends_its_streams_with_the_reason_and_its_devices_are_free(cluster: ServingCluster) -> None:
    events = cluster.stream("tiny", 4000)
    assert "choices" in next(events)
    assert cluster.done("unload", "tiny")["ended"]
    *_, last = events
    assert last["error"] == {
        "message": last["error"]["message"], "type": "model_unloaded", "param": None, "code": "model_unloaded"
    }  # fmt: skip
    again = cluster.done("load", MODEL, *SMALL, "--wait")
    assert (again["state"], again["devices"]) == ("serving", ["box/cuda:0"])


@pytest.mark.parametrize("title", ["ray::Scheduler", "ray::Ingress"])
def test_a_model_serves_on_when_what_manages_it_is_killed(cluster: ServingCluster, title: str) -> None:
    (pid,) = cluster.processes("head", title)
    replicas = cluster.processes("box", "ray::Holder")
    cluster.kill([pid])
    until(lambda: cluster.processes("head", title) not in ([], [pid]), SECONDS)
    cluster.answers_again("tiny")
    row = until(lambda: (row := cluster.model("tiny"))["state"] == "serving" and row, SECONDS)
    assert (row["moves"], row["devices"]) == (0, ["box/cuda:0"])
    assert cluster.processes("box", "ray::Holder") == replicas


def test_an_agent_that_is_killed_ends_its_stream_and_its_model_is_placed_anew(cluster: ServingCluster) -> None:
    events = cluster.stream("tiny", 4000)
    assert "choices" in next(events)
    cluster.kill(cluster.processes("box"))
    *_, last = events
    assert last["error"]["code"] == "agent_lost", last
    cluster.answers_again("tiny")
    row = until(lambda: (row := cluster.model("tiny"))["state"] == "serving" and row, SECONDS)
    assert (row["moves"], row["devices"]) == (1, ["head/cpu:0"])
    assert "it ran on cuda before" in row["reason"]
    nodes = {row["agent"]: row for row in cluster.done("nodes")["agents"]}
    assert (nodes["box"]["alive"], nodes["head"]["devices"][0]["instance"]) == (False, "tiny")
