"""A made-up CUDA under the real torch: its functions with their real signatures, tensors of GPUs in the host's memory.

Every `device="cuda:1"` becomes the processor's, so programs for GPUs compute as they would, and what torch.cuda is
asked is checked against its real signature. `spoil` changes results of a function, as a GPU that is sick would.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import create_autospec, patch

import torch
from torch.overrides import TorchFunctionMode

Spoil = Mapping[Any, Callable[[torch.Tensor], torch.Tensor]]
"""Changes of results, by the function of torch."""


class OnHost(TorchFunctionMode):
    """Puts on the processor what is meant for a GPU, and keeps which devices were used and made the current ones."""

    def __init__(self, spoil: Spoil) -> None:
        super().__init__()
        self.spoil = spoil
        self.used: set[str] = set()
        self.current: list[int] = []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        moved = {name: self._moved(value) for name, value in (kwargs or {}).items() if name != "pin_memory"}
        result = function(*map(self._moved, args), **moved)
        return self.spoil[function](result) if function in self.spoil else result

    def _moved(self, value: Any) -> Any:
        named = isinstance(value, str) and value.startswith("cuda")
        if named or (isinstance(value, torch.device) and value.type == "cuda"):
            self.used.add(str(value))
            return torch.device("cpu")
        return value


class _Event:
    """A CUDA event of the host's clock."""

    def __init__(self, enable_timing: bool = False) -> None:
        self.timing = enable_timing
        self.at: float | None = None

    def record(self, stream: Any = None) -> None:
        self.at = time.perf_counter()

    def elapsed_time(self, end: _Event) -> float:
        if not (self.timing and end.timing) or self.at is None or end.at is None:
            raise RuntimeError("Both events must be recorded, and created with argument 'enable_timing=True'.")
        return (end.at - self.at) * 1000


@contextmanager
def cuda_on_host(
    gpus: int = 1,
    *,
    free: int = 1 << 24,
    direct: Callable[[int, int], bool] = lambda source, target: True,
    spoil: Spoil | None = None,
) -> Iterator[OnHost]:
    """Give torch that many GPUs inside the block, each with `free` bytes of free memory of twice as many."""
    fake = OnHost(spoil or {})

    @contextmanager
    def device(index: int) -> Iterator[None]:
        fake.current.append(index)
        yield

    answers: dict[str, Callable[..., Any]] = {
        "init": lambda: None,
        "is_available": lambda: True,
        "device_count": lambda: gpus,
        "mem_get_info": lambda device=None: (free, 2 * free),
        "synchronize": lambda device=None: None,
        "can_device_access_peer": lambda device, peer_device: direct(device, peer_device),
        "set_device": lambda device: fake.current.append(device),
    }
    with (
        patch.multiple(
            torch.cuda,
            Event=_Event,
            device=device,
            **{
                name: create_autospec(getattr(torch.cuda, name), side_effect=answer) for name, answer in answers.items()
            },
        ),
        patch.object(torch.version, "cuda", "13.0"),
        fake,
    ):
        yield fake
