"""What a resource mode does to each engine on each backend."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.gpu.model import Power
from paddock.modes.effects import Backend, Effects, Gpu, effects, lease_share, means
from paddock.modes.policy import GpuCap, Policy, of_mode
from tests.support.gpu_machines import machines


def of(mode: str, engine: str, backend: Backend, gpu: Gpu | None = None) -> Effects:
    return effects(of_mode(mode), engine, backend, 8, gpu)  # type: ignore[arg-type]  # a preset's name


def mps_percent(found: Effects) -> int | None:
    value = found.environment.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE")
    return int(value) if value else None


@pytest.mark.parametrize(
    ("mode", "memory", "slots", "threads", "nice"),
    [
        ("conservative", 0.5, 2, 5, 15),
        ("default", 0.7, 4, 6, 10),
        ("aggressive", 0.95, 16, 8, 0),
    ],
)
def test_presets_reach_the_engine(mode: str, memory: float, slots: int, threads: int, nice: int) -> None:
    found = of(mode, "llama.cpp", "cpu")
    assert (found.memory_part, found.slots, found.threads, found.nice) == (memory, slots, threads, nice)
    assert not found.paced
    assert effects(of_mode("conservative"), "llama.cpp", "cpu", 1).threads == 1


@pytest.mark.parametrize(
    ("gpu", "percent", "watts", "paced"),
    [
        (Gpu(), None, None, True),
        (Gpu(mps=True, default_watts=300, least_watts=100), 60, None, False),
        (Gpu(default_watts=300, least_watts=100), None, 180, False),
        (Gpu(default_watts=300, least_watts=200), None, 200, False),
    ],
)
@pytest.mark.parametrize("engine", ["llama.cpp", "vllm"])
def test_the_compute_part_of_a_gpu_is_held_by_what_is_there(
    engine: str, gpu: Gpu, percent: int | None, watts: int | None, paced: bool
) -> None:
    found = of("conservative", engine, "cuda", gpu)
    assert (mps_percent(found), found.cap.power_watts if found.cap else None, found.paced) == (percent, watts, paced)
    assert any("the gateway pauses" in note for note in found.notes) is paced
    assert any("llama.cpp has no limit on memory" in note for note in found.notes) is (engine == "llama.cpp")
    unlimited = of("aggressive", engine, "cuda", gpu)
    assert (mps_percent(unlimited), unlimited.cap, unlimited.paced) == (None, None, False)


def test_a_cap_of_the_policy_holds_on_nvidia_alone() -> None:
    policy = Policy(mode="aggressive", resources=of_mode("aggressive").resources, gpu=GpuCap(clock_mhz=900))
    assert effects(policy, "vllm", "cuda", 8).cap == GpuCap(clock_mhz=900)
    metal = effects(policy, "llama.cpp", "metal", 8)
    assert metal.cap is None
    assert "NVIDIA's alone" in metal.notes[-1]


def test_a_schedule_takes_the_largest_and_leaves_pauses_to_the_gateway() -> None:
    night: dict[str, Any] = {
        "mode": "conservative", "resources": {"max_vram_usage_percent": 0.4, "max_compute_usage_percent": 0.6},
        "schedule": [{"start": "22:00", "end": "06:00", "mode": "default"}],
    }  # fmt: skip
    policy = Policy.model_validate(night, strict=False)
    found = effects(policy, "vllm", "cuda", 8, Gpu(mps=True))
    assert (found.memory_part, found.slots, mps_percent(found), found.paced) == (0.7, 4, None, True)
    assert effects(policy, "llama.cpp", "cpu", 8).threads == 0
    assert any("memory is taken once" in note for note in found.notes)
    assert lease_share(policy) == 0.7
    assert (lease_share(of_mode("default")), lease_share(of_mode("aggressive"))) == (0.7, None)


def test_the_means_of_a_gpu_are_the_daemon_and_roots_caps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"CUDA_MPS_PIPE_DIRECTORY": str(tmp_path)}
    (device,) = (gpu for gpu in machines(tmp_path)["t4-a10g"].gpus if gpu.index == 0)
    device = replace(device, power=Power(default_limit=70, min_limit=60))
    monkeypatch.setattr("os.geteuid", lambda: 0)
    assert means(device, environ) == Gpu(False, 70, 60)
    (tmp_path / "control").touch()
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert means(device, environ) == Gpu(True)
