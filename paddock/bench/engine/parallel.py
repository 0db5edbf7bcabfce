"""Tensor parallelism by sliced weights: each rank holds whole heads, and two sums a layer join the ranks.

After gpt-fast: plain tensors and an all-reduce behind each output projection, which a CUDA graph can hold.
"""

from __future__ import annotations

import datetime
import os
from typing import Any

import torch
from torch import distributed, nn

_BY_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_BY_COLUMNS = ("o_proj", "down_proj")
_TIMEOUT = datetime.timedelta(seconds=120)


def rank() -> int:
    """Return this process's rank, 0 for a single one."""
    return distributed.get_rank() if distributed.is_initialized() else 0


def world_size() -> int:
    """Return the number of ranks, 1 for a single process."""
    return distributed.get_world_size() if distributed.is_initialized() else 1


def join(device: str) -> None:
    """Join the ranks that the environment names (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), if it names any."""
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        distributed.init_process_group("nccl" if device.startswith("cuda") else "gloo", timeout=_TIMEOUT)


def leave() -> None:
    """Leave the ranks."""
    if distributed.is_initialized():
        distributed.destroy_process_group()


def shard(model: nn.Module, rank: int, ranks: int) -> None:
    """Keep this rank's part of each attention and feed-forward weight, in place."""
    if ranks == 1:
        return
    for name, module in model.named_modules():
        part = name.rpartition(".")[2]
        if part in _BY_ROWS:
            _slice(module, 0, rank, ranks)
        elif part in _BY_COLUMNS:
            _slice(module, 1, rank, ranks)
            if module.bias is not None and rank:
                module.bias = None  # the sum has it once
    for layer in model.modules():
        for part in _BY_COLUMNS:
            child = getattr(layer, part, None)
            if isinstance(child, nn.Linear):
                setattr(layer, part, _Summed(child))


def _slice(module: Any, dimension: int, rank: int, ranks: int) -> None:
    weight = module.weight.detach().chunk(ranks, dimension)[rank].clone()
    module.weight = nn.Parameter(weight, requires_grad=False)
    module.out_features, module.in_features = weight.shape
    if module.bias is not None and dimension == 0:
        module.bias = nn.Parameter(module.bias.detach().chunk(ranks)[rank].clone(), requires_grad=False)


class _Summed(nn.Module):  # type: ignore[misc]  # torch is unknown to the checker
    """A Linear whose outputs are summed over the ranks."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        distributed.all_reduce(y)
        return y
