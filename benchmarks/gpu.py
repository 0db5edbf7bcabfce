#!/usr/bin/env python3
"""Reading GPUs beside gpustat and nvitop, which are installed from locks/oracles/gpu_peers.txt on the first run.

    .venv/bin/python benchmarks/gpu.py [--runs N]

Prints one JSON document. No GPU is needed: every program reads the same eight made-up ones (tests/support/libnvml.c,
compiled here), which answer at once, so what is timed is the programs' own work. Ours and its peer run in turn, each in
an interpreter of its own, warm, with what it keeps between samples. Calls to the driver are counted on the driver in
tests/support/nvml.py. Only nvidia-smi, where there is one, reads the machine's real driver, and so do we beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from side_by_side import ROOT, paired, process, report, rounded

from paddock import house

GPUS = 8
METRICS = (
    *("utilisation", "memory activity", "memory total", "memory used", "memory free", "temperature", "power"),
    *("power limit", "SM clock", "memory clock", "highest SM clock", "uncorrected ECC errors"),
)
"""Compared before they are timed. Ours keeps the limit and the highest clock, and reads more besides."""

# Each makes `take`, which reads all GPUs, and `values`, which makes the twelve metrics of what it returns.
PADDOCK = """
from paddock.gpu import inventory as detect
sampler = detect.sampler()
take = sampler.read
def values(found):
    return [[g.utilisation.gpu, g.utilisation.memory, g.memory.total, g.memory.used, g.memory.free, g.temperature.gpu,
             g.power.draw, g.power.limit, g.clocks.sm, g.clocks.memory, g.clocks.max_sm, g.ecc.uncorrected]
            for g in found.gpus]
"""
NVITOP = """
from nvitop import Device
devices = Device.all()
def take():
    return [device.as_snapshot() for device in devices]
"""
NVITOP_TWELVE = """
from nvitop import Device
devices = Device.all()
def of(g):
    with g.oneshot():
        return [g.gpu_utilization(), g.memory_utilization(), g.memory_total(), g.memory_used(), g.memory_free(),
                g.temperature(), g.power_usage(), g.power_limit(), g.sm_clock(), g.memory_clock(), g.max_sm_clock(),
                g.total_volatile_uncorrected_ecc_errors()]
def take():
    return [of(device) for device in devices]
def values(found):
    return [[*row[:2], *(size >> 20 for size in row[2:5]), row[5], row[6] / 1000, row[7] / 1000, *row[8:]]
            for row in found]
"""
GPUSTAT = """
from gpustat import GPUStatCollection
take = GPUStatCollection.new_query
"""

# Answers `perf_counter 300` on its input with the median seconds of so many samples by that clock.
WARM = """
import json, statistics, sys, time
{code}
print(json.dumps(values(take()) if "values" in globals() else (take(), take()) and None), flush=True)
for line in sys.stdin:
    name, count = line.split()
    clock, seconds = getattr(time, name), []
    for _ in range(int(count)):
        began = clock()
        take()
        seconds.append(clock() - began)
    print(statistics.median(seconds), flush=True)
"""
COUNT = """
from tests.support.nvml import PROFILES, installed
with installed(PROFILES["8xh100"]()) as driver:
{code}
    take(), take(), driver.calls.clear(), take()
    print(driver.calls.total())
"""
MONITOR = """
import json, sys, time
from paddock.gpu.monitoring.sampling import METRICS, monitor, record
metrics = [metric for metric in METRICS.values() if not metric.slow]
began = None
for sample in monitor(1.0, float(sys.argv[1]), [metric.name for metric in metrics]):
    json.dumps(record(sample, metrics))
    began = began or (time.process_time(), time.monotonic())
print((time.process_time() - began[0]) / (time.monotonic() - began[1]))
"""
LEASES = """
import json, os, statistics, sys, time
from pathlib import Path
from paddock.gpu import inventory as detect
from paddock.gpu.leases.manager import Leases
from paddock.gpu.host.processes import this_host
from paddock.gpu.leases.request import Request
found, leases, owner = detect.inventory(processes=True), Leases(Path(sys.argv[1])), this_host().owner(os.getpid())
seconds = []
for _ in range(int(sys.argv[2])):
    began = time.perf_counter()
    leases.release(leases.take(Request(), lambda: found, owners=[owner]).lease.id)
    seconds.append(time.perf_counter() - began)
print(json.dumps([statistics.median(seconds), statistics.fmean(seconds)]))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=11, help="counted runs of each pair, after one that is not")
    parser.add_argument("--seconds", type=int, default=20, help="how long monitoring is watched")
    parser.add_argument("--cycles", type=int, default=10_000, help="how many leases are taken and given back")
    options = parser.parse_args()
    peers = house.programs("gpu_peers")
    with tempfile.TemporaryDirectory() as folder:
        env = made_up(Path(folder))
        results = [
            *samples(peers / "python", env, options.runs),
            calls(peers / "python", env),
            *listing(peers / "gpustat", env, options.runs),
            monitoring(env, options.seconds),
            leasing(env, options.cycles),
        ]
    report(results)


