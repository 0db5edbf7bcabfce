#!/usr/bin/env python3
"""The gate of `bench.compare` on real builds: the same build again, and one that is really slowed, run by run in turn.

    .venv/bin/python benchmarks/gate.py > benchmarks/results/gate.json

For an idle machine with two processors, with the lock `bench`; takes about 50 minutes. Three copies of this checkout
are builds: OLD, the SAME again, and SLOW, whose decode step works on for a part of the time that it took. That disturbs
caches too, so the document has what was measured.

A window is `paddock bench --in-turn` of two builds at once, with as many sessions as the gate needs, each a process of
its own. Windows share no session, so each of OLD and SAME is one repeat of the same build. `paddock bench.compare
--gate` judges it in both directions, SAME beside OLD and OLD beside SAME, and the repeat passes when both do. In a
window of OLD and SLOW it judges SLOW.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from side_by_side import ROOT, free_port, rounded

OLD, SAME, SLOW = BUILDS = ("old", "same", "slow")
THREADS = "1"
"""Threads of torch: two that share a processor with other work wait for each other, and the noise is theirs."""
BENCH = ("bench", "--model", "tiny", "--dtype", "bf16", "--prompt", "16", "--new", "17", "--runs", "60")

JUDGED = "decode_tokens_per_s"

SLOWED = """

def _slowed(decode):
    work = torch.ones(256)

    def step(engine, token):
        begin = time.perf_counter()
        result = decode(engine, token)
        end = time.perf_counter()
        while time.perf_counter() - end < {part} * (end - begin):
            work.sum()
        return result

    return step


TorchEngine.decode = _slowed(TorchEngine.decode)
"""
"""What makes the copy of the engine slow: work until the part of the step's own time has gone by."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=20, help="windows of the same build, each one repeat")
    parser.add_argument("--slow-windows", type=int, default=3, help="windows with the slow build")
    parser.add_argument("--sessions", type=int, default=7, help="of each build in a window; 7 is what the gate needs")
    parser.add_argument("--part", type=float, default=0.11, help="part of a step's time that the slow build works on")
    parser.add_argument("--min-change", type=float, default=0.03, help="of bench.compare")
    arguments = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    others = [SAME] * arguments.windows
    for number in range(arguments.slow_windows):  # spread over the time
        others.insert((number + 1) * len(others) // (arguments.slow_windows + 1), SLOW)
    gates: dict[str, list[dict[str, Any]]] = {SAME: [], SLOW: []}
    with tempfile.TemporaryDirectory() as folder:
        builds = {name: build(Path(folder) / name, arguments.part if name == SLOW else 0) for name in BUILDS}
        for number, other in enumerate(others):
            window = measure(builds, (OLD, other), arguments.sessions)
            orders = [(OLD, other), (other, OLD)] if other == SAME else [(OLD, other)]
            for old, new in orders:
                gates[other].append({"window": number, **gate(window[old], window[new], arguments.min_change)})
            exits = [gate["exit"] for gate in gates[other][-len(orders) :]]
            minutes = (time.monotonic() - began) / 60
            print(f"window {number + 1} of {len(others)}, {other}: {exits}, {minutes:.1f} min", file=sys.stderr)
    document = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.machine()}, {os.cpu_count()} processors, threads of a session: {THREADS}",
        "load": {"before": rounded(load), "after": rounded(os.getloadavg()[0])},
        "minutes": rounded((time.monotonic() - began) / 60),
        "command": ["paddock", *BENCH, "--sessions", str(arguments.sessions), "--in-turn", "PORT"],
        **vars(arguments),
        "same_build": summary(gates[SAME], passes=0),
        "slow_build": summary(gates[SLOW], passes=1),
        "comparisons": {"same_build": gates[SAME], "slow_build": gates[SLOW]},
    }
    print(json.dumps(document, indent=1))


def build(folder: Path, part: float) -> Path:
    """Copy the package, with a slower decode step if asked to, and return the folder."""
    shutil.copytree(ROOT / "paddock", folder / "paddock", ignore=shutil.ignore_patterns("__pycache__"))
    if part:
        with (folder / "paddock/serve/own/torch_engine.py").open("a", encoding="utf-8") as file:
            file.write(SLOWED.format(part=part))
    return folder


def measure(builds: dict[str, Path], names: tuple[str, str], sessions: int) -> dict[str, Path]:
    """Measure two builds at once, in turn, and return their results' files."""
    flags = ("--sessions", str(sessions), "--in-turn", str(free_port()))
    files = {name: builds[name] / "result.json" for name in names}
    running = [program(builds[name], *BENCH, *flags, "--json", str(file)) for name, file in files.items()]
    outputs = [process.communicate()[0] for process in running]
    for process, output in zip(running, outputs, strict=True):
        if process.returncode:
            raise SystemExit(output)
    return files


def gate(old: Path, new: Path, min_change: float) -> dict[str, Any]:
    """Return the exit code of the gate, and each metric's change and probability."""
    document = new.with_name("comparison.json")
    flags = ("--gate", "--min-change", str(min_change), "--json", str(document))
    process = program(ROOT, "bench.compare", str(old), str(new), *flags)
    process.communicate()
    rows = json.loads(document.read_text())["rows"]
    if not all(row["paired"] for row in rows):
        raise SystemExit("the sessions are not in turn")
    metrics = {
        row["metric"]: {"change": rounded(row["change"]), "p": rounded(row["probability"]), "verdict": row["verdict"]}
        for row in rows
    }
    sides = {side: json.loads(path.read_text())["results"][0]["metrics"] for side, path in (("old", old), ("new", new))}
    medians = {side: [rounded(value) for value in values[JUDGED]["sessions"]] for side, values in sides.items()}
    return {"exit": process.returncode, "metrics": metrics, JUDGED: medians}


def summary(gates: list[dict[str, Any]], passes: int) -> dict[str, Any]:
    """Return how many windows ended as they should, in each direction that was judged."""
    windows: dict[int, bool] = {}
    for gate in gates:
        windows[gate["window"]] = windows.get(gate["window"], True) and gate["exit"] == passes
    changes = [gate["metrics"][JUDGED]["change"] for gate in gates]
    ends = [min(changes), max(changes)] if changes else []
    return {
        "windows": len(windows),
        "right": sum(windows.values()),
        "comparisons": len(gates),
        f"{JUDGED}_change": ends,
    }


def program(build: Path, *words: str) -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": str(build), "OMP_NUM_THREADS": THREADS}
    command = [sys.executable, "-m", "paddock", *words]
    return subprocess.Popen(
        command, cwd=build, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


if __name__ == "__main__":
    main()
