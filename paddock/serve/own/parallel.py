"""Tensor parallelism by sliced weights: each rank holds whole heads, and two sums a layer join the ranks.

After gpt-fast: plain tensors and an all-reduce behind each output projection, which a CUDA graph can hold.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import distributed, nn

_BY_ROWS = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj")
_BY_COLUMNS = ("o_proj", "down_proj")
_WITHOUT_SUMS = ("mps",)
"""Devices that torch has no all-reduce for: the hosts' processors sum, in gloo's ring."""
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


@dataclass(frozen=True, slots=True)
class Cut:
    """Part of a weight along one dimension: the rank's among as many equal ones."""

    dimension: int
    rank: int
    ranks: int

    def indices(self, shape: Sequence[int]) -> tuple[slice, ...]:
        """Return the indices of the part in a weight of that shape."""
        length = shape[self.dimension] // self.ranks
        part = slice(self.rank * length, (self.rank + 1) * length)
        return (*(slice(None),) * self.dimension, part)


def cut(name: str, rank: int, ranks: int) -> Cut | None:
    """Return the part that a rank keeps of the weight of that name; None for all of it."""
    module, _, weight = name.rpartition(".")
    layer = module.rpartition(".")[2]
    if ranks == 1:
        return None
    if layer in _BY_ROWS:
        return Cut(0, rank, ranks)
    return Cut(1, rank, ranks) if layer in _BY_COLUMNS and weight == "weight" else None


def is_summed(name: str, ranks: int) -> bool:
    """Return whether the outputs of the Linear of that name are parts, which `Summed` adds up."""
    return ranks > 1 and name.rpartition(".")[2] in _BY_COLUMNS


class Summed(nn.Module):  # type: ignore[misc]  # torch is unknown to the checker
    """A Linear whose outputs are summed over the ranks. Of its bias rank 0 alone has a part."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.linear(x)
        if y.device.type not in _WITHOUT_SUMS:
            distributed.all_reduce(y)
            return y
        host = y.cpu()
        distributed.all_reduce(host)
        return host.to(y.device)
