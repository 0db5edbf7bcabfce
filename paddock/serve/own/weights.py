"""Weights of a model, one at a time: random ones of a seed, those of a checkpoint's files, or those of a built model.

Each is read as the part that this process keeps, so that a model which fits no single device loads on several.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from safetensors import safe_open

from paddock.serve.own.parallel import Cut

_SPREAD = 0.02
"""Random weights are uniform within plus and minus this, as most models are initialised."""
_INDEX, _FILE = "model.safetensors.index.json", "model.safetensors"


class Weights(Protocol):
    """Weights of a model by their names."""

    def read(self, names: Sequence[str], like: torch.Tensor, cut: Cut | None, device: torch.device) -> torch.Tensor:
        """Return a weight on the device, or its part, in the dtype of `like`, which has the shape of the whole.

        `names` are several where weights are tied.
        """


class RandomWeights:
    """Weights of a seed. A part is that of the whole weight, on devices of one kind."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._whole = torch.empty(0)

    def read(self, names: Sequence[str], like: torch.Tensor, cut: Cut | None, device: torch.device) -> torch.Tensor:
        whole = torch.empty(like.shape, dtype=like.dtype, device=device) if cut is None else self._space(like, device)
        if like.ndim < 2:
            whole.fill_(1)
        else:
            # Each weight has a generator of its own, so that it is the same whichever others are built.
            digest = hashlib.sha256(f"{self._seed} {names[0]}".encode()).digest()
            generator = torch.Generator(device).manual_seed(int.from_bytes(digest[:7]))
            whole.uniform_(-_SPREAD, _SPREAD, generator=generator)
        return whole if cut is None else whole[cut.indices(like.shape)].clone()

    def _space(self, like: torch.Tensor, device: torch.device) -> torch.Tensor:
        """Return memory for a weight that is cut. All share it, so that no gaps are left between their parts."""
        if self._whole.numel() < like.numel():
            self._whole = torch.empty(like.numel(), dtype=like.dtype, device=device)
        return self._whole[: like.numel()].view(like.shape)


@dataclass(frozen=True, slots=True)
class CheckpointWeights:
    """Weights in .safetensors files, of which only the parts are read that are kept."""

    files: Mapping[str, Path]
    """File of each weight."""

    @classmethod
    def of(cls, folder: Path) -> CheckpointWeights | None:
        """Return the weights of a checkpoint; None where it has none in .safetensors. Raises OSError, ValueError."""
        if (folder / _INDEX).is_file():
            names = json.loads((folder / _INDEX).read_text())["weight_map"]
            return cls({str(name): folder / str(file) for name, file in names.items()})
        if not (folder / _FILE).is_file():
            return None
        with safe_open(folder / _FILE, "pt") as opened:
            return cls(dict.fromkeys(opened.keys(), folder / _FILE))

    def holds(self, weights: Iterable[Sequence[str]]) -> bool:
        """Return whether each weight is there under one of its names."""
        return all(any(name in self.files for name in names) for names in weights)

    def read(self, names: Sequence[str], like: torch.Tensor, cut: Cut | None, device: torch.device) -> torch.Tensor:
        """Return a weight. Raises ValueError for one of another shape, and what safetensors raises."""
        name = next(name for name in names if name in self.files)
        # A file that is opened for each weight leaves no pages of others behind.
        with safe_open(self.files[name], "pt") as opened:
            view = opened.get_slice(name)
            if tuple(view.get_shape()) != tuple(like.shape):
                raise ValueError(f"{name} is of the shape {view.get_shape()}, and the model's is {list(like.shape)}")
            part = view[:] if cut is None else view[cut.indices(like.shape)]
            return part.to(device, like.dtype, copy=True, memory_format=torch.contiguous_format)


class BuiltWeights:
    """Weights of a model that is built already, on the processor."""

    def read(self, names: Sequence[str], like: torch.Tensor, cut: Cut | None, device: torch.device) -> torch.Tensor:
        return like.detach().to(device) if cut is None else like.detach()[cut.indices(like.shape)].to(device, copy=True)
