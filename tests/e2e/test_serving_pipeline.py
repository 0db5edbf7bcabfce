"""A pipeline over two nodes of a real Ray, on the processor: its tokens, its memory, its end, and its commands."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.bench.engine.protocol import Spec
from paddock.bench.engine.shapes import shape
from paddock.serve.admission.sampling import GREEDY, Sampling
from paddock.serve.deployment.pipeline import load_pipeline, stage_specs
from paddock.serve.deployment.workers import Seat
from paddock.serve.engine.rows import warm_up
from paddock.serve.errors import ServeError
from tests.support.answers import PROMPTS, SECONDS, SHAPE, WARM, alone, answers, drawn_on_one_device, write_checkpoint
from tests.support.ray_nodes import in_group, ray_nodes
from tests.support.serving import ServingCluster
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

SEATS = (Seat("box/cuda:0", {"agent:box": 1}), Seat("mac/metal:0", {"agent:mac": 1}))
NEW = 64


@pytest.fixture
def cluster(root: Path, tmp_path: Path) -> Iterator[ServingCluster]:
    """Yield a cluster without a head; all that it started is ended afterwards."""
    pytest.importorskip("ray", reason="no ray in this environment")
    pytest.importorskip("torch", reason="no torch in this environment")
    cluster = ServingCluster(root, tmp_path)
    yield cluster
    assert cluster.run("down").returncode == 0


def test_a_model_too_large_for_each_backend_serves_over_two(cluster: ServingCluster) -> None:
    for agent, backend, mib in (("head", "cpu", 4), ("box", "cuda", 17), ("mac", "metal", 17)):
        cluster.devices(agent, backend, mib=mib)  # type: ignore[arg-type]  # each is one
    address = cluster.up()["address"]
    for agent in ("box", "mac"):
        cluster.join(address, agent)
    load = ("load", "tiny", "--dtype", "fp32", "--context", "256", "--concurrency", "2")
    refused = cluster.run(*load)
    assert refused.returncode == 1
    assert "two stages on two backends, which is experimental (--pipeline)" in refused.stderr
    loaded = cluster.done(*load, "--pipeline")
    assert (loaded["class"], loaded["devices"]) == ("HeterogeneousPipeline", ["box/cuda:0", "mac/metal:0"])
    assert [group["layers"] for group in loaded["plan"]["groups"]] == [3, 1]
    until(lambda: cluster.serving() == ["tiny"], SECONDS)

    spec = Spec(shape("tiny"), "fp32", "cpu", 1, 256, compiled=False)
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


@pytest.fixture(scope="module")
def ray(root: Path) -> Iterator[Any]:
    with ray_nodes(root, ("box", "mac")) as ray:
        yield ray


class Holder:
    """Stage 0, in the first bundle of a placement group."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._specs = specs

    def load(self) -> int:
        info, self._rows = load_pipeline(SEATS, self._specs)
        warm_up(self._rows)
        return info.weight_bytes

    def answers(self, prompts: Sequence[Sequence[int]], new: int, sampling: Sampling = GREEDY) -> list[list[int]]:
        return answers(self._rows, prompts, new, sampling)

    def weights_of_stage_1(self) -> list[str]:
        import ray

        (stage,) = self._rows.workers.actors
        model = stage.__ray_call__.remote(lambda stage: list(stage._rows._engine.model.state_dict()))
        return list(ray.get(model))

    def pid_of_stage_1(self) -> int:
        import ray

        (stage,) = self._rows.workers.actors
        return int(ray.get(stage.__ray_call__.remote(lambda _: os.getpid())))


def pipeline(ray: Any, spec: Spec, counts: Sequence[int]) -> Any:
    return in_group(ray, Holder, [seat.bundle for seat in SEATS], stage_specs([spec, spec], counts))


@pytest.mark.parametrize(("dtype", "stored"), [("fp32", True), ("int8", False)])
def test_two_stages_answer_many_requests_like_one_device(ray: Any, dtype: str, stored: bool, tmp_path: Path) -> None:
    spec = Spec(SHAPE, dtype, "cpu", 3, 128, write_checkpoint(tmp_path) if stored else "", compiled=False)
    staged = pipeline(ray, spec, (3, 1))
    held = ray.get(staged.load.remote(), timeout=SECONDS)
    expected = alone(spec, PROMPTS, NEW)
    assert ray.get(staged.answers.remote(PROMPTS, NEW), timeout=SECONDS) == expected
    drawn = ray.get(staged.answers.remote(PROMPTS, NEW, WARM), timeout=SECONDS)
    assert drawn == drawn_on_one_device(spec, PROMPTS, NEW) != expected
    assert ray.get(staged.answers.remote(PROMPTS[:1], NEW), timeout=SECONDS) == expected[:1]
    assert held < SHAPE.weight_bytes(dtype)
    names = ray.get(staged.weights_of_stage_1.remote(), timeout=SECONDS)
    assert "model.embed_tokens.weight" not in names
    assert {name.split(".")[2] for name in names if ".layers." in name} == {"0"}
    if stored:
        assert len(set(expected[0])) > NEW // 4, "answers of one token would agree by chance"
        return
    os.kill(ray.get(staged.pid_of_stage_1.remote(), timeout=SECONDS), signal.SIGKILL)
    with pytest.raises((ServeError, ray.exceptions.RayActorError)) as end:
        until(lambda: ray.get(staged.answers.remote(PROMPTS, 2), timeout=SECONDS) == "never", SECONDS)
    assert isinstance(end.value, ray.exceptions.RayActorError) or "stage 1 on mac/metal:0 has gone" in str(end.value)
    with pytest.raises(ray.exceptions.RayActorError):
        until(lambda: ray.get(staged.pid_of_stage_1.remote(), timeout=SECONDS) == "never", SECONDS)


def test_a_stage_that_fails_is_named(ray: Any) -> None:
    spec = Spec(SHAPE, "fp32", "cpu", 1, 64, compiled=False)
    first, second = stage_specs([spec, spec], (2, 2))
    broken = Spec(SHAPE, "fp32", "cpu", 1, 64, "/nowhere", compiled=False, layers=second.layers)
    staged = in_group(ray, Holder, [seat.bundle for seat in SEATS], (first, broken))
    with pytest.raises(ServeError, match=r"stage 1 on mac/metal:0 did not load its layers: --model: cannot read /nowh"):
        ray.get(staged.load.remote(), timeout=SECONDS)
