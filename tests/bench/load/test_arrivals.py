"""Arrivals and requests: the load that is offered is the load that was ordered."""

from __future__ import annotations

import statistics
from itertools import islice, pairwise
from pathlib import Path

import pytest

from paddock.bench.errors import BenchInputError
from paddock.bench.load.workload import CONSTANT, POISSON, Lengths, arrivals, read_trace, requests, scaled


@pytest.mark.parametrize(
    ("burstiness", "variation"), [(POISSON, 1.0), (0.25, 2.0), (4.0, 0.5), (CONSTANT, 0.0)], ids=str
)
def test_gaps_have_the_mean_and_variation_ordered(burstiness: float, variation: float) -> None:
    times = arrivals(20_000, rate=50, burstiness=burstiness, seed=1)
    gaps = [later - earlier for earlier, later in pairwise((0.0, *times))]
    assert times[-1] == pytest.approx(20_000 / 50)
    assert statistics.stdev(gaps) / statistics.fmean(gaps) == pytest.approx(variation, rel=0.05, abs=1e-6)


def test_a_seed_gives_the_same_load_again() -> None:
    assert arrivals(50, 5, POISSON, seed=3) == arrivals(50, 5, POISSON, seed=3) != arrivals(50, 5, POISSON, seed=4)
    ordered = [list(islice(requests(Lengths(1, 9), Lengths(5, 6), seed), 40)) for seed in (3, 3, 4)]
    assert ordered[0] == ordered[1] != ordered[2]
    assert {request.new for request in ordered[0]} == {5, 6}
    first, second = (request.text(seed=3).split() for request in islice(requests(Lengths(9, 9), Lengths(1, 1), 3), 2))
    assert len(first) == 9
    assert first != second


def test_a_trace_is_read_in_order_and_scaled(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text('{"arrival": 3, "prompt": 8, "new": 2}\n\n{"arrival": 1.5, "prompt": 4, "new": 1}\n')
    entries = read_trace(path)
    assert [(entry.arrival, entry.prompt, entry.new) for entry in entries] == [(1.5, 4, 1), (3, 8, 2)]
    assert scaled([entry.arrival for entry in entries], rate=4) == (0.25, 0.5)


@pytest.mark.parametrize("line", [
    "{",
    "[]",
    '{"arrival": 1}',
    '{"arrival": -1, "prompt": 1, "new": 1}',
    '{"arrival": NaN, "prompt": 1, "new": 1}',
    "",
])  # fmt: skip
def test_a_bad_trace_names_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_text(line)
    with pytest.raises(BenchInputError, match="trace.jsonl:1: not a request" if line else "holds no request"):
        read_trace(path)
