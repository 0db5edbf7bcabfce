"""Packed layers of a GPU where there is none: torch's and Triton's own rules, on tensors without data or memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="no torch in this environment")

from torch._inductor import config, decomposition  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from paddock.bench.engine.graph_step import INDUCTOR  # noqa: E402
from paddock.bench.quantisation import convert, linear, schemes  # noqa: E402

CUDA = torch.device("cuda")


@pytest.mark.parametrize(("columns", "tiles"), [(256, 8), (192, 4)])
def test_int4_weights_are_packed_in_tiles_that_divide_their_columns(columns: int, tiles: int) -> None:
    with FakeTensorMode():
        layer = torch.nn.Linear(columns, 32, bias=False, dtype=torch.bfloat16, device=CUDA)
        packed = convert.pack(layer, "int4", CUDA)
        assert isinstance(packed, linear.TorchInt4)
        # torch reads blocks of 8 rows and `tiles` times 16 columns; all columns are in one.
        assert packed.weight.shape == (32 // 8, columns // (tiles * 16), 32, tiles // 2)
        assert packed.weight.shape[1] * tiles * 16 == columns
        assert packed(torch.zeros(1, 3, columns, dtype=torch.bfloat16, device=CUDA)).shape == (1, 3, 32)


def test_a_compiled_product_of_one_row_is_fused_with_its_widening() -> None:
    options = {name: value for name, value in INDUCTOR.items() if name != "triton.cudagraphs"}
    with FakeTensorMode():
        row, rows, weight = (torch.zeros(n, 64, dtype=torch.bfloat16, device=CUDA) for n in (1, 2, 32))
        assert decomposition.mm(row, weight.T) is NotImplemented, "inductor's own default: a call of cuBLAS"
        with config.patch(options):
            assert decomposition.mm(row, weight.T).shape == (1, 32)
            assert decomposition.mm(rows, weight.T) is NotImplemented


def test_few_rows_of_int8_take_the_kernel_and_many_do_not() -> None:
    calls = []

    def product(x: Any, weight: Any, scale: Any) -> Any:
        calls.append(x.shape[0])
        return (x @ weight.T.to(x.dtype)) * scale

    weight = schemes.int8(torch.randn(24, 64))
    layer = linear.GpuInt8(weight, torch.ones(24), torch.float32, product)
    for batch, length in ((1, 1), (5, 1), (1, 64), (2, 33)):
        x = torch.randn(batch, length, 64)
        torch.testing.assert_close(layer(x), x @ weight.dequantise().T + 1, atol=1e-3, rtol=1e-4)
    assert calls == [1, 5, 64]


INTERPRETED = """
import torch
from paddock.bench.quantisation import schemes, triton_int8
torch.manual_seed(0)
for rows, n, k in ((1, 32, 128), (3, 70, 192), (17, 100, 200), (64, 64, 256)):
    for dtype, allowed in ((torch.float32, 1e-6), (torch.float16, 1e-3)):
        weight, x = schemes.int8(torch.randn(n, k)), torch.randn(rows, k).to(dtype)
        expected = x.float() @ weight.dequantise().T
        error = triton_int8.product(x, weight.values, weight.scale.to(dtype)).float() - expected
        assert float(error.pow(2).mean().sqrt() / expected.std()) < allowed, (rows, n, k, dtype)
"""


def test_the_kernel_multiplies_in_tritons_interpreter(root: Path) -> None:
    pytest.importorskip("triton")
    program(INTERPRETED, root, TRITON_INTERPRET="1")


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from paddock.bench.quantisation import triton_int8
for capability in (75, 80, 90):
    number = "bf16" if capability >= 80 else "fp16"
    for block in (16, 64):
        pointers = {"x": f"*{number}", "w": "*i8", "scale": f"*{number}", "y": f"*{number}"}
        signature = {**pointers, **dict.fromkeys(("rows", "n", "k"), "i32")}
        columns = triton_int8.columns_of_a_block(4096 * block // 16)
        sizes = {"ROWS": block, "COLUMNS": columns, "DEPTH": triton_int8._DEPTH}
        source = ASTSource(triton_int8._kernel, {**signature, **dict.fromkeys(sizes, "constexpr")}, sizes)
        built = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert built.asm["cubin"]
        assert capability < 80 or "mma" in built.asm["ptx"], "it uses tensor cores"
"""


@pytest.mark.e2e
def test_the_kernel_compiles_for_gpus_from_turing_to_hopper(root: Path, tmp_path: Path) -> None:
    pytest.importorskip("triton")
    program(COMPILED, root, TRITON_CACHE_DIR=str(tmp_path))


def program(text: str, root: Path, **environ: str) -> None:
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=root, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
