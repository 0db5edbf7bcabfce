"""Linear layers whose weights are packed for the device: bf16, int8 or int4.

On the processor a decode step takes the C kernels where they could be compiled, else torch's; many rows take a matrix
product of unpacked weights. On a GPU the packed weights are what kernels of torch and Triton read, and `torch.compile`
fuses the rest. Layers that read the same input are merged: a few large products take less time than many small.
"""

from __future__ import annotations

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from paddock.serve.own.packing import native, schemes

Product = Callable[..., torch.Tensor]
"""Product of few rows with weights, and the scales of int8 ones."""
_FEW_ROWS = 64
"""Rows above which widening int8 weights once costs less than the product itself; the kernel takes no more."""
_UNPACKED_ROWS = 512
"""Rows of a weight that are unpacked at a time: few enough to stay in a cache."""
_TORCH_COLUMNS = 16
"""Torch 2.15's product of int8 weights takes whole sixteens of columns, and reads past the rows of others."""


class PackedLinear(nn.Module):  # type: ignore[misc]  # torch is unknown to the checker
    """Base: `y = x W^T + b`, with x [..., k] and y [..., n] in the dtype of x."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__()
        self.out_features, self.in_features = weight.shape
        self.register_buffer("bias", None if bias is None else bias.detach())

    def dimension_of_outputs(self, _buffer: str) -> int:
        """Return which dimension of a buffer counts outputs."""
        return 0


class CpuLinear(PackedLinear):
    """Base of those on the processor: few rows take a kernel of packed weights, many a product of unpacked ones."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features)
        y = self._few(rows) if rows.shape[0] <= native.MAX_ROWS else self._many(rows)
        y = y.to(x.dtype)
        if self.bias is not None:
            y = y + self.bias.to(x.dtype)
        return y.view(*x.shape[:-1], self.out_features)

    @abstractmethod
    def _few(self, x: torch.Tensor) -> torch.Tensor:
        """Return the products of a decode step's rows, [m, n]."""

    @abstractmethod
    def _unpack(self, start: int, end: int) -> torch.Tensor:
        """Return rows of the weight in floating point."""

    def _many(self, x: torch.Tensor) -> torch.Tensor:
        y = x.new_empty(x.shape[0], self.out_features)
        for start in range(0, self.out_features, _UNPACKED_ROWS):
            end = min(start + _UNPACKED_ROWS, self.out_features)
            y[:, start:end] = F.linear(x, self._unpack(start, end).to(x.dtype))
        return y


class CpuBf16(CpuLinear):
    """bf16 weights, fp32 activations."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, kernels: native.Kernels) -> None:
        super().__init__(weight, bias)
        self.register_buffer("weight", weight.detach().bfloat16().contiguous())
        self._kernels = kernels

    def _few(self, x: torch.Tensor) -> torch.Tensor:
        return self._kernels.bf16(self.weight, x.float().contiguous())

    def _unpack(self, start: int, end: int) -> torch.Tensor:
        return self.weight[start:end]


class CpuPlain(PackedLinear):
    """bf16 weights and products of torch, without a C compiler or where 64 does not divide the columns."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None) -> None:
        super().__init__(weight, bias)
        self.register_buffer("weight", weight.detach())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.linear(x.to(self.weight.dtype), self.weight, self.bias).to(x.dtype)


class CpuInt8(CpuLinear):
    """int8 weights; activations become int8 by groups in the C kernel, stay bf16 in torch's."""

    def __init__(self, weight: schemes.Int8Weight, bias: torch.Tensor | None, kernels: native.Kernels | None) -> None:
        super().__init__(weight.values, bias)
        self.register_buffer("weight", weight.values.contiguous())
        self.register_buffer("scale", weight.scale.contiguous())
        self._kernels = kernels if weight.values.shape[1] % native.GROUP == 0 else None

    def _few(self, x: torch.Tensor) -> torch.Tensor:
        if self._kernels is not None:
            return self._kernels.int8(self.weight, self.scale, x.float().contiguous())
        if self.in_features % _TORCH_COLUMNS:
            return self._many(x)
        return torch._weight_int8pack_mm(x.bfloat16().contiguous(), self.weight, self.scale.bfloat16())

    def _unpack(self, start: int, end: int) -> torch.Tensor:
        return self.weight[start:end].float() * self.scale[start:end, None]


