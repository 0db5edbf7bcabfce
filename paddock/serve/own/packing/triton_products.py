"""Products of some rows with the weights of a layer on a GPU: those of 16 bits for one row, int8 ones for some more.

A decode step reads its weights once, so the memory is the limit. cuBLAS keeps fewer reads under way for one row, and
for int8 the weights would be written out widened first. Block sizes for 1, 4 and 16 rows were chosen on an H200 at the
sizes of an 8B model; those for more rows fit the memory of smaller GPUs and were never timed.

torch and Triton are unknown to the type checker, which the `type: ignore` comments say.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

_WIDE = 16384
"""Outputs from which blocks are many enough to be wide."""
_DEEP = 8192
"""Columns from which two rows of weights fill a block."""


@triton.jit  # type: ignore[untyped-decorator]  # triton is unknown to the checker
def _row(x, w, scale, y, n, k, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr, SCALED: tl.constexpr):  # type: ignore[no-untyped-def]
    # Triton takes no annotation but its own.
    output = (tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    total = tl.zeros((OUTPUTS, DEPTH), tl.float32)
    for start in range(0, k, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        a = tl.load(x + depth, depth < k, 0.0).to(tl.float32)
        b = tl.load(w + output[:, None] * k + depth[None, :], (output[:, None] < n) & (depth[None, :] < k), 0)
        total += a[None, :] * b.to(tl.float32)
    result = tl.sum(total, 1)
    if SCALED:
        result *= tl.load(scale + output, output < n, 0.0).to(tl.float32)
    tl.store(y + output, result, output < n)


@triton.jit  # type: ignore[untyped-decorator]
def _rows(x, w, scale, y, rows, n, k, ROWS: tl.constexpr, OUTPUTS: tl.constexpr, DEPTH: tl.constexpr):  # type: ignore[no-untyped-def]
    row = tl.arange(0, ROWS)
    output = (tl.program_id(0) * OUTPUTS + tl.arange(0, OUTPUTS)).to(tl.int64)
    total = tl.zeros((ROWS, OUTPUTS), tl.float32)
    for start in range(0, k, DEPTH):
        depth = start + tl.arange(0, DEPTH)
        a = tl.load(x + row[:, None] * k + depth[None, :], (row[:, None] < rows) & (depth[None, :] < k), 0.0)
        b = tl.load(w + output[None, :] * k + depth[:, None], (output[None, :] < n) & (depth[:, None] < k), 0)
        total += tl.dot(a, b.to(tl.float32).to(a.dtype))
    total *= tl.load(scale + output, output < n, 0.0).to(tl.float32)[None, :]
    tl.store(y + row[:, None] * n + output[None, :], total, (row[:, None] < rows) & (output[None, :] < n))


@torch.library.custom_op("paddock::plain_product", mutates_args=())  # type: ignore[untyped-decorator,unused-ignore]
def plain_product(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return x times the transposed weight: [1, k] and [n, k] give [1, n] in the dtype of x."""
    (_, k), n = x.shape, weight.shape[0]
    x, y = x.contiguous(), torch.empty(1, n, dtype=x.dtype, device=x.device)
    _row[(triton.cdiv(n, 2),)](x, weight, weight, y, n, k, 2, 1024, False, num_warps=4)
    return y


@torch.library.custom_op("paddock::int8_product", mutates_args=())  # type: ignore[untyped-decorator,unused-ignore]
def int8_product(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Return x times the transposed weight: [m, k], [n, k] int8 and a scale a row, [n], give [m, n] in the dtype of x.

    All rows are of one block: it is for the few of a decode step.
    """
    (rows, k), n = x.shape, weight.shape[0]
    x, y = x.contiguous(), torch.empty(rows, n, dtype=x.dtype, device=x.device)
    if rows == 1 and n < _WIDE:
        outputs, depth, warps = (2, 2048, 8) if k >= _DEEP else (4, 512, 4)
        _row[(triton.cdiv(n, outputs),)](x, weight, scale, y, n, k, outputs, depth, True, num_warps=warps)
        return y
    block = max(16, triton.next_power_of_2(rows))  # a tensor core takes 16 rows at least
    outputs, depth, stages = sizes(n, block)
    _rows[(triton.cdiv(n, outputs),)](x, weight, scale, y, rows, n, k, block, outputs, depth, num_stages=stages)
    return y


def sizes(n: int, rows: int) -> tuple[int, int, int]:
    """Return the outputs and the depth of one block of that many rows, and how many depths are read ahead.

    Few outputs where blocks are few, as each multiprocessor needs reads under way; less ahead for more rows, which
    would not fit its memory.
    """
    outputs, depth = (64, 128) if n >= _WIDE else (32, 256)
    return outputs, depth, 4 if rows == 16 else 2


@plain_product.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


@int8_product.register_fake  # type: ignore[untyped-decorator,unused-ignore]
def _(x: torch.Tensor, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])
