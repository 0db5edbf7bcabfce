"""A wrong value is refused before gigabytes are fetched: by the program, in an environment of `base` alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

HEAVY = "torch, ray, xllamacpp, numpy, pulumi, boto3, jinja2, psutil, transformers, prometheus_client, yaml.cyaml"
BLOCK = f"""
import contextlib, io, json, sys
for name in {HEAVY.split(", ")!r}:
    sys.modules[name] = None
import paddock.cli
for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = paddock.cli.main(["paddock", *line.split()])
        except SystemExit as end:
            code = end.code
    print(json.dumps([line, code, out.getvalue(), err.getvalue()]))
"""
WRONG = {
    "serve.load nope": "MODEL: ",
    "serve.load tiny --mode nope": "--mode",
    "serve.nodes": "serve.up",
    "serve.join nowhere": "HOST:PORT",
    "smoke --gpus 9": "--gpus",
    "smoke --tier 9": "--tier",
    "smoke --soak 0s": "--soak",
    "bench --engine nope": "--engine",
    "bench --dtype bf17": "--dtype",
    "bench --model nope": "--model",
    "bench.modes --model nope": "--model",
    "bench --gpu 1": "No idea what",
}
GOOD = ("gpu.list", "smoke --cpu", "bench", "bench.modes", "serve.up", "serve.down", "wheel", "test --e2e")


def test_values_are_judged_with_the_small_set_and_begin_no_work(root: Path, tmp_path: Path) -> None:
    completed = subprocess.run(
        [sys.executable, "-P", "-c", BLOCK, *WRONG, *GOOD],
        cwd=root,
        env={**os.environ, "HOME": str(tmp_path), "PADDOCK_PARSE_ONLY": "1", "PADDOCK_CWD": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    answers = {line: rest for line, *rest in map(json.loads, completed.stdout.splitlines())}
    assert list(answers) == [*WRONG, *GOOD], completed.stderr
    for line, message in WRONG.items():
        code, _, errors = answers[line]
        assert code in (1, 2), line
        assert message in errors, line
    assert {line: answers[line] for line in GOOD} == {line: [0, "", ""] for line in GOOD}
    assert list(tmp_path.iterdir()) == []