class CpuInt4(CpuLinear):
    """int4 weights as the C kernel reads them; activations become int8 by groups."""

    def __init__(self, weight: schemes.Int4Weight, bias: torch.Tensor | None, kernels: native.Kernels) -> None:
        n, k = weight.values.shape
        super().__init__(weight.values, bias)
        groups = weight.values.view(n, k // schemes.GROUP, 2, schemes.GROUP // 2)
        self.register_buffer("weight", (groups[:, :, 0] | (groups[:, :, 1] << 4)).reshape(n, k // 2).contiguous())
        self.register_buffer("scale_zero", torch.stack([weight.scale, weight.zero], -1).contiguous())
        self._kernels = kernels

    def _few(self, x: torch.Tensor) -> torch.Tensor:
        return self._kernels.int4(self.weight, self.scale_zero, x.float().contiguous())

    def _unpack(self, start: int, end: int) -> torch.Tensor:
        packed = self.weight[start:end].view(end - start, -1, 1, schemes.GROUP // 2)
        values = torch.cat([packed & 15, packed >> 4], 2).view(end - start, -1, schemes.GROUP).float()
        scale_zero = self.scale_zero[start:end].float()
        return (values * scale_zero[..., :1] + scale_zero[..., 1:]).view(end - start, -1)


class GpuPlain(PackedLinear):
    """Weights of 16 bits. Of one row Triton's product reads faster than cuBLAS's, which more rows take."""

    def __init__(self, weight: torch.Tensor, bias: torch.Tensor | None, product: Product) -> None:
        super().__init__(weight, bias)
        self.register_buffer("weight", weight.detach())
        self._product = product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.numel() > self.in_features:
            return F.linear(x, self.weight, self.bias)
        y = self._product(x.reshape(1, -1), self.weight).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


class GpuInt8(PackedLinear):
    """int8 weights that are widened as they are read.

    Of few rows a kernel in Triton does it. Of many, which a prompt has, the product costs more than widening the
    weights first.
    """

    def __init__(
        self,
        weight: schemes.Int8Weight,
        bias: torch.Tensor | None,
        dtype: torch.dtype,
        product: Product | None = None,
    ) -> None:
        super().__init__(weight.values, bias)
        self.register_buffer("weight", weight.values.contiguous())
        self.register_buffer("scale", weight.scale.to(dtype))
        self._product = product

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.numel() // self.in_features
        if self._product is None or rows > _FEW_ROWS:
            y = F.linear(x, self.weight.to(x.dtype)) * self.scale
        else:
            y = self._product(x.reshape(rows, -1), self.weight, self.scale).view(*x.shape[:-1], -1)
        return y if self.bias is None else y + self.bias


class TorchInt4(PackedLinear):
    """int4 weights as torch's own kernels read them: of CUDA (compute capability 8.0), Metal or the processor."""

    def __init__(self, weight: schemes.Int4Weight, bias: torch.Tensor | None, device: torch.device) -> None:
        super().__init__(weight.values, bias)
        # torch's value is (q - 8) scale + zero.
        zero = weight.zero.float() + 8 * weight.scale.float()
        scales = torch.stack([weight.scale.float(), zero], -1).transpose(0, 1).contiguous().bfloat16()
        if device.type == "cpu":
            packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weight.values.int(), 1)
        else:
            pairs = (weight.values[:, ::2] << 4) | weight.values[:, 1::2]
            # A tile is of 16 columns; as many as divide the columns are read at once (aten/.../cuda/int4mm.cu).
            tiles = 8 if weight.values.shape[1] % 128 == 0 else 4
            packed = torch.ops.aten._convert_weight_to_int4pack(pairs.contiguous().to(device), tiles)
        self.register_buffer("weight", packed)
        self.register_buffer("scales", scales.to(device))

    def dimension_of_outputs(self, buffer: str) -> int:
        return 1 if buffer == "scales" else 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x.reshape(-1, self.in_features).bfloat16()
        multiply: Any = torch.ops.aten._weight_int4pack_mm
        if self.weight.device.type == "cpu":
            multiply = torch.ops.aten._weight_int4pack_mm_for_cpu
        y = multiply(rows, self.weight, schemes.GROUP, self.scales).to(x.dtype)
        y = y.view(*x.shape[:-1], self.out_features)
        return y if self.bias is None else y + self.bias


class Merged(nn.Module):  # type: ignore[misc]  # torch is unknown to the checker
    """Layers of the same input as one, whose output `Part`s hand out. One thread at a time may call them."""

    def __init__(self, layers: Sequence[PackedLinear]) -> None:
        super().__init__()
        first = layers[0]
        self.layer = copy.copy(first)
        self.layer._buffers = {
            name: None
            if buffer is None
            else torch.cat([layer._buffers[name] for layer in layers], first.dimension_of_outputs(name))
            for name, buffer in first._buffers.items()
        }
        self.layer.out_features = sum(layer.out_features for layer in layers)
        self.output: Any = None


class Part(nn.Module):  # type: ignore[misc]  # likewise
    """One of the layers that were merged, called in their order: the first computes for all."""

    def __init__(self, merged: Merged, start: int, end: int) -> None:
        super().__init__()
        self.merged = merged
        self.in_features, self.out_features = merged.layer.in_features, end - start
        self._start, self._end = start, end

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        output = self.merged.layer(x) if self._start == 0 else self.merged.output
        self.merged.output = None if self._end == self.merged.layer.out_features else output
        return output[..., self._start : self._end]


def together(layers: Sequence[nn.Module]) -> Callable[[torch.Tensor], Sequence[torch.Tensor]]:
    """Return a function that gives the outputs of layers of the same input, of merged ones by one product."""
    first = layers[0]
    if not isinstance(first, Part):
        return lambda x: [layer(x) for layer in layers]
    product, sizes = first.merged.layer, [layer.out_features for layer in layers]
    return lambda x: product(x).split(sizes, -1)
