"""The inference benchmark."""

from __future__ import annotations

from typing import Any

from invoke.context import Context

from paddock.bench.cli import compare, modes
from paddock.bench.cli.bench import Bench
from paddock.bench.cli.parameters import Load
from paddock.tasks.common import task_of_flags


def _bench(c: Context, flags: dict[str, Any]) -> int:
    from paddock.bench.cli import bench

    return bench.bench(flags)


bench_run = task_of_flags(
    "run",
    "Measure how fast this machine serves a model, against its physical limit and in money.",
    {name: flag for name, _, flag in Bench.flags()},
    _bench,
    checks_values_first=True,
)


def _load(c: Context, flags: dict[str, Any]) -> int:
    from paddock.bench.cli.load import load

    return load(flags)


bench_load = task_of_flags(
    "load",
    "Offer load to an OpenAI-compatible server and measure its answers: TTFT, TPOT, throughput, goodput.",
    {name: flag for name, _, flag in Load.flags()},
    _load,
)


def _compare(c: Context, flags: dict[str, Any]) -> int:
    return compare.perform(flags)


bench_compare = task_of_flags("compare", "Judge a new result: is it a regression, or noise?", compare.FLAGS, _compare)


def _modes(c: Context, flags: dict[str, Any]) -> int:
    return modes.perform(flags, _measure_modes)


def _measure_modes(parameters: modes.Modes) -> int:
    from paddock.bench.cli import bench

    return bench.bench(modes.measured(parameters))


bench_modes = task_of_flags(
    "modes",
    "Measure the resource modes, or check a deployment against its checklist.",
    modes.FLAGS,
    _modes,
    checks_values_first=True,
)
