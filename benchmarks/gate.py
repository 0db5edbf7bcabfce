#!/usr/bin/env python3
"""The gate of `bench.compare` on real builds: the same build again, and one that is really slower, run by run in turn.

    .venv/bin/python benchmarks/gate.py > benchmarks/results/gate.json

For an idle machine with two processors, with the lock `bench`. Three copies of this checkout are builds: OLD, the SAME
again, and SLOW, whose llama.cpp computes a wider model than it was asked for. The document has what that came to.

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
"""Of llama.cpp: two that share a processor with other work wait for each other, and the noise is theirs."""
BENCH = ("bench", "--model", "tiny", "--dtype", "bf16", "--prompt", "16", "--new", "17", "--runs", "60",
         "--threads", THREADS)  # fmt: skip

JUDGED = "decode_tokens_per_s"

SLOWED = """

def _wider(load):
    def wide(engine, spec):
        return load(engine, dataclasses.replace(spec, shape=dataclasses.replace(spec.shape, intermediate={wide})))

    return wide


import dataclasses
LlamaEngine.load = _wider(LlamaEngine.load)
"""
"""What makes the copy of the engine slow: more weights in each layer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", type=int, default=20, help="windows of the same build, each one repeat")
    parser.add_argument("--slow-windows", type=int, default=3, help="windows with the slow build")
    parser.add_argument("--sessions", type=int, default=7, help="of each build in a window; 7 is what the gate needs")
    parser.add_argument("--wide", type=int, default=1152, help="intermediate size in the slow build; tiny has 768")
    parser.add_argument("--min-change", type=float, default=0.03, help="of bench.compare")
    arguments = parser.parse_args()
    began, load = time.monotonic(), os.getloadavg()[0]
    others = [SAME] * arguments.windows
    for number in range(arguments.slow_windows):  # spread over the time
        others.insert((number + 1) * len(others) // (arguments.slow_windows + 1), SLOW)
    gates: dict[str, list[dict[str, Any]]] = {SAME: [], SLOW: []}
    with tempfile.TemporaryDirectory() as folder:
        builds = {name: build(Path(folder) / name, arguments.wide if name == SLOW else 0) for name in BUILDS}
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
        "machine": f"{platform.machine()}, {os.cpu_count()} processors",
        "load": {"before": rounded(load), "after": rounded(os.getloadavg()[0])},
        "minutes": rounded((time.monotonic() - began) / 60),
        "command": ["paddock", *BENCH, "--sessions", str(arguments.sessions), "--in-turn", "PORT"],
        **vars(arguments),
        "same_build": summary(gates[SAME], passes=0),
        "slow_build": summary(gates[SLOW], passes=1),
        "comparisons": {"same_build": gates[SAME], "slow_build": gates[SLOW]},
    }
    print(json.dumps(document, indent=1))


def build(folder: Path, wide: int) -> Path:
    """Copy the package, with a wider model if asked to, and return the folder."""
    shutil.copytree(ROOT / "paddock", folder / "paddock", ignore=shutil.ignore_patterns("__pycache__"))
    if wide:
        with (folder / "paddock/bench/engines/llama.py").open("a", encoding="utf-8") as file:
            file.write(SLOWED.format(wide=wide))
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
