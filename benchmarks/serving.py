#!/usr/bin/env python3
"""Speed of a replica's engine, as ratios of runs in turn in one process.

    .venv/bin/python benchmarks/serving.py [--runs N] [--model tiny] [--file benchmarks/results/serving.json]

Two things are measured: a token at eight requests side by side against one by one, and the tail latency of another
program's task beside a replica in conservative against aggressive mode. Weights are random and of the model's published
shape. Prints one JSON document with the median ratio, the range and the goal, and with the load of the machine before
and after: other work shares it, so only ratios of one run mean something. Needs the lock `serve`.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # as a replica sets it

import torch
from side_by_side import paired, report

from paddock.models.shapes import shape
from paddock.modes.config import PRESETS, Mode
from paddock.serve.engine.loop import Loop, Token
from paddock.serve.engine.pace import Pace
from paddock.serve.engine.rows import warm_up
from paddock.serve.engine.torch_rows import TorchRows
from paddock.serve.errors import ServeError
from paddock.serve.own.protocol import Spec
from paddock.serve.own.torch_engine import TorchEngine

_PROMPT, _NEW, _ROWS, _LENGTH = 16, 48, 8, 96
_FOREIGN = """
import time
spent = []
for _ in range(150):
    start = time.perf_counter()
    sum(range(100_000))
    spent.append(time.perf_counter() - start)
    time.sleep(0.005)
print(sorted(spent)[142])
"""
"""Another program's short tasks, and the 95th percentile of their seconds."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=7, help="counted runs of each, after one that is not")
    parser.add_argument("--model", default="tiny")
    parser.add_argument("--file", type=Path, help="write the document there, too")
    arguments = parser.parse_args()
    before = os.getloadavg()[0]
    engine = TorchEngine()
    engine.load(Spec(shape(arguments.model), "bf16", "cpu", 1, _LENGTH))
    results = [
        paired(
            "seconds a token, eight requests side by side / one by one",
            1 / 4,
            arguments.runs,
            tokens(engine, _ROWS),
            tokens(engine, 1),
        ),
        paired(
            "95th percentile of another program's task, beside a conservative / an aggressive replica",
            1.0,
            arguments.runs,
            beside(engine, "conservative"),
            beside(engine, "aggressive"),
        ),
    ]
    document = {
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, other work shares it",
        "load": {"before": round(before, 1), "after": round(os.getloadavg()[0], 1)},
        "torch": str(torch.__version__),
        "threads": torch.get_num_threads(),
        "model": f"{arguments.model} bf16 on the processor, prompt {_PROMPT}, {_NEW} new tokens",
        **_reported(results),
    }
    text = json.dumps(document, indent=1) + "\n"
    sys.stdout.write(text)
    if arguments.file:
        arguments.file.write_text(text)


def tokens(engine: TorchEngine, side_by_side: int) -> Callable[[], float]:
    """Return a run of eight requests that gives its seconds a token."""

    def run() -> float:
        rows = TorchRows(engine, side_by_side, _LENGTH)
        warm_up(rows)
        loop = Loop(rows)
        start = time.perf_counter()
        ends = [request(loop) for _ in range(_ROWS)]
        for end in ends:
            end.wait()
        seconds = time.perf_counter() - start
        loop.close()
        return seconds / (_ROWS * _NEW)

    return run


def beside(engine: TorchEngine, mode: Mode) -> Callable[[], float]:
    """Return a run of another program beside a replica of that mode, which always has requests."""

    def run() -> float:
        with busy(engine, mode):
            output = subprocess.run([sys.executable, "-c", _FOREIGN], check=True, capture_output=True, text=True)
        return float(output.stdout)

    return run


@contextlib.contextmanager
def busy(engine: TorchEngine, mode: Mode) -> Iterator[None]:
    config = PRESETS[mode]
    rows = TorchRows(engine, min(_ROWS, config.max_batch_size), _LENGTH)
    warm_up(rows)
    loop = Loop(rows, Pace(lambda: config))
    over = threading.Event()

    def again() -> None:
        while not over.is_set():
            ends = [request(loop) for _ in range(rows.slots)]
            for end in ends:
                end.wait()

    thread = threading.Thread(target=again)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        loop.close()


def request(loop: Loop) -> threading.Event:
    """Submit a request, and return what is set at its end."""
    ended = threading.Event()

    def deliver(event: Token | ServeError) -> None:
        if isinstance(event, ServeError) or event.finish:
            ended.set()

    loop.submit(list(range(1, _PROMPT + 1)), _NEW, deliver)
    return ended


def _reported(results: list[dict[str, object]]) -> dict[str, object]:
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        report(results)
    return dict(json.loads(output.getvalue()))


if __name__ == "__main__":
    main()