def made_up(folder: Path) -> dict[str, str]:
    """Return the environment of a program that shall see the made-up GPUs, and may keep its compiled modules."""
    from tests.support.nvml import library

    library(folder)
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**inherited, "PYTHONPATH": str(ROOT), "LD_LIBRARY_PATH": str(folder), "FAKE_NVML_COUNT": str(GPUS)}


class Warm:
    """A program that takes samples when it is told to, `count` a run."""

    def __init__(self, stack: ExitStack, python: Path, code: str, env: Mapping[str, str], count: int) -> None:
        command = [str(python), "-c", WARM.format(code=code)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self._process = stack.enter_context(subprocess.Popen(command, cwd=ROOT, env=env, **pipes))
        self._count = count
        self.values = json.loads(self._read_line())

    def works(self) -> float:
        """Seconds of the processor a sample, in which no other program on the machine counts."""
        return self._median("process_time")

    def waits(self) -> float:
        """Seconds a sample."""
        return self._median("perf_counter")

    def _median(self, clock: str) -> float:
        assert self._process.stdin
        self._process.stdin.write(f"{clock} {self._count}\n")
        self._process.stdin.flush()
        return float(self._read_line())

    def _read_line(self) -> str:
        assert self._process.stdout
        line: str = self._process.stdout.readline()
        return line


def samples(peers: Path, env: Mapping[str, str], runs: int) -> list[dict[str, object]]:
    """Time of one more reading of all GPUs."""
    with ExitStack() as stack:
        paddock = Warm(stack, Path(sys.executable), PADDOCK, env, 300)
        nvitop, twelve = (Warm(stack, peers, code, env, 50) for code in (NVITOP, NVITOP_TWELVE))
        gpustat = Warm(stack, peers, GPUSTAT, env, 1)
        if paddock.values != twelve.values:
            raise SystemExit(f"ours and nvitop read different values:\n{paddock.values}\n{twelve.values}")
        alone = paired("a sample / nvitop reading twelve metrics alone", 0.1, runs, paddock.works, twelve.works)
        return [
            paired("a sample / nvitop's as_snapshot", 0.1, runs, paddock.works, nvitop.works),
            alone | {"metrics": METRICS},
            # Its query sleeps a tenth of a second a GPU, and whoever calls it waits.
            paired("a sample / gpustat's query", 0.001, runs, paddock.waits, gpustat.waits),
        ]


def calls(peers: Path, env: Mapping[str, str]) -> dict[str, object]:
    def counted(python: Path | str, code: str) -> int:
        script = COUNT.format(code="".join(f"    {line}\n" for line in code.splitlines()))
        return int(output([python, "-c", script], env))

    paddock = counted(sys.executable, PADDOCK)
    theirs = {"nvitop's as_snapshot": counted(peers, NVITOP), "nvitop, twelve metrics": counted(peers, NVITOP_TWELVE)}
    theirs["gpustat"] = counted(peers, GPUSTAT)
    return {
        "name": "calls to the driver a sample / the fewest of a peer",
        "ratio": rounded(paddock / min(theirs.values())),
        "goal": "<= 1",
        "met": paddock <= min(theirs.values()),
        "calls": {"ours": paddock, **theirs},
    }


def listing(gpustat: Path, env: Mapping[str, str], runs: int) -> list[dict[str, object]]:
    """From the start of the program to its end."""
    paddock = ("-P", "-m", "paddock", "gpu.list")
    results = [
        paired(
            "paddock gpu.list / gpustat", 1.0, runs, process(*paddock, env=env), process(program=str(gpustat), env=env)
        )
    ]
    if smi := shutil.which("nvidia-smi"):
        results.append(paired("paddock gpu.list / nvidia-smi", 1.0, runs, process(*paddock), process(program=smi)))
    else:
        results.append({"name": "paddock gpu.list / nvidia-smi", "skipped": "there is no nvidia-smi here"})
    return results


def monitoring(env: Mapping[str, str], seconds: int) -> dict[str, object]:
    share = float(output([sys.executable, "-c", MONITOR, str(seconds)], env))
    return {
        "name": "processor time of monitoring every second, as a share of a core",
        "ratio": rounded(share),
        "goal": "<= 0.005",
        "met": share <= 0.005,
    }


def leasing(env: Mapping[str, str], cycles: int) -> dict[str, object]:
    """In memory where that can be had, so that no disk is timed."""
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        median, mean = json.loads(output([sys.executable, "-c", LEASES, folder, str(cycles)], env))
    return {
        "name": "a lease of one GPU of eight, taken and given back",
        "cycles": cycles,
        "seconds": {"median": rounded(median), "mean": rounded(mean)},
    }


def output(command: list[Any], env: Mapping[str, str]) -> str:
    return subprocess.run(command, cwd=ROOT, env=env, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    main()
