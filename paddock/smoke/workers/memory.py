"""Memory that keeps what was written: patterns over a part of the free memory, read back and compared."""

from __future__ import annotations

from typing import Any

from paddock.smoke.workers.device import Array, ArrayDevice, Kind, open_device

_CHUNK = 1 << 24
"""Words of 8 bytes worked at once. The numbers of words need 128 MiB of their own, which the smallest GPU has left."""
_FIRST = 3
"""Wrong words whose positions are reported."""
_PATTERNS = {
    "zeros": 0,
    "ones": -1,
    "checkerboard": 0x5555555555555555,
    "inverse checkerboard": -0x5555555555555556,
}


def run(device: Kind, part: float, at_most: int | None) -> dict[str, Any]:
    """Test the `part` of the free memory, and at most `at_most` bytes."""
    return check(open_device(device), part, at_most)


def check(device: ArrayDevice, part: float, at_most: int | None) -> dict[str, Any]:
    """Return the bytes tested and those that there are, the number of wrong words and the first ones, by pattern."""
    free, total = device.memory_bytes()
    tested = int(free * part) if at_most is None else min(int(free * part), at_most)
    memory = device.xp.empty(max(1, tested // 8), dtype=device.xp.int64, **device.place)
    faults: dict[str, Any] = {}
    for name, value in _PATTERNS.items():
        memory[:] = value
        _note(faults, name, compare(device, memory, value))
    # Every word holds its own number, which finds address lines that are stuck.
    for start in range(0, len(memory), _CHUNK):
        chunk = memory[start : start + _CHUNK]
        chunk[:] = _numbers(device, start, chunk)
    _note(faults, "address", compare(device, memory, None))
    device.synchronize()
    return {
        "bytes": len(memory) * 8,
        "total": total,
        "wrong": sum(fault["wrong"] for fault in faults.values()),
        "faults": faults,
    }


def compare(device: ArrayDevice, memory: Array, value: int | None) -> tuple[int, list[int]]:
    """Return how many words differ from `value`, or from their own number for None, and the first ones' numbers."""
    wrong = 0
    first: list[int] = []
    for start in range(0, len(memory), _CHUNK):
        chunk = memory[start : start + _CHUNK]
        differs = chunk != (value if value is not None else _numbers(device, start, chunk))
        count = int(differs.sum())
        if count and len(first) < _FIRST:
            first += [start + int(number) for number in device.xp.where(differs)[0][: _FIRST - len(first)]]
        wrong += count
    return wrong, first


def _numbers(device: ArrayDevice, start: int, chunk: Array) -> Array:
    return device.xp.arange(start, start + len(chunk), dtype=device.xp.int64, **device.place)


def _note(faults: dict[str, Any], name: str, result: tuple[int, list[int]]) -> None:
    wrong, first = result
    if wrong:
        faults[name] = {"wrong": wrong, "first": first}
