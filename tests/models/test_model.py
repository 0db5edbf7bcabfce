"""A model's arithmetic: cache by layer, devices that share it, stages, and packed weights."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.models import formula
from paddock.models.model import Layer, Model, billions, tensor_parallel
from paddock.models.presets import PRESETS, preset
from tests.models.configurations import CONFIGURATIONS
from tests.support.explore import examples


def published(name: str) -> Model:
    return formula.model(CONFIGURATIONS[name].configuration, name)


MODELS = [published(name) for name in CONFIGURATIONS] + [preset(name) for name in PRESETS]


def test_a_window_bounds_the_cache() -> None:
    gemma = published("gemma-3-1b")
    short, long = gemma.cache_bytes(512, 2), gemma.cache_bytes(32768, 2)
    assert long == short + (32768 - 512) * 4 * 2 * 256 * 2, "four of the layers grow on"
    assert published("Mistral-7B-v0.1").cache_bytes(32768, 2) == published("Mistral-7B-v0.3").cache_bytes(4096, 2)


def test_a_latent_cache_is_whole_on_each_device() -> None:
    deepseek = published("DeepSeek-V3")
    assert deepseek.cache_bytes(1, 2) == 61 * (512 + 64) * 2
    assert deepseek.cache_bytes(1, 2, degree=8) == deepseek.cache_bytes(1, 2)
    assert tensor_parallel(deepseek, 8) == 8


def test_a_state_does_not_grow_with_the_tokens() -> None:
    layers = (Layer("recurrent", state=100), Layer("full", 10, kv_heads=2))
    model = replace(preset("tiny"), layers=layers)
    assert model.cache_bytes(5, 2, 3) == 3 * 2 * (100 + 50)
    assert model.cache_bytes(5, 2, 3, degree=2) == 3 * 2 * (100 + 25)


def test_experts_are_placed_whole_and_read_in_part() -> None:
    model = published("Qwen3-30B-A3B")
    assert model.loaded_bytes("bf16") == 2 * model.parameters
    assert model.weight_bytes("bf16") == pytest.approx(2 * 3.04e9, rel=0.01), "all but the embedding"
    assert tensor_parallel(model, 8) == 4


@pytest.mark.parametrize(("count", "said"), [
    (30_531_911_680, "30.5 B"), (8_030_261_248, "8.03 B"), (596_049_920, "596 M"), (4_196_608, "4.2 M"),
])  # fmt: skip
def test_counts_are_said_as_readers_say_them(count: int, said: str) -> None:
    assert billions(count) == said


@examples(200, 3000)
@given(st.sampled_from(MODELS), st.integers(1, 200_000), st.integers(1, 200_000), st.integers(1, 8))
def test_a_cache_grows_with_tokens_and_shrinks_with_devices(model: Model, one: int, other: int, degree: int) -> None:
    degree = tensor_parallel(model, degree)
    few, many = sorted((one, other))
    assert model.cache_bytes(few, 2) <= model.cache_bytes(many, 2)
    assert model.cache_bytes(many, 2, degree=degree) <= model.cache_bytes(many, 2)
    assert model.cache_bytes(many, 2, 3) == 3 * model.cache_bytes(many, 2)
