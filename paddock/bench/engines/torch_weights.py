"""Weights in fewer bits: int8 and int4 by torchao, fp8 by torch's own product of scaled matrices."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from paddock.models.model import PLAIN

GROUP = 128
"""Columns of a row that share an int4 scale and zero: 4.25 bits a weight with both in bf16."""
_FP8 = torch.float8_e4m3fn
_LARGEST = float(torch.finfo(_FP8).max)
_SIXTEENTH = 16
"""What rows and columns of a product in fp8 are multiples of."""


class Packing:
    """Packs the Linear layers of a model. `seconds` is what it took so far."""

    def __init__(self, dtype: str, device: torch.device) -> None:
        self._dtype, self._device = dtype, device
        self.seconds = 0.0
        self._whole: Counter[str] = Counter()

    @property
    def kernel(self) -> str:
        """Name of what multiplies the weights."""
        if self._dtype in PLAIN:
            return "torch's GEMMs"
        if self._dtype == "fp8":
            return "torch._scaled_mm, weights and activations in e4m3"
        return f"torchao's {self._dtype} weights" + (f" in groups of {GROUP}" if self._dtype == "int4" else "")

    @property
    def options(self) -> dict[str, bool]:
        """Options of the compiler for these weights alone: torchao would set them for every model of this process.

        With them a GEMM of one row reduces over the weights as they are, where they would be widened first.
        """
        return {"coordinate_descent_tuning": True} if self._dtype == "int8" else {}

    def pack(self, model: Any, name: str) -> None:
        """Pack the module of that name where it is a Linear whose size the format fits."""
        layer = model.get_submodule(name)
        if self._dtype in PLAIN or not isinstance(layer, nn.Linear):
            return
        if not self._fits(layer):
            self._whole[name.rpartition(".")[2]] += 1
            return
        start = time.perf_counter()
        if self._dtype == "fp8":
            model.set_submodule(name, Fp8Linear(layer))
        else:
            from torchao.quantization import quantize_

            # A head that shares the embedding's weight keeps a packed one of its own.
            layer.weight = nn.Parameter(layer.weight.detach(), requires_grad=False)
            quantize_(layer, self._config())
        if self._device.type == "cuda":
            torch.cuda.synchronize()
        self.seconds += time.perf_counter() - start

    def notes(self) -> Iterator[str]:
        """Yield what stayed in 16 bits."""
        for name, count in self._whole.items():
            yield f"{count} {name} {'stays' if count == 1 else 'stay'} in 16 bits: {self._dtype} does not fit the size"

    def _fits(self, layer: nn.Linear) -> bool:
        rows, columns = map(int, layer.weight.shape)
        if self._dtype == "int4":
            return columns % GROUP == 0
        return self._dtype == "int8" or (rows % _SIXTEENTH == 0 and columns % _SIXTEENTH == 0)

    def _config(self) -> Any:
        from torchao.quantization import Int4WeightOnlyConfig, Int8WeightOnlyConfig

        if self._dtype == "int8":
            return Int8WeightOnlyConfig(set_inductor_config=False)
        return Int4WeightOnlyConfig(
            group_size=GROUP, int4_packing_format="tile_packed_to_4d", set_inductor_config=False
        )  # tinygemm, in torch


class Fp8Linear(nn.Module):  # type: ignore[misc]  # torch is unknown to the checker
    """A Linear in e4m3: ``(x / s) (w / t) s t`` with one scale t of the weights and one s of the activations.

    Scales a row and a column are finer, and their kernel took 1.3 to 1.8 times as long for one row on an H200.
    """

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features, self.bias = layer.in_features, layer.out_features, layer.bias
        values, scale = _scaled(layer.weight.detach())
        self.register_buffer("values", values)
        self.register_buffer("scale", scale)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the products of rows [..., in], [..., out]."""
        rows, scale = _scaled(x.reshape(-1, self.in_features))
        y = torch._scaled_mm(
            rows, self.values.t(), scale_a=scale, scale_b=self.scale, bias=self.bias, out_dtype=x.dtype
        )
        return y.view(*x.shape[:-1], self.out_features)


def _scaled(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a matrix in e4m3 and its scale, fp32: its largest number becomes e4m3's."""
    scale = x.abs().max().float().clamp(min=1e-12) / _LARGEST
    return (x / scale).clamp(-_LARGEST, _LARGEST).to(_FP8), scale
