"""Run the unit tests of rooms on their mutants, each in a copy of the project, as many at once as there are cores."""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.mutations.mutants import ROOMS, Mutant, chosen

ROOT = Path(__file__).resolve().parents[2]
MOST_SECONDS = 900
"""Seconds after which the tests of a mutant are ended: it hangs them, which is seen."""
SCRATCH = tempfile.TemporaryDirectory()
"""Folder of the copies."""
RUNNING: set[subprocess.Popen[str]] = set()
"""Runs of tests, which Ctrl-C ends: each is in a session of its own, so that all it started ends with it."""


def copied(folder: Path) -> Path:
    """Copy what git knows of the project, and what it does not ignore."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    for name in os.fsdecode(listed.stdout).split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def verdict(root: Path, room: str, mutant: Mutant | None) -> dict[str, Any]:
    """Run the room's tests until the first fails, those that are called like the file first."""
    words = set(Path(mutant.file).with_suffix("").parts) if mutant else set()
    files = sorted((root / "tests" / room).rglob("test_*.py"))
    files.sort(
        key=lambda path: -len(words & set(re.findall("[a-z0-9]+", path.relative_to(root).with_suffix("").as_posix())))
    )
    command = [sys.executable, "-B", "-m", "pytest", "-x", "-p", "no:cacheprovider", "-m", "not e2e and not explore"]
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")}
    start = time.monotonic()
    with tempfile.TemporaryDirectory(dir=SCRATCH.name) as scratch:
        process = subprocess.Popen(
            [*command, f"--basetemp={scratch}/tests", *(str(path.relative_to(root)) for path in files)],
            cwd=root, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        RUNNING.add(process)
        try:
            output, _ = process.communicate(timeout=MOST_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            output = f"FAILED hung for {MOST_SECONDS} s"
        finally:
            RUNNING.discard(process)
    failure = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", output, re.M)
    if process.returncode == 0:
        failure = None
    elif not failure:
        raise SystemExit(f"{room}: the tests could not run:\n{output[-3000:]}")
    return {
        "caught": failure is not None,
        "by": failure[1] if failure else None,
        "seconds": round(time.monotonic() - start, 1),
    }


def main() -> int:
    """Print a line for each mutant. Exit status 1: some survived."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="which mutants; the same seed gives the same ones (1)")
    parser.add_argument("--each", type=int, default=8, help="how many in each room (8)")
    parser.add_argument("--room", action="append", choices=ROOMS, help="only this room; may be given again")
    parser.add_argument("--list", action="store_true", help="say which mutants, and run nothing")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many at once (one a core)")
    parser.add_argument("--json", type=Path, help="write what was found to this file too")
    options = parser.parse_args()
    rooms = options.room or list(ROOMS)
    mutants = [mutant for room in rooms for mutant in chosen(ROOT, room, options.seed, options.each)]
    if options.list:
        for mutant in mutants:
            print(shown(mutant))
        return 0
    with SCRATCH as folder, concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(options.jobs):
            copies.put(copied(Path(folder) / str(number)))

        def run(room: str, mutant: Mutant | None) -> dict[str, Any]:
            root = copies.get()
            path = root / (mutant.file if mutant else "README.md")
            source = path.read_bytes()
            try:
                if mutant:
                    path.write_bytes(mutant.applied(source))
                result = verdict(root, room, mutant)
            finally:
                path.write_bytes(source)
                copies.put(root)
            if mutant:
                print(
                    f"{'caught  ' if result['caught'] else 'SURVIVED'} {shown(mutant)}  [{result['by'] or ''}]",
                    flush=True,
                )
            return result

        for room, whole in zip(rooms, pool.map(lambda room: run(room, None), rooms), strict=True):
            if whole["caught"]:
                raise SystemExit(f"{room}: {whole['by']} fails without any mutant")
            print(f"{room}: its tests take {whole['seconds']} s on one core", flush=True)
        results = list(pool.map(lambda mutant: run(mutant.room, mutant), mutants))
    survived = [mutant for mutant, result in zip(mutants, results, strict=True) if not result["caught"]]
    print(f"{len(mutants) - len(survived)} of {len(mutants)} caught (seed {options.seed})")
    if options.json:
        rows = [
            {"room": m.room, "file": m.file, "line": m.line, "rule": m.rule, "before": m.before, "after": m.after, **r}
            for m, r in zip(mutants, results, strict=True)
        ]
        options.json.write_text(json.dumps({"seed": options.seed, "mutants": rows}, indent=2) + "\n", encoding="utf-8")
    return 1 if survived else 0


def shown(mutant: Mutant) -> str:
    """Return the mutant in one line."""
    return f"{mutant.file}:{mutant.line}: {mutant.rule}: {_short(mutant.before)} -> {_short(mutant.after)}"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 100 else f"{line[:97]}..."


def interrupted(_number: int, _frame: object) -> None:
    """End the runs; the copies go with this process."""
    for process in list(RUNNING):
        os.killpg(process.pid, signal.SIGKILL)
    shutil.rmtree(SCRATCH.name, ignore_errors=True)
    os._exit(130)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, interrupted)
    sys.exit(main())
