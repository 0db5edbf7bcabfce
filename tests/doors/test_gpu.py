"""GPUs of a machine whose driver is made up: what `tests/gpu/test_command.py` does not call."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.support.door import Door, Here
from tests.support.gpu_machines import machines
from tests.support.waiting import until

Environ = dict[str, str]


@pytest.fixture
def eight(nvml_library: Path, tmp_path: Path) -> Environ:
    """Return the variables of a machine of 8 H100s, of which one is lost."""
    return {
        "LD_LIBRARY_PATH": str(nvml_library), "FAKE_NVML_COUNT": "8", "FAKE_NVML_LOST": "2",
        "PADDOCK_GPU_LEASES": str(tmp_path / "leases"),
    }  # fmt: skip


@pytest.mark.door("gpu.list", "an inventory of AMD's driver, as its sysfs tells it")
def test_no_output_says_none(inv: Door, here: Here, tmp_path: Path) -> None:
    for name, machine in machines(tmp_path).items():
        (inv.folder / f"{name}.json").write_text(json.dumps({"schema": 1, **asdict(machine)}))
    shown = inv("gpu.list", "--cuda", "--from", "2-mi300x.json").stdout
    for words in (
        "list",
        "list --details",
        "list --memory",
        "list --cuda",
        "list --processes",
        "list --topology",
        "health",
    ):
        for name in ("2-mi300x", "mig"):
            _, out, errors = here(*f"gpu.{words} --from {name}.json".split())
            assert out, (words, errors)
            assert not re.search(r"\bNone\b", out), words
            assert (words, name) != ("list --cuda", "2-mi300x") or out == shown


@pytest.mark.door("gpu.list", "a terminal that knows Latin 1 alone")
@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_a_terminal_without_lines_gets_plainer_ones(inv: Door, eight: Environ, encoding: str) -> None:
    shown = inv("gpu.list", "--topology", env={**eight, "PYTHONIOENCODING": encoding})
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "  +- " in shown.stdout


@pytest.mark.door("gpu.monitor", "a made-up driver library, an HTTP client", interrupted=True)
def test_metrics_are_served_until_ctrl_c(inv: Door, eight: Environ) -> None:
    process = inv.start("gpu.monitor", "--export", "--port", "0", env=eight)
    assert process.stderr
    line = process.stderr.readline()
    served = re.search(r"metrics at (\S+);", line)
    assert served, line
    with urllib.request.urlopen(served[1], timeout=30) as answer:
        assert "DCGM_FI_DEV_GPU_TEMP{" in answer.read().decode()
    code, out, err = inv.interrupt(process)
    assert (code, out, err) == (0, "", "")


@pytest.mark.door("gpu.run", "a made-up driver library, a program that is interrupted", interrupted=True)
def test_ctrl_c_ends_the_program_and_gives_its_gpus_back(inv: Door, eight: Environ) -> None:
    program = "import time; print('here', flush=True); time.sleep(600)"
    process = inv.start("gpu.run", "--gpus", "2", "--", sys.executable, "-c", program, env=eight)
    assert process.stdout
    assert process.stdout.readline() == "here\n"
    assert len(json.loads(inv("gpu.list", "--leases", "--json", env=eight).stdout)["leases"]) == 1
    code, _, err = inv.interrupt(process)
    assert code == 130, err
    assert "paddock" not in err
    assert json.loads(inv("gpu.list", "--leases", "--json", env=eight).stdout)["leases"] == []


@pytest.mark.door("gpu.allocate", "a made-up driver library whose GPUs others have", interrupted=True)
def test_ctrl_c_ends_the_wait_for_gpus(inv: Door, eight: Environ) -> None:
    assert inv("gpu.allocate", "--gpus", "7", "--ttl", "1h", env=eight).returncode == 0
    process = inv.start("gpu.allocate", "--gpus", "1", "--wait", "10m", "--ttl", "1h", env=eight)
    until(lambda: json.loads(inv("gpu.list", "--leases", "--json", env=eight).stdout)["waiting"])
    code, out, _ = inv.interrupt(process)
    assert (code, out) == (130, "")
    assert json.loads(inv("gpu.list", "--leases", "--json", env=eight).stdout)["waiting"] == []


@pytest.mark.door("gpu.workflow", "a made-up driver library, real programs", interrupted=True)
def test_a_workflow_is_interrupted_and_goes_on(inv: Door, eight: Environ) -> None:
    began, go = inv.folder / "began", inv.folder / "go"
    code = f"import os, time; open({str(began)!r}, 'w')\nwhile not os.path.exists({str(go)!r}): time.sleep(0.05)"
    argv = [sys.executable, "-c", code]
    steps = [
        {"id": "lease", "type": "gpu", "action": "allocate", "parameters": {"count": 1, "ttl": 600}},
        {"id": "work", "type": "command", "depends_on": ["lease"], "parameters": {"argv": argv}},
    ]  # fmt: skip
    (inv.folder / "flow.json").write_text(json.dumps({"id": "train", "steps": steps}))
    words = ("gpu.workflow", "flow.json", "--journal", "journal.jsonl")
    planned = inv(*words, "--dry-run", env=eight)
    assert "1. lease" in planned.stdout, planned.stderr
    process = inv.start(*words, env=eight)
    until(began.exists)
    ended, out, _ = inv.interrupt(process)
    assert ended == 130
    assert re.search(r"^interrupted +work", out, re.MULTILINE), out
    go.touch()
    again = inv(*words, "--json", env=eight)
    assert again.returncode == 0, again.stderr
    assert [step["outcome"] for step in json.loads(again.stdout)["steps"]] == ["reused", "succeeded"]


@pytest.mark.door("gpu.ml-env", "a made-up driver library; Docker is not started")
def test_an_environment_is_leased_and_its_commands_are_printed(inv: Door, eight: Environ) -> None:
    made = inv("gpu.ml-env", "--framework", "pytorch", "--gpus", "2", "--ttl", "10m", "--json", env=eight)
    assert made.returncode == 0, made.stderr
    document = json.loads(made.stdout)
    assert len(document["gpus"]) == 2
    assert document["commands"][0][:2] == ["docker", "run"]


@pytest.mark.door("gpu.reset", "a made-up driver library that keeps its settings")
def test_a_soft_reset_is_shown_and_with_yes_done(inv: Door, eight: Environ, tmp_path: Path) -> None:
    kept = tmp_path / "settings"
    kept.mkdir()
    env = {**eight, "FAKE_NVML_STATE": str(kept)}
    shown = inv("gpu.reset", "0", "--soft", env=env)
    assert shown.returncode == 0, shown.stderr
    assert "nothing was done; --yes does it" in shown.stdout
    assert list(kept.iterdir()) == []
    done = inv("gpu.reset", "0", "--soft", "--yes", env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done: nvmlDeviceResetGpuLockedClocks" in done.stdout
    assert (kept / "clock-0").read_text() == "0"


@pytest.mark.door("gpu.mcp", "an agent that speaks over standard input", interrupted=True)
def test_an_agent_is_answered_until_its_input_ends_or_ctrl_c(inv: Door, eight: Environ) -> None:
    hello = {
        "jsonrpc": "2.0", "id": 1, "method": "initialize",
        "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "a", "version": "1"}},
    }  # fmt: skip
    answered = inv("gpu.mcp", env=eight, answers=json.dumps(hello) + "\n")
    assert answered.returncode == 0, answered.stderr
    assert json.loads(answered.stdout.splitlines()[0])["id"] == 1
    pipe, end = os.pipe()
    streams = {"stdin": pipe, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    command = [sys.executable, str(inv.root / "inv"), "gpu.mcp"]
    with subprocess.Popen(command, env=inv.environment(eight), cwd=inv.folder, text=True, **streams) as process:
        os.write(end, json.dumps(hello).encode() + b"\n")
        assert process.stdout
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        os.close(end)
    assert (process.returncode, out) == (130, "")
    assert "Traceback" not in err
