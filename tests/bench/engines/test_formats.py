"""What an engine cannot do, and who can."""

from __future__ import annotations

from dataclasses import replace

import pytest

from paddock.bench.engines.formats import (
    Capability,
    cache_bytes,
    check_cache,
    default_formats,
    dtype_refusal,
    formats,
    refusal,
)
from paddock.bench.errors import BenchInputError
from paddock.models.model import Model
from paddock.models.presets import preset

PLAIN = preset("llama-3.1-8b")
PACKED = replace(PLAIN, name="packed", quantised=True, format="awq")
EXPERTS = replace(PLAIN, name="experts", experts=8, experts_active=2)
T4, A100, H100 = (7, 5), (8, 0), (9, 0)


def text_of(error: BenchInputError | None) -> str:
    """Return an error's text: one that says what is expected, and what to do."""
    assert error is not None
    assert error.exit_code == 2
    assert "\n    expected: " in str(error)
    return str(error)


@pytest.mark.parametrize(("engine", "model", "source", "who"), [
    ("llama.cpp", PLAIN, "checkpoint", "fix: --engine torch reads it"),
    ("torch", PLAIN, "model.gguf", "fix: --engine llama.cpp; for llama.cpp on a GPU start its llama-server"),
    ("torch", PACKED, "checkpoint", "fix: start vLLM with it"),
])  # fmt: skip
def test_a_model_of_another_engine_names_who_reads_it(engine: str, model: Model, source: str, who: str) -> None:
    assert who in text_of(refusal(engine, model, source))


@pytest.mark.parametrize(("engine", "model", "source"), [
    ("llama.cpp", PLAIN, ""), ("llama.cpp", PACKED, "model.gguf"), ("torch", PLAIN, ""), ("torch", EXPERTS, "folder"),
])  # fmt: skip
def test_a_model_of_the_engine_is_not_refused(engine: str, model: Model, source: str) -> None:
    assert refusal(engine, model, source) is None


@pytest.mark.parametrize(("dtype", "model", "kind", "capability", "why"), [
    ("int8", EXPERTS, "cuda", H100, "experts are not packed here"),
    ("int4", PLAIN, "cpu", None, "fix: --engine llama.cpp, whose int8 and int4"),
    ("int4", PLAIN, "mps", None, "torch does not have it on Metal"),
    ("int4", PLAIN, "cuda", T4, "7.5, has no bf16"),
    ("bf16", PLAIN, "cuda", T4, "7.5, has no bf16"),
    ("fp8", PLAIN, "mps", None, "torch does not have it on Metal"),
    ("fp8", PLAIN, "cuda", T4, "7.5, has no fp8"),
    ("fp8", PLAIN, "cuda", A100, "fp8 needs compute capability 8.9"),
])  # fmt: skip
def test_a_format_that_a_device_lacks_says_why(
    dtype: str, model: Model, kind: str, capability: Capability, why: str
) -> None:
    assert why in text_of(dtype_refusal("torch", dtype, model, kind, capability))


@pytest.mark.parametrize(("kind", "capability"), [
    ("cuda", T4), ("cuda", A100), ("cuda", H100), ("cuda", None), ("cpu", None), ("mps", None),
])  # fmt: skip
@pytest.mark.parametrize("engine", ["torch", "llama.cpp"])
def test_formats_by_default_are_those_of_the_device(engine: str, kind: str, capability: Capability) -> None:
    chosen = default_formats(engine, capability)
    assert set(chosen) <= set(formats(engine))
    assert not any(dtype_refusal(engine, dtype, PLAIN, kind, capability) for dtype in chosen)


def test_a_gpu_that_is_not_known_is_measured_in_what_every_one_has() -> None:
    assert default_formats("torch", None) == ("bf16", "int8")
    assert default_formats("torch", H100) == ("bf16", "fp8", "int8", "int4")


@pytest.mark.parametrize(("engine", "cache", "why"), [
    ("llama.cpp", "q8", "did you mean q8_0"),
    ("llama.cpp", "q4_k", "llama.cpp has no 'q4_k'"),
    ("torch", "f16", "measure --engine llama.cpp"),
])  # fmt: skip
def test_a_cache_that_an_engine_lacks_is_refused(engine: str, cache: str, why: str) -> None:
    with pytest.raises(BenchInputError) as refused:
        check_cache(engine, cache)
    assert why in text_of(refused.value)


def test_formats_of_llama_are_types_of_ggml() -> None:
    for cache in ("", "f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"):
        check_cache("llama.cpp", cache)
        assert 0.5 < cache_bytes(cache) <= 4
