"""Packed layers of a GPU where there is none: torch's and Triton's own rules, on tensors without data or memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.packages import need

need("torch", "transformers", "safetensors")

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode

from paddock.serve.own import loading
from paddock.serve.own.packing import convert, linear, schemes

pytestmark = pytest.mark.explore

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


@pytest.mark.parametrize("architecture", ["llama", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_merged_layers_compute_what_the_single_ones_do(architecture: str, dtype: str) -> None:
    torch.manual_seed(0)
    single, merged = (model(architecture, dtype, merge=merge) for merge in (False, True))
    names = {type(module).__name__ for module in merged.modules()}
    assert {"Merged", "Part"} <= names
    one, some = torch.randint(0, 128, (1, 1)), torch.randint(0, 128, (2, 70))
    compiled = torch.compile(merged, backend="eager", fullgraph=True)
    with torch.inference_mode():
        for ids in (one, some):
            expected = single(input_ids=ids, use_cache=False).logits
            torch.testing.assert_close(merged(input_ids=ids, use_cache=False).logits, expected)
        result = compiled(input_ids=one, use_cache=False).logits
        torch.testing.assert_close(result, single(input_ids=one, use_cache=False).logits)
    assert all(module.output is None for module in merged.modules() if isinstance(module, linear.Merged))


def model(architecture: str, dtype: str, *, merge: bool) -> Any:
    """Return a small model whose layers are packed as on a GPU, with the processor's products."""
    config = transformers.AutoConfig.for_model(
        architecture, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, vocab_size=128,
    )  # fmt: skip
    torch.manual_seed(1)
    built = transformers.AutoModelForCausalLM.from_config(config).eval()
    for name in [name for name, layer in built.named_modules() if isinstance(layer, torch.nn.Linear)]:
        layer = built.get_submodule(name)
        packed: Any = linear.GpuPlain(layer.weight, layer.bias, lambda x, weight: x @ weight.T)
        if dtype == "int8":
            packed = linear.GpuInt8(
                schemes.int8(layer.weight), layer.bias, torch.float32,
                lambda x, weight, scale: (x @ weight.T.to(x.dtype)) * scale,
            )  # fmt: skip
        built.set_submodule(name, packed)
        if merge:
            loading._merge(built, name)
    return built


def test_merged_int4_layers_hold_their_tiles_side_by_side() -> None:
    with FakeTensorMode():
        layers = [torch.nn.Linear(256, n, bias=False, dtype=torch.bfloat16, device=CUDA) for n in (64, 32, 32)]
        parts: Any = convert.merge([convert.pack(layer, "int4", CUDA) for layer in layers])
        x = torch.zeros(1, 1, 256, dtype=torch.bfloat16, device=CUDA)
        assert [part(x).shape for part in parts] == [(1, 1, 64), (1, 1, 32), (1, 1, 32)]
        assert parts[0].merged.layer.weight.shape[0] == 128 // 8
        assert parts[0].merged.layer.scales.shape == (256 // 64, 128, 2)


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
from paddock.serve.own.packing import schemes, triton_products
torch.manual_seed(0)
triton_products._WIDE, triton_products._DEEP = 64, 200
for rows, n, k in ((1, 32, 128), (1, 30, 250), (1, 70, 64), (3, 70, 192), (17, 60, 200), (64, 64, 256)):
    for dtype, allowed in ((torch.float32, 1e-6), (torch.float16, 1e-3)):
        plain, x = torch.randn(n, k), torch.randn(rows, k).to(dtype)
        weight = schemes.int8(plain)
        results = [(triton_products.int8_product(x, weight.values, weight.scale.to(dtype)), weight.dequantise())]
        if rows == 1:
            results.append((triton_products.plain_product(x, plain.to(dtype)), plain.to(dtype).float()))
        for result, used in results:
            expected = x.float() @ used.T
            error = (result.float() - expected).pow(2).mean().sqrt() / expected.std()
            assert float(error) < allowed, (rows, n, k, dtype)
"""


def test_the_kernels_multiply_in_tritons_interpreter(root: Path) -> None:
    need("triton")
    program(INTERPRETED, root, TRITON_INTERPRET="1")


COMPILED = """
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from paddock.serve.own.packing import triton_products
MEMORY = {75: 64, 80: 163, 86: 99, 90: 227}  # KiB of a block: CUDA C++ Programming Guide, "Compute Capabilities"
def build(kernel, capability, number, weight, counts, constants, **options):
    pointers = {"x": f"*{number}", "w": f"*{weight}", "scale": f"*{number}", "y": f"*{number}"}
    signature = {**pointers, **dict.fromkeys(counts, "i32"), **dict.fromkeys(constants, "constexpr")}
    sixteen = {(place,): [["tt.divisibility", 16]] for place in (*range(4), 4 + len(counts) - 2, 4 + len(counts) - 1)}
    source = ASTSource(kernel, signature, constants, sixteen)
    built = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    assert built.asm["cubin"]
    assert built.metadata.shared <= MEMORY[capability] << 10, (capability, constants, built.metadata.shared)
    return built.asm["ptx"]
for capability in MEMORY:
    number = "bf16" if capability >= 80 else "fp16"
    for weight in (number, "i8"):
        constants = {"OUTPUTS": 2, "DEPTH": 1024, "SCALED": weight == "i8"}
        ptx = build(triton_products._row, capability, number, weight, ("n", "k"), constants, num_warps=4)
        assert "v4.b32" in ptx, "sixteen bytes of weights are read at once"
    for block in (16, 64):
        for n in (4096, 65536):
            outputs, depth, stages = triton_products.sizes(n, block)
            constants = {"ROWS": block, "OUTPUTS": outputs, "DEPTH": depth}
            counts = ("rows", "n", "k")
            ptx = build(triton_products._rows, capability, number, "i8", counts, constants, num_stages=stages)
            assert capability < 80 or "mma" in ptx, "it uses tensor cores"
"""


@pytest.mark.e2e
def test_the_kernels_compile_for_gpus_from_turing_to_hopper(root: Path, tmp_path: Path) -> None:
    need("triton")
    program(COMPILED, root, TRITON_CACHE_DIR=str(tmp_path))


def program(text: str, root: Path, **environ: str) -> None:
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, cwd=root, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
