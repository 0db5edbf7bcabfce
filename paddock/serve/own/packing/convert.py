"""Linear layers of a model, replaced by packed ones."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from types import ModuleType

import torch
from torch import nn

from paddock.serve.own.packing import linear, native, schemes

_TORCH_ROWS = 16
"""torch's int4 kernels need a multiple of so many rows."""


def pack(layer: nn.Linear, dtype: str, device: torch.device) -> nn.Module | None:
    """Return the layer with packed weights; None where it stays as it is, such as int4 without 64 dividing its columns.

    The layer keeps its own weights: drop it to have their memory back.
    """
    weight, bias = layer.weight, layer.bias
    kernels, products = _kernels(device), _products(device)
    fits = weight.shape[1] % schemes.GROUP == 0
    match dtype, device.type:
        case "bf16", "cpu":
            return linear.CpuBf16(weight, bias, kernels) if kernels is not None and fits else None
        case "int8", "cpu":
            return linear.CpuInt8(schemes.int8(weight), bias, kernels)
        case (("bf16" | "fp16"), "cuda") if products is not None:
            return linear.GpuPlain(weight, bias, products.plain_product)
        case "int8", _:
            product = products.int8_product if products is not None else None
            return linear.GpuInt8(schemes.int8(weight), bias, weight.dtype, product)
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
    if _products(device) is None:
        return {"int8": "torch's, of weights widened before", "int4": "torch's tinygemm"}.get(dtype, "torch's")
    return {
        **dict.fromkeys(("bf16", "fp16"), "of one row Paddock's in Triton; of more torch's"),
        "int8": "of up to 64 rows Paddock's in Triton; of more torch's, of weights widened before",
        "int4": "torch's tinygemm",
    }.get(dtype, "torch's")


def merge(layers: Sequence[nn.Module]) -> list[nn.Module] | None:
    """Return parts of one layer in place of layers that read the same input, in the order in which they are called.

    None where they cannot be one. Together they take twice their memory until the layers are dropped.
    """
    first = layers[0]
    if not isinstance(first, linear.PackedLinear):
        return None
    if isinstance(first, linear.TorchInt4) and first.weight.device.type == "cpu":
        return None  # torch packs their rows in blocks
    if any(type(layer) is not type(first) or (layer.bias is None) != (first.bias is None) for layer in layers):
        return None
    merged, parts, start = linear.Merged(layers), [], 0
    for layer in layers:
        parts.append(linear.Part(merged, start, start + layer.out_features))
        start += layer.out_features
    return parts


def _products(device: torch.device) -> ModuleType | None:
    """Return the products of few rows; None without Triton, as on Metal."""
    if device.type != "cuda" or find_spec("triton") is None:
        return None
    from paddock.serve.own.packing import triton_products

    return triton_products


def _kernels(device: torch.device) -> native.Kernels | None:
    return native.kernels() if device.type == "cpu" else None
