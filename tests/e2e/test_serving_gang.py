"""A gang over two nodes of a real Ray, on the processor: its tokens, its memory, and its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.bench.engine.protocol import Spec
from paddock.serve.admission.sampling import GREEDY, Sampling
from paddock.serve.deployment.gang import load_gang
from paddock.serve.deployment.workers import Seat
from paddock.serve.engine.rows import warm_up
from paddock.serve.errors import ServeError
from tests.support.answers import PROMPTS, SECONDS, SHAPE, WARM, alone, answers, drawn_on_one_device, write_checkpoint
from tests.support.ray_nodes import in_group, ray_nodes
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

SEATS = tuple(Seat(f"{agent}/cuda:0", {f"agent:{agent}": 1}) for agent in ("box", "other"))
NEW = 24


@pytest.fixture(scope="module")
def ray(root: Path) -> Iterator[Any]:
    with ray_nodes(root, ("box", "other")) as ray:
        yield ray


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    pytest.importorskip("torch", reason="no torch in this environment")
    return Spec(SHAPE, "fp32", "cpu", 3, 64, write_checkpoint(tmp_path_factory.mktemp("checkpoint")), compiled=False)


class Holder:
    """Rank 0, in the first bundle of a placement group."""

    def __init__(self, seats: Sequence[Seat], spec: Spec, seconds: float) -> None:
        self._load = seats, spec, seconds

    def load(self) -> int:
        seats, spec, seconds = self._load
        info, self._rows = load_gang(seats, spec, start_seconds=seconds)
        warm_up(self._rows)
        return info.weight_bytes

    def answers(self, prompts: Sequence[Sequence[int]], new: int, sampling: Sampling = GREEDY) -> list[list[int]]:
        return answers(self._rows, prompts, new, sampling)

    def pid_of_rank_1(self) -> int:
        import ray

        (rank,) = self._rows.workers.actors
        return int(ray.get(rank.__ray_call__.remote(lambda _: os.getpid())))


def holder(ray: Any, spec: Spec, seats: Sequence[Seat] = SEATS, seconds: float = SECONDS) -> Any:
    return in_group(ray, Holder, [seat.bundle for seat in seats], seats, spec, seconds)


def test_a_gang_answers_many_requests_like_one_device_and_ends_with_a_rank(ray: Any, spec: Spec) -> None:
    gang = holder(ray, spec)
    held = ray.get(gang.load.remote(), timeout=SECONDS)
    expected = alone(spec, PROMPTS, NEW)
    assert len(set(expected[0])) > NEW // 3, "answers of one token would agree by chance"
    assert ray.get(gang.answers.remote(PROMPTS, NEW), timeout=SECONDS) == expected
    drawn = ray.get(gang.answers.remote(PROMPTS, NEW, WARM), timeout=SECONDS)
    assert drawn == drawn_on_one_device(spec, PROMPTS, NEW) != expected
    assert held < SHAPE.weight_bytes("fp32")

    os.kill(ray.get(gang.pid_of_rank_1.remote(), timeout=SECONDS), signal.SIGKILL)
    with pytest.raises((ServeError, ray.exceptions.RayActorError)) as end:
        until(lambda: ray.get(gang.answers.remote(PROMPTS, 2), timeout=SECONDS) == "never", SECONDS)
    assert isinstance(end.value, ray.exceptions.RayActorError) or "rank 1 on other/cuda:0 has gone" in str(end.value)
    with pytest.raises(ray.exceptions.RayActorError):
        until(lambda: ray.get(gang.pid_of_rank_1.remote(), timeout=SECONDS) == "never", SECONDS)


def test_a_rank_that_does_not_start_is_named_at_the_deadline(ray: Any, spec: Spec) -> None:
    broken = Seat("other/cuda:0", SEATS[1].bundle, {"PYTHONHOME": "/nowhere"})
    gang = holder(ray, spec, (SEATS[0], broken), seconds=5)
    with pytest.raises(ServeError, match=r"rank 1 on other/cuda:0 did not start within 5 s"):
        ray.get(gang.load.remote(), timeout=SECONDS)
