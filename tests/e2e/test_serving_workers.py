"""Gangs and pipelines over two nodes of a real Ray, on the processor: their tokens, their memory, and their end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.serve.admission.sampling import GREEDY, Sampling
from paddock.serve.deployment.gang import load_gang
from paddock.serve.deployment.pipeline import load_pipeline, stage_specs
from paddock.serve.deployment.workers import Seat
from paddock.serve.engine.rows import warm_up
from paddock.serve.errors import ServeError
from paddock.serve.own.protocol import Spec
from tests.support.answers import PROMPTS, SECONDS, SHAPE, WARM, alone, answers, drawn_on_one_device, write_checkpoint
from tests.support.packages import need
from tests.support.ray_nodes import in_group, ray_nodes
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.explore, pytest.mark.xdist_group("ray")]

BOX, MAC = {"agent:box": 1}, {"agent:mac": 1}
GANG = (Seat("box/cuda:0", BOX), Seat("other/cuda:0", MAC))
PIPELINE = (Seat("box/cuda:0", BOX), Seat("mac/metal:0", MAC))


@pytest.fixture(scope="module")
def ray(root: Path) -> Iterator[Any]:
    with ray_nodes(root, ("box", "mac")) as ray:
        yield ray


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> str:
    need("torch")
    return write_checkpoint(tmp_path_factory.mktemp("checkpoint"))


class Holder:
    """The first process of an instance, in the first bundle of a placement group; `_load` gives it the rows."""

    _rows: Any

    def _load(self) -> Any:
        raise NotImplementedError

    def load(self) -> int:
        info, self._rows = self._load()
        warm_up(self._rows)
        return int(info.weight_bytes)

    def answers(self, prompts: Sequence[Sequence[int]], new: int, sampling: Sampling = GREEDY) -> list[list[int]]:
        return answers(self._rows, prompts, new, sampling)

    def pid_of_worker(self) -> int:
        import ray

        (worker,) = self._rows.workers.actors
        return int(ray.get(worker.__ray_call__.remote(lambda _: os.getpid())))

    def weights_of_worker(self) -> list[str]:
        import ray

        (worker,) = self._rows.workers.actors
        model = worker.__ray_call__.remote(lambda worker: list(worker._rows._engine.model.state_dict()))
        return list(ray.get(model))


class GangHolder(Holder):
    """Rank 0."""

    def __init__(self, seats: Sequence[Seat], spec: Spec, seconds: float) -> None:
        self._arguments = seats, spec, seconds

    def _load(self) -> Any:
        seats, spec, seconds = self._arguments
        return load_gang(seats, spec, start_seconds=seconds)


class PipelineHolder(Holder):
    """Stage 0."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._specs = specs

    def _load(self) -> Any:
        return load_pipeline(PIPELINE, self._specs)


def gang(ray: Any, spec: Spec, seats: Sequence[Seat] = GANG, seconds: float = SECONDS) -> Any:
    return in_group(ray, GangHolder, [seat.bundle for seat in seats], seats, spec, seconds)


def pipeline(ray: Any, specs: Sequence[Spec]) -> Any:
    return in_group(ray, PipelineHolder, [seat.bundle for seat in PIPELINE], specs)


def ends_with_its_worker(ray: Any, holder: Any, name: str) -> None:
    """Kill the worker of an instance, and see that the instance says so and ends."""
    os.kill(ray.get(holder.pid_of_worker.remote(), timeout=SECONDS), signal.SIGKILL)
    with pytest.raises((ServeError, ray.exceptions.RayActorError)) as end:
        until(lambda: ray.get(holder.answers.remote(PROMPTS, 2), timeout=SECONDS) == "never", SECONDS)
    assert isinstance(end.value, ray.exceptions.RayActorError) or f"{name} has gone" in str(end.value)
    with pytest.raises(ray.exceptions.RayActorError):
        until(lambda: ray.get(holder.pid_of_worker.remote(), timeout=SECONDS) == "never", SECONDS)


def test_a_gang_answers_many_requests_like_one_device_and_ends_with_a_rank(ray: Any, checkpoint: str) -> None:
    spec, new = Spec(SHAPE, "fp32", "cpu", 3, 64, checkpoint), 24
    holder = gang(ray, spec)
    held = ray.get(holder.load.remote(), timeout=SECONDS)
    expected = alone(spec, PROMPTS, new)
    assert len(set(expected[0])) > new // 3, "answers of one token would agree by chance"
    assert ray.get(holder.answers.remote(PROMPTS, new), timeout=SECONDS) == expected
    drawn = ray.get(holder.answers.remote(PROMPTS, new, WARM), timeout=SECONDS)
    assert drawn == drawn_on_one_device(spec, PROMPTS, new) != expected
    assert held < SHAPE.model.weight_bytes("fp32")
    ends_with_its_worker(ray, holder, "rank 1 on other/cuda:0")


def test_a_rank_that_does_not_start_is_named_at_the_deadline(ray: Any, checkpoint: str) -> None:
    broken = Seat("other/cuda:0", MAC, {"PYTHONHOME": "/nowhere"})
    holder = gang(ray, Spec(SHAPE, "fp32", "cpu", 3, 64, checkpoint), (GANG[0], broken), seconds=5)
    with pytest.raises(ServeError, match=r"rank 1 on other/cuda:0 did not start within 5 s"):
        ray.get(holder.load.remote(), timeout=SECONDS)


@pytest.mark.parametrize(("dtype", "stored"), [("fp32", True), ("int8", False)])
def test_two_stages_answer_many_requests_like_one_device(ray: Any, checkpoint: str, dtype: str, stored: bool) -> None:
    spec, new = Spec(SHAPE, dtype, "cpu", 3, 128, checkpoint if stored else ""), 24
    staged = pipeline(ray, stage_specs([spec, spec], (3, 1)))
    held = ray.get(staged.load.remote(), timeout=SECONDS)
    expected = alone(spec, PROMPTS, new)
    assert ray.get(staged.answers.remote(PROMPTS, new), timeout=SECONDS) == expected
    assert ray.get(staged.answers.remote(PROMPTS[:1], new), timeout=SECONDS) == expected[:1]
    assert held < SHAPE.model.weight_bytes(dtype)
    names = ray.get(staged.weights_of_worker.remote(), timeout=SECONDS)
    assert "model.embed_tokens.weight" not in names
    assert {name.split(".")[2] for name in names if ".layers." in name} == {"0"}
    if stored:  # in fp32: with int8 one device alone draws other tokens in a batch of another size
        assert len(set(expected[0])) > new // 4, "answers of one token would agree by chance"
        drawn = ray.get(staged.answers.remote(PROMPTS, new, WARM), timeout=SECONDS)
        assert drawn == drawn_on_one_device(spec, PROMPTS, new) != expected
        return
    ends_with_its_worker(ray, staged, "stage 1 on mac/metal:0")


def test_a_stage_that_fails_is_named(ray: Any) -> None:
    spec = Spec(SHAPE, "fp32", "cpu", 1, 64)
    first, second = stage_specs([spec, spec], (2, 2))
    broken = Spec(SHAPE, "fp32", "cpu", 1, 64, "/nowhere", layers=second.layers)
    with pytest.raises(ServeError, match=r"stage 1 on mac/metal:0 did not load its layers: --model: cannot read /nowh"):
        ray.get(pipeline(ray, (first, broken)).load.remote(), timeout=SECONDS)
