"""Memory that keeps what was written: patterns over most of the free memory, read back and compared."""

from __future__ import annotations

from typing import Any

import torch

from paddock.smoke.workers.device import Device, Kind, open_device

_CHUNK = 1 << 27
"""Words of 8 bytes compared at once: a comparison needs memory of its own, an eighth of that."""
_PATTERNS = {
    "zeros": 0,
    "ones": -1,
    "checkerboard": 0x5555555555555555,
    "inverse checkerboard": -0x5555555555555556,
}


def run(device: Kind, part: float, at_most: int) -> dict[str, Any]:
    """Test the `part` of the free memory, and at most `at_most` bytes."""
    return check(open_device(device), part, at_most)


def check(device: Device, part: float, at_most: int) -> dict[str, Any]:
    """Return the bytes tested, the number of wrong words and where the first ones are, by pattern."""
    words = max(1, int(min(device.free_bytes() * part, at_most)) // 8)
    memory = torch.empty(words, dtype=torch.int64, device=device.torch)
    faults: dict[str, Any] = {}
    for name, value in _PATTERNS.items():
        memory.fill_(value)
        _note(faults, name, compare(memory, value))
    # Every word holds its own number, which finds address lines that are stuck.
    torch.arange(words, dtype=torch.int64, device=device.torch, out=memory)
    _note(faults, "address", compare(memory, None))
    device.synchronize()
    return {"bytes": words * 8, "wrong": sum(fault["wrong"] for fault in faults.values()), "faults": faults}


def compare(memory: torch.Tensor, value: int | None) -> tuple[int, list[int]]:
    """Return how many words differ from `value`, or from their own number for None, and the first ones' numbers."""
    wrong = 0
    first: list[int] = []
    for start in range(0, len(memory), _CHUNK):
        chunk = memory[start : start + _CHUNK]
        expected = value if value is not None else torch.arange(start, start + len(chunk), device=memory.device)
        differs = chunk != expected
        count = int(differs.sum())
        if count and not first:
            first = [start + int(number) for number in differs.nonzero()[:3].flatten()]
        wrong += count
    return wrong, first


def _note(faults: dict[str, Any], name: str, result: tuple[int, list[int]]) -> None:
    wrong, first = result
    if wrong:
        faults[name] = {"wrong": wrong, "first": first}
