"""Matrices of whole numbers, the same on every device: made by it from the positions of their elements.

Sums of whole numbers below 2**24 are exact in float32, in which every format's products are added up, and in whatever
order that happens. So a product of such matrices is the same on every device that computes correctly.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator

from paddock.smoke.workers.device import Array, ArrayDevice

_AT_ONCE = 1 << 22
"""Elements worked at once: eight bytes each, a few times over, in addition to the matrices themselves."""
_MULTIPLIER = 0x45D9F3B
"""Odd and below 2**31, so that its products with numbers of 32 bits fit into 63."""
_MASK = 0xFFFFFFFF
_DENSITY = 16
"""One number in so many of a sparse matrix is -1 or 1, the others are 0. Of the 8192 terms of a sum about 32 are then
not 0, so its standard deviation is below 6, and sums above 256, which bfloat16 would round, do not occur."""
_LARGEST = {"fp16": 15}
"""Largest number of a dense matrix: float16 ends at 65504, and sums of 8192 products stay below."""
_LARGEST_ELSEWHERE = 127
"""All that the eight bits of a bfloat16's significand hold."""

CHECKSUMS = {
    1024: "70292e24b67d27e6",
    2048: "a3ca2d6aa53d3835",
    4096: "c0641817ee0b5eac",
    8192: "479110745c026556",
}
"""Checksum of the product of the two sparse matrices by size, from their sums on a CPU: see `right_checksum`."""


def sparse(number: int, size: int, device: ArrayDevice, precision: str) -> Array:
    """Return matrix `number` of -1, 0 and 1: products are whole numbers that every format holds."""

    def pick(drawn: Array) -> Array:
        drawn = drawn % (2 * _DENSITY)
        return device.integers(drawn == 0) - device.integers(drawn == 1)

    return _matrix(number, size, device, precision, pick)


def dense(number: int, size: int, device: ArrayDevice, precision: str) -> Array:
    """Return matrix `number` without zeros to speak of, which takes a GPU's full power as sparse ones do not."""
    largest = _LARGEST.get(precision, _LARGEST_ELSEWHERE)
    return _matrix(number, size, device, precision, lambda drawn: drawn % (2 * largest + 1) - largest)


def fold(device: ArrayDevice, weights: Array, matrix: Array) -> Array:
    """Return the sum of the matrix's rows, each times its weight, as whole numbers."""
    total = device.xp.zeros(matrix.shape[1], dtype=device.xp.int64, **device.place)
    for first, rows in _rows(matrix):
        total += (weights[first : first + len(rows), None] * device.integers(rows)).sum(0)
    return total


def weights(size: int, device: ArrayDevice) -> Array:
    """Return an odd number of 15 bits for each row, so that no sum below takes more than 63."""
    return (_scrambled(3 * size * size, size, device) & 0x7FFF) | 1


def wrong_columns(device: ArrayDevice, product: Array, folded: Array, expected: Array) -> int:
    """Return the columns of a product that are wrong: by their sums, or by a number that is not whole, as NaN is not.

    `folded` is the product's own fold, `expected` that of its right matrix by the fold of the left one (Freivalds).
    """
    wrong = folded != expected
    for _, rows in _rows(product):
        wrong |= (device.integers(rows) != rows).any(0)
    return int(wrong.sum())


def checksum(folded: Array) -> str:
    """Return a checksum of a product's fold."""
    return hashlib.sha256(",".join(map(str, folded.tolist())).encode()).hexdigest()[:16]


def right_checksum(size: int, device: ArrayDevice) -> str:
    """Return the checksum of the product of the two sparse matrices, computed without a product, on the CPU."""
    if size in CHECKSUMS:
        return CHECKSUMS[size]
    cpu = device.processor
    left, right = (sparse(number, size, cpu, "int8") for number in (0, 1))
    return checksum(fold(cpu, fold(cpu, weights(size, cpu), left), right))


def _matrix(
    number: int,
    size: int,
    device: ArrayDevice,
    precision: str,
    pick: Callable[[Array], Array],
) -> Array:
    matrix = device.xp.empty((size, size), dtype=device.format(precision), **device.place)
    for first, rows in _rows(matrix):
        rows[:] = pick(_scrambled((number * size + first) * size, len(rows) * size, device)).reshape(rows.shape)
    return matrix


def _rows(matrix: Array) -> Iterator[tuple[int, Array]]:
    """Yield the rows in blocks, each with the number of its first."""
    at_once = max(1, _AT_ONCE // matrix.shape[1])
    for first in range(0, len(matrix), at_once):
        yield first, matrix[first : first + at_once]


def _scrambled(start: int, count: int, device: ArrayDevice) -> Array:
    """Return a number of 32 bits for each position: no generator of random numbers is the same on all devices."""
    drawn = device.xp.arange(start, start + count, dtype=device.xp.int64, **device.place)
    for _ in range(2):
        drawn = ((drawn ^ (drawn >> 16)) * _MULTIPLIER) & _MASK
    return drawn ^ (drawn >> 16)
