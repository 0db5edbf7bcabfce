"""Jobs of a benchmark: formats that the device has, and models that its memory holds while they load."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.bench.errors import BenchInputError
from paddock.bench.runner.plan import BenchPlan, Options, Target, plan
from paddock.models import sources
from paddock.models.shapes import Shape, shape
from paddock.modes.admission import DoesNotFit, Room
from paddock.modes.policy import Policy, Share, of_mode
from tests.support.model_files import LLAMA, checkpoint, llama_8b, llama_tensors

GIB = 1 << 30
LAPTOP = Target("cpu", (), Room(16 * GIB, 12 * GIB))
OPTIONS = Options(shape("llama-3.1-8b"), "", "torch", (), (1,), (64,), 32, 3, 1, "us-east-1", None)


def gpu(gib: float, capability: tuple[int, int] | None = (9, 0)) -> Target:
    return Target("cuda", ("GPU-0",), Room(int(gib * GIB), int(gib * GIB)), capability)


def planned(target: Target, **changes: Any) -> BenchPlan:
    return plan(replace(OPTIONS, **changes), target)


def dtypes(plan: BenchPlan) -> list[str]:
    return [job.dtype for job in plan.jobs]


def test_int4_fits_where_bf16_does_not() -> None:
    """8 B weights: 15.0 GiB in bf16, and 5.3 in int4 with one whole weight beside them."""
    small = planned(gpu(9))
    assert dtypes(small) == ["int4"]
    bf16, *others = small.problems
    assert "needs 16.5 GiB" in bf16.message
    assert "fix: int4 weights with a batch of 1" in bf16.message
    assert [problem.dtype for problem in others] == ["fp8", "int8"]
    assert small.refused_for_memory == 3
    assert dtypes(planned(gpu(24))) == ["bf16", "fp8", "int8", "int4"]
    assert dtypes(planned(gpu(24, capability=(8, 0)))) == ["bf16", "int8", "int4"]


def test_the_largest_batch_that_fits_is_said() -> None:
    with pytest.raises(DoesNotFit, match=r"fix: a batch of 6; fp8 weights with a batch of 13; int8 .* 13; int4"):
        planned(gpu(24), dtypes=("bf16",), batches=(64,), prompts=(8000,))


def test_a_gpu_without_bf16_gets_the_formats_that_it_has() -> None:
    turing = gpu(16, capability=(7, 5))
    assert dtypes(planned(turing, shape=shape("llama-3.2-1b"))) == ["fp16", "int8"]
    mixed = planned(turing, shape=shape("llama-3.2-1b"), dtypes=("bf16", "fp16"))
    assert dtypes(mixed) == ["fp16"]
    assert "compute capability 7.5, has no bf16" in mixed.problems[0].message
    with pytest.raises(BenchInputError, match="has no bf16"):
        planned(turing, dtypes=("int4",))


def test_batches_are_those_that_a_users_limits_allow() -> None:
    policy = Policy(
        resources=of_mode("aggressive").resources,
        applications={"chat": Share(max_batch_size=2)},
        users={"ada": Share(max_batch_size=1)},
    )
    wanted: dict[str, Any] = {"modes": {"own": policy}, "batches": (1, 4, 32), "dtypes": ("bf16",)}
    for names, batches in (({}, (1, 4, 16)), ({"application": "chat"}, (1, 2)), ({"user": "ada"}, (1,))):
        (job,) = planned(gpu(80), **wanted, **names).jobs
        assert job.batches == batches


def test_a_file_is_what_llama_cpp_needs_memory_for(tmp_path: Path) -> None:
    """A Q4 file of 8 B weights is 4.2 GiB; its cache of 8-bit blocks is half of the usual one."""
    file = llama_8b(tmp_path / "model.gguf")
    llama: dict[str, Any] = {"engine": "llama.cpp", "source": str(file), "dtypes": ("q4_k",)}
    assert dtypes(planned(LAPTOP, **llama)) == ["q4_k"]
    with pytest.raises(DoesNotFit, match=r"needs 4\.6 GiB: weights in q4_k 4\.2"):
        planned(replace(LAPTOP, room=Room(16 * GIB, 4 * GIB)), **llama)
    caches = []
    for cache in ("", "q8_0"):
        with pytest.raises(DoesNotFit) as refused:
            planned(LAPTOP, **llama, prompts=(100_000,), batches=(2,), cache=cache)
        caches.append(float(re.search(r"tokens ([\d.]+)", str(refused.value))[1]))  # type: ignore[index]  # a None fails too
    assert caches == pytest.approx([24.4, 24.4 * 17 / 32], abs=0.1)


def test_random_weights_that_do_not_fit_name_formats_that_do() -> None:
    llama: dict[str, Any] = {"engine": "llama.cpp", "dtypes": ("int8",)}
    assert dtypes(planned(replace(LAPTOP, room=Room(16 * GIB, 10 * GIB)), **llama)) == ["int8"]
    with pytest.raises(DoesNotFit, match=r"weights in int8 7\.9") as refused:
        planned(replace(LAPTOP, room=Room(16 * GIB, 7 * GIB)), **llama)
    assert "fix: q6_k weights with a batch of 1; q5_k" in str(refused.value)


def test_a_checkpoint_is_held_whole_before_it_is_packed(tmp_path: Path) -> None:
    folder = checkpoint(tmp_path / "model", {**LLAMA, "max_position_embeddings": 4096}, model=llama_tensors())
    own = Shape.of(sources.of_path(folder, where="--model"))
    room = gpu(1.05 * own.model.loaded_bytes("bf16") / GIB)
    small: dict[str, Any] = {"shape": own, "dtypes": ("int8",), "prompts": (1,), "new": 2}
    assert dtypes(planned(room, **small)) == ["int8"]
    with pytest.raises(DoesNotFit):
        planned(room, **small, source=str(folder))
