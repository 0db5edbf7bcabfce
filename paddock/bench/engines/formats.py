"""Number formats of weights, by engine and device, and what an engine cannot do, with who can."""

from __future__ import annotations

from pathlib import Path

from paddock.bench.errors import BenchInputError
from paddock.console.parameters import one_of
from paddock.models.ggml_types import GGML_TYPES
from paddock.models.model import PLAIN, Model
from paddock.models.random_gguf import TYPES

ENGINES = ("llama.cpp", "torch")
_TORCH = (*PLAIN, "fp8", "int8", "int4")
_BYTES = {name.lower(): size / block for name, block, size in GGML_TYPES.values()}
_BF16_FROM, _FP8_FROM = (8, 0), (8, 9)
"""Compute capabilities from which NVIDIA's GPUs have a format."""
_CACHES = ("f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl")
"""Types in which llama.cpp keeps its cache (common/arg.cpp, `--cache-type-k`)."""

Capability = tuple[int, int] | None


def formats(engine: str) -> tuple[str, ...]:
    """Return the formats of an engine, for weights that it may choose the format of."""
    return _TORCH if engine == "torch" else tuple(TYPES)


def smaller_formats(engine: str) -> tuple[str, ...]:
    """Return the formats that are proposed where the memory is too small for another one."""
    return _TORCH if engine == "torch" else ("bf16", "int8", "q6_k", "q5_k", "int4")


def default_formats(engine: str, capability: Capability) -> tuple[str, ...]:
    """Return the formats that are measured where none is asked for: of an unknown GPU those that every one has."""
    if engine == "llama.cpp":
        return ("int8", "int4")
    if capability is None:
        return ("bf16", "int8")
    if capability < _BF16_FROM:
        return ("fp16", "int8")
    return ("bf16", *(("fp8",) if capability >= _FP8_FROM else ()), "int8", "int4")


def plain_format(kind: str, capability: Capability) -> str:
    """Return the format of 16 bits in which the device computes."""
    return "bf16" if _has(_BF16_FROM, kind, capability) else "fp16"


def cache_bytes(cache: str) -> float:
    """Return the bytes of a number in llama.cpp's cache of that type; f16 where none is named."""
    return _BYTES[cache or "f16"]


def check_cache(engine: str, cache: str) -> None:
    """Raise BenchInputError for a type that the cache of an engine cannot have."""
    if not cache:
        return
    if engine != "llama.cpp":
        raise BenchInputError(
            f"--cache-type {cache}: torch keeps the cache in the format of its activations"
            "\n    expected: no --cache-type\n    fix: leave it out, or measure --engine llama.cpp"
        )
    if cache not in _CACHES:
        raise BenchInputError(f"--cache-type: llama.cpp has no {cache!r}\n    expected: {one_of(cache, _CACHES)}")


def refusal(engine: str, model: Model, source: str) -> BenchInputError | None:
    """Return the error for a model that the engine cannot load, with what can; None for one that it loads."""
    file = Path(source).suffix == ".gguf" if source else False
    if engine == "llama.cpp" and source and not file:
        return BenchInputError(
            f"--engine llama.cpp: {source} is a checkpoint, and llama.cpp reads .gguf files alone"
            "\n    expected: a .gguf file, or the name of a shape\n"
            "    fix: --engine torch reads it; convert_hf_to_gguf.py of llama.cpp writes a .gguf file of it"
        )
    if engine == "torch" and file:
        return BenchInputError(
            f"--engine torch: {source} is a .gguf file, which llama.cpp computes as it is, and torch does not"
            "\n    expected: a checkpoint's folder, or the name of a shape\n"
            "    fix: --engine llama.cpp; for llama.cpp on a GPU start its llama-server and measure it by bench.load"
        )
    if engine == "torch" and model.quantised:
        return BenchInputError(
            f"--model: the weights of {model.name} are quantised already ({model.format}), and this engine packs plain"
            " ones itself\n    expected: the checkpoint in bf16, fp16 or fp32\n"
            "    fix: start vLLM with it, which computes in that format, and measure it by bench.load"
        )
    return None


def dtype_refusal(engine: str, dtype: str, model: Model, kind: str, capability: Capability) -> BenchInputError | None:
    """Return the error for a format that the device lacks, or in which experts would stay as they are."""
    if engine == "llama.cpp":
        return None
    if model.experts and dtype not in PLAIN:
        return BenchInputError(
            f"--dtype {dtype}: {model.name} is a mixture of experts, and experts are not packed here"
            f"\n    expected: one of {', '.join(PLAIN)}\n"
            "    fix: weights that are quantised already, in vLLM or llama.cpp"
        )
    if (dtype == "int4" and kind != "cuda") or (dtype == "fp8" and kind == "mps"):
        return BenchInputError(
            f"--dtype {dtype}: torch does not have it on {'Metal' if kind == 'mps' else 'a CPU'}\n"
            "    expected: bf16, fp16, fp32 or int8\n"
            "    fix: --engine llama.cpp, whose int8 and int4 (Q8_0, Q4_0) are for CPUs and Metal"
        )
    since = {"fp8": _FP8_FROM, "bf16": _BF16_FROM, "int4": _BF16_FROM}.get(dtype)
    if since is None or _has(since, kind, capability):
        return None
    major, minor = capability or (0, 0)
    lacks = "fp8" if dtype == "fp8" else "bf16"
    return BenchInputError(
        f"--dtype {dtype}: this GPU, of compute capability {major}.{minor}, has no {lacks}\n"
        f"    expected: fp16, int8 or fp32; {dtype} needs compute capability {since[0]}.{since[1]}"
    )


def _has(since: tuple[int, int], kind: str, capability: Capability) -> bool:
    return kind != "cuda" or capability is None or capability >= since
