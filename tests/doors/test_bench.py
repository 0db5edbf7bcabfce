"""Benchmarks of this machine's CPU and of a server; their comparison and their modes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.bench.load.scripted_server import ScriptedServer, stream
from tests.support.door import Door, real

_SMALL = ("--model", "tiny", "--dtype", "fp32", "--prompt", "8", "--new", "4", "--runs", "2")


def _result(level: float) -> dict[str, Any]:
    key = {
        "instance": "g5.xlarge", "gpu": "NVIDIA A10G", "driver": "580.95.05", "image": "sha256:1", "ami": "ami-1",
        "model": "llama-3.2-1b", "dtype": "int4", "batch": 1, "prompt": 128, "new": 64, "engine": "torch",
    }  # fmt: skip
    values = [level + number / 10 for number in range(9)]
    speed = {"unit": "tokens/s", "better": "higher", "runs": values, "sessions": values}
    return {"schema": 1, "key": key, "metrics": {"decode_tokens_per_s": speed}, "notes": []}


@pytest.mark.door("bench.compare", "two results in files")
def test_a_slower_build_is_a_regression(inv: Door) -> None:
    for name, level in (("old", 100.0), ("same", 100.3), ("slow", 60.0)):
        (inv.folder / f"{name}.json").write_text(json.dumps(_result(level)))
    same = inv("bench.compare", "old.json", "same.json", "--gate")
    assert same.returncode == 0, same.stdout + same.stderr
    slow = inv("bench.compare", "old.json", "slow.json", "--gate", "--markdown", "pr.md")
    assert slow.returncode == 1, slow.stdout + slow.stderr
    assert "regression" in (inv.folder / "pr.md").read_text()


@pytest.mark.door("bench.load", "an HTTP server that answers as scripted")
def test_a_load_measures_a_server(inv: Door) -> None:
    with ScriptedServer(lambda number, body: stream(4)).running() as server:
        words = ("--requests", "6", "--concurrency", "2", "--prompt", "4", "--new", "4", "--json")
        done = inv("bench.load", server.url, *words)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["complete"], report["requests"]["succeeded"]) == (True, 6)


@pytest.mark.e2e
@pytest.mark.door("bench", "llama.cpp on this machine's processor", interrupted=True)
def test_a_benchmark_runs_to_its_end_and_is_interrupted_at_each_stage(inv: Door) -> None:
    done = inv("bench", *_SMALL, "--threads", "1", "--cache-type", "q8_0", "--json", "result.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((inv.folder / "result.json").read_text())
    assert (result["engine"], result["complete"]) == ("llama.cpp", True)
    assert (result["results"][0]["key"]["threads"], result["results"][0]["key"]["cache"]) == (1, "q8_0")
    for stage in ("loading", "tokens/s"):
        process = inv.start("bench", *_SMALL, "--sessions", "1000", "--json", "result.json")
        assert process.stderr
        assert any(stage in line for line in process.stderr)
        code, out, err = inv.interrupt(process)
        assert (code, "Traceback" in err) == (130, False), out
        result = json.loads((inv.folder / "result.json").read_text())
        assert (result["complete"], bool(result["results"])) == (False, stage == "tokens/s")
        assert out.rstrip().splitlines()[-1].startswith("interrupted: ")


@pytest.mark.e2e
@pytest.mark.door("bench", "torch on this machine's processor")
def test_torch_computes_where_it_is_asked_for(inv: Door) -> None:
    done = inv("bench", *_SMALL, "--engine", "torch", "--json", "result.json")
    assert done.returncode == 0, done.stderr
    result = json.loads((inv.folder / "result.json").read_text())
    assert (result["engine"], result["complete"], len(result["results"])) == ("torch", True, 1)


@pytest.mark.e2e
@pytest.mark.door("bench", "llama.cpp on a system that hides /proc")
def test_a_system_that_tells_nothing_of_processes_is_measured(inv: Door) -> None:
    hidden = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
    if os.geteuid() or subprocess.run([real(hidden[0]), *hidden[1:], "true"], capture_output=True).returncode:
        pytest.skip("only root may hide /proc")
    words = inv.command(("bench", *_SMALL, "--json", "result.json"))
    done = subprocess.run([*hidden, *words], cwd=inv.folder, env=inv.environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (result,) = json.loads((inv.folder / "result.json").read_text())["results"]
    assert result["memory_bytes"] > 10**6


@pytest.mark.e2e
@pytest.mark.door("bench", "llama.cpp on this machine's processor")
def test_the_modes_are_measured(inv: Door) -> None:
    words = ("--model", "tiny", "--dtype", "fp32", "--batch", "1", "--runs", "1", "--new", "2")
    done = inv("bench", "--mode", "conservative,aggressive", *words, "--html", "modes.html")
    assert done.returncode == 0, done.stderr
    assert "conservative" in done.stdout
    assert Path(inv.folder / "modes.html").stat().st_size
