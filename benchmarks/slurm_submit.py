#!/usr/bin/env python3
"""Submission to a real Slurm through Paddock, beside sbatch alone.

    .venv/bin/python benchmarks/slurm_submit.py [--jobs N]

Prints one JSON document. Needs root and Slurm's programs (Debian's slurm-wlm); its Slurm is one of its own, with 4 GPUs
that are other devices. Each job writes when it starts. Jobs run in turn, ours and sbatch's, each when the one before
has ended; then all at once, from the start of a program to the start of the last job.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

import pytest
from side_by_side import ROOT, paired, report, rounded

from paddock.slurm.programs.nodes import read_nodes
from paddock.slurm.programs.place import find
from paddock.slurm.submit.method import load
from paddock.slurm.submit.resources import options
from paddock.slurm.submit.submission import submit
from tests.support.boxes import box, gpu
from tests.support.slurm import RealSlurm, real_slurm

GOAL = 1.2
OPTIONS = ("--cpus-per-task=1", "--mem=100M", "--gres=gpu:1")
RESOURCES = {"cpus": 1, "min_memory_mb": 100, "gpus": 1}
_POLL = 0.001


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=200, help="counted jobs of each")
    jobs = parser.parse_args().jobs
    try:
        with real_slurm(box(gpu(index, minor=index) for index in range(4))) as slurm:
            os.environ.update(slurm.environ)
            os.environ["PADDOCK_CWD"] = str(slurm.folder)
            report([single(slurm, jobs), together(slurm, jobs), again(slurm, jobs)])
    except pytest.skip.Exception as absent:
        sys.exit(str(absent))


def single(slurm: RealSlurm, jobs: int) -> dict[str, object]:
    """Return the time from submission to start, one job after another. Each submission reads the nodes anew."""
    numbers = count()
    path = slurm.folder / "method.json"
    path.write_text(json.dumps({"name": "small", "resources": RESOURCES}))
    place = find()

    def ours(file: Path) -> None:
        method, script = load(path, ["sh", "-c", f"date +%s.%N > {file}"])
        submit(place, method, script, options(method.resources, read_nodes(place), str(path)))

    def raw(file: Path) -> None:
        sbatch(slurm.folder, f"date +%s.%N > {file}")

    spent: dict[Callable[[Path], None], list[float]] = {ours: [], raw: []}

    def run(way: Callable[[Path], None]) -> Callable[[], float]:
        def latency() -> float:
            file = slurm.folder / f"started-{next(numbers)}"
            began = time.time()
            way(file)
            spent[way].append(time.time() - began)
            started = last([file])
            while slurm.run("squeue", "-h"):
                time.sleep(_POLL)
            return started - began

        return latency

    result = paired("paddock.slurm.submit / sbatch, from submission to start", GOAL, jobs, run(ours), run(raw))
    first, second = (rounded(statistics.median(spent[way])) for way in (ours, raw))
    return {**result, "seconds of the submission alone": {"first": first, "second": second}}


def together(slurm: RealSlurm, jobs: int) -> dict[str, object]:
    """Return the time from the start of the program to the start of the last of its jobs."""
    name = f"slurm.submit --count {jobs} / {jobs} times sbatch, from the first to the start of the last job"
    return paired(name, GOAL, 3, batch(slurm, jobs, program=True), batch(slurm, jobs, program=False))


def again(slurm: RealSlurm, jobs: int) -> dict[str, object]:
    """Return how sbatch compares with itself, which is what the other ratios can be off by."""
    return paired(
        "sbatch / sbatch, as before", GOAL, 3, batch(slurm, jobs, program=False), batch(slurm, jobs, program=False)
    )


def batch(slurm: RealSlurm, jobs: int, *, program: bool) -> Callable[[], float]:
    """Return a run that submits all jobs, and gives the seconds to the start of the last."""
    text = f"date +%s.%N > {slurm.folder}/batch-$SLURM_JOB_ID"
    path = slurm.folder / "batch.json"
    path.write_text(json.dumps({"name": "small", "command": text, "resources": RESOURCES}))
    command = [sys.executable, "-m", "paddock", "slurm.submit", str(path), "--count", str(jobs)]

    def run() -> float:
        began = time.time()
        if program:
            process = subprocess.run(
                command, check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
            )
            ids = [line.split()[1] for line in process.stdout.splitlines() if line.startswith("job ")]
        else:
            ids = [sbatch(slurm.folder, text) for _ in range(jobs)]
        assert len(ids) == jobs
        return last(slurm.folder / f"batch-{id}" for id in ids) - began

    return run


def sbatch(folder: Path, text: str) -> str:
    """Submit a job as a user of Slurm does, and return its id."""
    process = subprocess.run(
        ["sbatch", "--parsable", "--job-name=small", f"--chdir={folder}", f"--output={folder}/small-%j.out", *OPTIONS],
        input=f"#!/bin/sh\n{text}\n", check=True, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    return process.stdout.strip()


def last(files: Iterable[Path]) -> float:
    """Wait until every job has written when it started, and return the latest time."""
    times = []
    for file in files:
        while not (file.exists() and (text := file.read_text()).endswith("\n")):
            time.sleep(_POLL)
        times.append(float(text))
    return max(times)


if __name__ == "__main__":
    main()
