"""A gang over two nodes of a real Ray, on the processor: its tokens, its memory, and its end."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from paddock.bench.engine.protocol import Spec
from paddock.bench.engine.shapes import Shape
from paddock.serve.deployment.gang import Gang, Seat
from paddock.serve.errors import ServeError
from tests.support.waiting import until

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("ray")]

SECONDS = 240
AGENTS = ("box", "other")
SEATS = tuple(Seat(agent, f"{agent}/cuda:0", {}) for agent in AGENTS)
SHAPE = Shape("small", "llama", 64, 128, 2, 4, 2, 16, 300, False, max_length=128)
PROMPT, NEW = [[11, 250, 7, 42, 99]], 24


@pytest.fixture(scope="module")
def ray(root: Path) -> Iterator[Any]:
    """Yield Ray, connected to two nodes."""
    pytest.importorskip("ray", reason="no ray in this environment")
    pytest.importorskip("torch", reason="no torch in this environment")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in (
            ("RAY_AUTH_MODE", "disabled"), ("RAY_USAGE_STATS_ENABLED", "0"), ("PYTHONPATH", str(root)),
        ):  # fmt: skip
            patch.setenv(name, value)
        import ray
        from ray.cluster_utils import Cluster

        cluster = Cluster()
        for agent in AGENTS:
            cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20, resources={f"agent:{agent}": 1000})
        ray.init(address=cluster.address, logging_level="ERROR", log_to_driver=False)
        yield ray
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> Spec:
    """Return a checkpoint whose weights are far enough apart that its answers vary."""
    import torch
    import transformers

    folder = tmp_path_factory.mktemp("checkpoint")
    torch.manual_seed(3)
    arguments = {**SHAPE.config(), "initializer_range": 0.4}
    config = transformers.AutoConfig.for_model(arguments.pop("model_type"), **arguments)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return Spec(SHAPE, "fp32", "cpu", 1, 64, str(folder), compiled=False)


class Holder:
    """Rank 0, in the first bundle of a placement group."""

    def __init__(self, seats: Sequence[Seat], seconds: float) -> None:
        self._gang = Gang(seats, seconds)

    def load(self, spec: Spec) -> int:
        return self._gang.load(spec).weight_bytes

    def answer(self, ids: list[list[int]], new: int) -> list[int]:
        import torch

        token = self._gang.prefill(torch.tensor(ids))
        tokens = [int(token)]
        for _ in range(new - 1):
            token = self._gang.decode(token)
            tokens.append(int(token))
        return tokens

    def pid_of_rank_1(self) -> int:
        import ray

        (rank,) = self._gang._ranks
        return int(ray.get(rank.__ray_call__.remote(lambda _: os.getpid())))


def holder(ray: Any, seats: Sequence[Seat] = SEATS, seconds: float = SECONDS) -> Any:
    from ray.util.placement_group import placement_group
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    group = placement_group([seat.bundle for seat in seats])
    strategy = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    return ray.remote(num_cpus=0)(Holder).options(scheduling_strategy=strategy).remote(seats, seconds)


def alone(spec: Spec) -> tuple[int, list[int]]:
    """Return the bytes and the answer of one device."""
    import torch

    from paddock.bench.engine.torch_engine import TorchEngine

    engine = TorchEngine()
    info = engine.load(spec)
    tokens = [engine.prefill(torch.tensor(PROMPT))]
    while len(tokens) < NEW:
        tokens.append(engine.decode(tokens[-1]))
    return info.weight_bytes, [int(token) for token in tokens]


def test_two_ranks_on_two_agents_answer_like_one_device(ray: Any, spec: Spec) -> None:
    gang = holder(ray)
    held = ray.get(gang.load.remote(spec), timeout=SECONDS)
    whole, tokens = alone(spec)
    assert len(set(tokens)) > NEW // 3, "answers of one token would agree by chance"
    assert ray.get(gang.answer.remote(PROMPT, NEW), timeout=SECONDS) == tokens
    assert held < whole

    os.kill(ray.get(gang.pid_of_rank_1.remote(), timeout=SECONDS), signal.SIGKILL)
    with pytest.raises((ServeError, ray.exceptions.RayActorError)) as end:
        until(lambda: ray.get(gang.answer.remote(PROMPT, 2), timeout=SECONDS) == "never", SECONDS)
    assert isinstance(end.value, ray.exceptions.RayActorError) or "rank 1 on other/cuda:0 has gone" in str(end.value)
    with pytest.raises(ray.exceptions.RayActorError):
        until(lambda: ray.get(gang.pid_of_rank_1.remote(), timeout=SECONDS) == "never", SECONDS)


def test_a_rank_that_does_not_start_is_named_at_the_deadline(ray: Any, spec: Spec) -> None:
    gang = holder(ray, (SEATS[0], Seat("other", "other/cuda:0", {"PYTHONHOME": "/nowhere"})), seconds=5)
    with pytest.raises(ServeError, match=r"rank 1 on other/cuda:0 did not start within 5 s"):
        ray.get(gang.load.remote(spec), timeout=SECONDS)
