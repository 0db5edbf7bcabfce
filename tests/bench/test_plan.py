"""Jobs of a benchmark: formats that the device has, and models that its memory holds while they load."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.bench.errors import BenchInputError
from paddock.bench.runner.plan import Options, Plan, Target, plan
from paddock.models.shapes import shape
from paddock.modes.admission import DoesNotFit, Room
from paddock.modes.policy import Policy, Share, of_mode
from tests.support.model_files import llama_8b

GIB = 1 << 30
OPTIONS = Options(shape("llama-3.1-8b"), "", "torch", (), (1,), (64,), 32, 3, 1, 1, "us-east-1", None)


def gpu(gib: float, degree: int = 1, capability: tuple[int, int] | None = (9, 0)) -> Target:
    uuids = tuple(f"GPU-{number}" for number in range(degree))
    return Target("cuda", uuids, degree, Room(int(gib * GIB), int(gib * GIB)), capability)


def planned(target: Target, **changes: Any) -> Plan:
    return plan(replace(OPTIONS, **changes), target)


def dtypes(plan: Plan) -> list[str]:
    return [job.dtype for job in plan.jobs]


def test_int4_fits_where_bf16_does_not() -> None:
    """8 B weights: 15.0 GiB in bf16, and 5.3 in int4 with one whole weight beside them."""
    small = planned(gpu(9))
    assert dtypes(small) == ["int4"]
    bf16, int8 = small.problems
    assert "needs 16.5 GiB" in bf16.message
    assert "fix: int4 weights with a batch of 1" in bf16.message
    assert int8.dtype == "int8"
    assert small.refused_for_memory == 2
    assert small.notes == ("quality of int4 is unknown: the model in bf16 does not fit beside it",)
    assert dtypes(planned(gpu(24))) == ["bf16", "int8", "int4"]


def test_a_model_larger_than_one_device_fits_on_eight() -> None:
    large: dict[str, Any] = {"shape": shape("llama-3.1-70b"), "dtypes": ("bf16",), "tp": 8}
    assert dtypes(planned(gpu(80, 8), **large)) == ["bf16"]
    with pytest.raises(DoesNotFit, match=r"needs 144\.6") as refused:
        planned(gpu(80, 1), **large)
    assert "int4 weights with a batch of 1" in str(refused.value)
    assert refused.value.exit_code == 2


def test_the_largest_batch_that_fits_is_said() -> None:
    with pytest.raises(DoesNotFit, match="fix: a batch of 6; int8 weights with a batch of 13; int4"):
        planned(gpu(24), dtypes=("bf16",), batches=(64,), prompts=(8000,))


def test_a_gpu_without_bf16_gets_the_formats_that_it_has() -> None:
    turing = gpu(16, capability=(7, 5))
    assert dtypes(planned(turing, shape=shape("llama-3.2-1b"))) == ["fp16", "int8"]
    job = planned(turing, shape=shape("llama-3.2-1b"), dtypes=("int8",)).jobs[0]
    assert job.reference == "fp16"
    mixed = planned(turing, shape=shape("llama-3.2-1b"), dtypes=("bf16", "fp16"))
    assert dtypes(mixed) == ["fp16"]
    assert "compute capability 7.5, has no bf16" in mixed.problems[0].message
    with pytest.raises(BenchInputError, match="has no bf16"):
        planned(turing, dtypes=("int4",))


def test_each_quantised_format_is_compared_once() -> None:
    modes = {"a": of_mode("conservative"), "b": of_mode("aggressive")}
    jobs = planned(gpu(80), modes=modes, dtypes=("int8", "bf16")).jobs
    assert [(job.mode, job.dtype, job.compare, job.reference) for job in jobs] == [
        ("a", "int8", True, "bf16"), ("a", "bf16", True, "bf16"), ("b", "int8", False, ""), ("b", "bf16", False, ""),
    ]  # fmt: skip


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


def test_llama_cpp_needs_its_file_and_its_cache(tmp_path: Path) -> None:
    """A Q4 file of 8 B weights is 4.2 GiB, and not a model of 16 bits."""
    file = llama_8b(tmp_path / "model.gguf")
    laptop = Target("cpu", (), 1, Room(16 * GIB, 12 * GIB))
    llama: dict[str, Any] = {"engine": "llama.cpp", "source": str(file), "dtypes": ("int4",)}
    assert dtypes(planned(laptop, **llama)) == ["int4"]
    with pytest.raises(DoesNotFit, match=r"needs 4\.6 GiB: weights in int4 4\.2"):
        planned(replace(laptop, room=Room(16 * GIB, 4 * GIB)), **llama)
    with pytest.raises(DoesNotFit):
        planned(laptop, source=str(file), dtypes=("int4",))
