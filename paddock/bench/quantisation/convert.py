"""Linear layers of a model, replaced by packed ones."""

from __future__ import annotations

import torch
from torch import nn

from paddock.bench.quantisation import linear, native, schemes

_TORCH_ROWS = 16
"""torch's int4 kernels need a multiple of so many rows."""


def pack(layer: nn.Linear, dtype: str, device: torch.device) -> nn.Module | None:
    """Return the layer with packed weights; None where it stays as it is, such as int4 without 64 dividing its columns.

    The layer keeps its own weights: drop it to have their memory back.
    """
    weight, bias = layer.weight, layer.bias
    kernels = _kernels(device)
    fits = weight.shape[1] % schemes.GROUP == 0
    match dtype, device.type:
        case "bf16", "cpu":
            return linear.CpuBf16(weight, bias, kernels) if kernels is not None and fits else None
        case "int8", "cpu":
            return linear.CpuInt8(schemes.int8(weight), bias, kernels)
        case "int8", _:
            return linear.GpuInt8(schemes.int8(weight), bias, weight.dtype)
        case "int4", "cpu" if fits and kernels is not None:
            return linear.CpuInt4(schemes.int4(weight), bias, kernels)
        case "int4", _ if fits and weight.shape[0] % _TORCH_ROWS == 0:
            return linear.TorchInt4(schemes.int4(weight), bias, device)
    return None


def kernel(dtype: str, device: torch.device) -> str:
    """Return in words what multiplies weights of that format on the device."""
    if device.type == "cpu":
        kernels = _kernels(device)
        if kernels is None or dtype in ("fp32", "fp16"):
            why = "" if dtype in ("fp32", "fp16") else ": no C compiler here, which would make it faster"
            return f"torch's own on the processor{why}"
        activations = "fp32" if dtype == "bf16" else "int8 by groups of 64"
        return f"Paddock's in C, compiled for this processor; activations {activations}"
    return {"int8": "torch's, weights widened in the compiled step", "int4": "torch's tinygemm"}.get(dtype, "torch's")


def _kernels(device: torch.device) -> native.Kernels | None:
    return native.kernels() if device.type == "cpu" else None
