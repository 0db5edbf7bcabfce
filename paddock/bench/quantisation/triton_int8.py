"""Product of some rows with int8 weights on a GPU, which widens the weights as it reads them.

A product of one row inductor fuses by itself; of more it would write the widened weights to memory and read them again,
which takes five times the bytes of int8. The block sizes are chosen, not tuned: the kernel was written without a GPU.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_DEPTH = 256
"""Weights of an output that are read at once."""


@triton.jit  # type: ignore[untyped-decorator]  # triton is unknown to the checker
def _kernel(x, w, scale, y, rows, n, k, ROWS: tl.constexpr, COLUMNS: tl.constexpr, DEPTH: tl.constexpr):  # type: ignore[no-untyped-def]
    # Triton takes no annotation but its own.
    row = tl.arange(0, ROWS)
    column = (tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)).to(tl.int64)
    total = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, k, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        a = tl.load(x + row[:, None] * k + depth[None, :], (row[:, None] < rows) & (depth[None, :] < k), 0.0)
        b = tl.load(w + column[None, :] * k + depth[:, None], (column[None, :] < n) & (depth[:, None] < k), 0)
        total += tl.dot(a, b.to(tl.float32).to(a.dtype))
    total *= tl.load(scale + column, column < n, 0.0).to(tl.float32)[None, :]
    tl.store(y + row[:, None] * n + column[None, :], total, (row[:, None] < rows) & (column[None, :] < n))


@torch.library.custom_op("paddock::int8_product", mutates_args=())  # type: ignore[untyped-decorator,unused-ignore]
def product(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return x times the transposed weight: [m, k], [n, k] int8 and a scale a row, [n], give [m, n] in the dtype of x.

    All rows are of one block: it is for the few of a decode step.
    """
    (rows, k), n = x.shape, weight.shape[0]
    x, y = x.contiguous(), torch.empty(rows, n, dtype=x.dtype, device=x.device)
    block = max(16, triton.next_power_of_2(rows))  # a tensor core takes 16 rows at least
    columns = columns_of_a_block(n)
    _kernel[(triton.cdiv(n, columns),)](x, weight, scale, y, rows, n, k, block, columns, _DEPTH)
    return y


def columns_of_a_block(n: int) -> int:
    """Return the outputs of one block: few where blocks are few, as each multiprocessor needs reads under way."""
    return 16 if n < 8192 else 32


@product.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])
