"""A wrong value is refused before gigabytes are fetched: by the program, in an environment of `base` alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = "torch, ray, llama_cpp, pulumi, boto3, jinja2, psutil, transformers, prometheus_client, yaml.cyaml"
BLOCK = f"""
import sys
for name in {HEAVY.split(", ")!r}:
    sys.modules[name] = None
import paddock.cli
sys.exit(paddock.cli.main(["paddock", *sys.argv[1:]]))
"""


def checked(root: Path, home: Path, line: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-c", BLOCK, *line.split()],
        cwd=root,
        env={**os.environ, "HOME": str(home), "PADDOCK_PARSE_ONLY": "1", "PADDOCK_CWD": str(home)},
        capture_output=True,
        text=True,
    )


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("serve.load nope", "MODEL: "),
        ("serve.load tiny --mode nope", "--mode"),
        ("serve.nodes", "serve.up"),
        ("serve.join nowhere", "HOST:PORT"),
        ("smoke --gpus 9", "--gpus"),
        ("smoke --tier 9", "--tier"),
        ("smoke --soak 0s", "--soak"),
        ("bench --engine nope", "--engine"),
        ("bench --dtype bf17", "--dtype"),
        ("bench --model nope", "--model"),
        ("bench.modes --model nope", "--model"),
        ("bench --gpu 1", "No idea what"),
    ],
)
def test_a_wrong_value_is_refused_with_the_small_set(line: str, message: str, root: Path, tmp_path: Path) -> None:
    completed = checked(root, tmp_path, line)
    assert completed.returncode in (1, 2)
    assert message in completed.stderr
    assert "Traceback" not in completed.stderr


@pytest.mark.parametrize(
    "line", ["gpu.list", "smoke --cpu", "bench", "bench.modes", "serve.up", "serve.down", "wheel", "test --e2e"]
)
def test_good_values_begin_no_work(line: str, root: Path, tmp_path: Path) -> None:
    completed = checked(root, tmp_path, line)
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
