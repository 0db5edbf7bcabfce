"""Arguments of the vLLM of a served model, as Ray Serve LLM hands them over. Pure data."""

from __future__ import annotations

from typing import Any

from paddock.fleet import Fleet, ServedModel
from paddock.fleet.sizing.serving import weights_format
from paddock.modes.config import PRESETS

_DTYPES = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
_MEMORY = 0.92
"""Default of vLLM's gpu_memory_utilization (0.29, vllm/config/cache.py; read 2026-11-27)."""


def engine_arguments(fleet: Fleet, model: ServedModel) -> dict[str, Any]:
    """Return the arguments by vLLM's own names."""
    return {
        "dtype": _DTYPES[weights_format(fleet, model)],
        **({"quantization": model.quantization} if model.quantization else {}),
        "max_model_len": model.context,
        "max_num_seqs": model.concurrency,
        "tensor_parallel_size": model.tensor_parallel,
        "gpu_memory_utilization": memory_part(model),
        **model.engine_args,
    }


def memory_part(model: ServedModel) -> float:
    """Return the part of each GPU's memory that a replica takes: vLLM's default, or less where the mode says less."""
    return min(_MEMORY, PRESETS[model.mode].max_vram_usage_percent)
