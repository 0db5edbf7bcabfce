"""What is computed between products: in C as in torch, for rows of their own positions, and never beyond the cache."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.packages import need

need("torch")

import torch

from paddock.serve.own.operations import Attention, NativeOperations, Norm, Positions, TorchOperations
from paddock.serve.own.packing import native

pytestmark = pytest.mark.explore

LENGTH = 200
Both = Callable[[int], tuple[TorchOperations, NativeOperations]]


@pytest.fixture
def both() -> Both:
    """Return the operations of torch and those in C, for heads of a size."""
    kernels = native.kernels()
    if kernels is None:
        pytest.skip("no C compiler")
    torch.manual_seed(0)

    def of(dim: int) -> tuple[TorchOperations, NativeOperations]:
        tables = torch.randn(LENGTH, dim), torch.randn(LENGTH, dim)
        return TorchOperations(torch.nn.functional.silu, *tables), NativeOperations(kernels, *tables)

    return of


def at(*positions: int) -> Positions:
    hidden = torch.arange(max(positions) + 1) > torch.tensor(positions)[:, None]
    mask = torch.zeros(hidden.shape).masked_fill(hidden, torch.finfo(torch.float32).min)[:, None, None]
    return Positions(torch.tensor(positions), max(positions) + 1, mask)


@pytest.mark.parametrize("threads", [1, 16])
@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dim", "positions"),
    [(8, 2, 64, (0,)), (4, 4, 16, (63, 64, 130)), (6, 1, 80, (199, 3)), (32, 4, 128, (150,))],
)
def test_attention_is_that_of_torch(
    heads: int,
    kv_heads: int,
    dim: int,
    positions: tuple[int, ...],
    normed: bool,
    threads: int,
    both: Both,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    rows = len(positions)
    products = torch.randn(rows, 1, (heads + 2 * kv_heads) * dim)  # parts of one product: rows are a stride apart
    qkv = products.split([heads * dim, kv_heads * dim, kv_heads * dim], -1)
    norms = (Norm(torch.rand(dim), 1e-5), Norm(torch.rand(dim), 1e-5)) if normed else (None, None)
    caches = [torch.randn(2, rows + 1, kv_heads, LENGTH, dim)]  # with room for one more row
    caches.append(caches[0].clone())
    expected, result = (
        run.attend(Attention(3 * dim**-0.5, *norms), qkv, tuple(cache), at(*positions))
        for run, cache in zip(both(dim), caches, strict=True)
    )
    assert torch.allclose(result, expected, atol=1e-4)
    assert torch.allclose(*caches, atol=1e-5)


def test_norm_adds_before_and_keeps_the_sum(both: Both) -> None:
    x, added, norm = torch.randn(3, 1, 100), torch.randn(3, 1, 100), Norm(torch.rand(100), 1e-6)
    sums = [x.clone(), x.clone()]
    expected, result = (run.norm(norm, own, added) for run, own in zip(both(64), sums, strict=True))
    assert torch.allclose(result, expected, atol=1e-5)
    assert torch.equal(*sums)


def test_gate_is_silu_for_any_size_of_number(both: Both) -> None:
    gate, up = torch.randn(2, 1, 700).mul(30).split([300, 400], -1)
    gate[0, 0, :4] = torch.tensor([0.0, -1e4, 1e4, -90.0])
    expected, result = (run.gate(gate, up[..., :300]) for run in both(64))
    assert torch.allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("part", ["q", "k", "v"])
def test_a_number_that_is_none_stays_none(part: str, both: Both) -> None:
    qkv = {"q": torch.randn(1, 1, 128), "k": torch.randn(1, 1, 64), "v": torch.randn(1, 1, 64)}
    qkv[part][0, 0, 5] = float("nan")
    keys, values = torch.randn(2, 1, 1, LENGTH, 64)
    for run in both(64):
        attention = run.attend(Attention(0.1, None, None), list(qkv.values()), (keys, values), at(100))
        assert attention.isnan().any()
        assert run.norm(Norm(torch.ones(128), 1e-6), attention).isnan().all()
        assert run.gate(attention, torch.ones(1, 1, 128)).isnan().any()


@pytest.mark.parametrize(("rows", "positions"), [(1, (LENGTH,)), (2, (0, 0)), (1, (0, 0)), (2, (0,))])
def test_what_the_cache_has_no_place_for_is_refused(rows: int, positions: tuple[int, ...], both: Both) -> None:
    qkv = [torch.ones(rows, 1, 64)] * 3
    _, native_operations = both(64)
    keys, values = torch.zeros(2, 1, 1, LENGTH, 64)
    with pytest.raises(IndexError):
        native_operations.attend(Attention(1.0, None, None), qkv, (keys, values), at(*positions))
    assert not keys.any()
    assert not values.any()
