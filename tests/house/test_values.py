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
import paddock.tasks.program
for line in sys.argv[1:]:
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = paddock.tasks.program.main(["paddock", *line.split()])
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
    "bench --gpu 1": "bench has no flag --gpu",
    "serve.check destop": "desktop",
}
GOOD = (
    *("gpu.list", "smoke --cpu", "bench", "serve.check desktop", "serve.up", "serve.down", "images.build wheel"),
    "test --e2e",
)


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


HELP = """
import contextlib, importlib.abc, io, json, re, sys
from importlib.metadata import packages_distributions
from pathlib import Path
named = lambda name: re.sub(r"[-_.]+", "-", name).lower()
base = {named(line.split("==")[0]) for line in Path("locks/base.txt").read_text().splitlines() if line[:1].isalnum()}
owners = {top: set(map(named, names)) for top, names in packages_distributions().items()}
class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        top = name.partition(".")[0]
        if top in owners and top not in ("paddock", "infra", "policy") and not owners[top] & base:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
from paddock.tasks.program import contents, main
for name in contents().entries:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as errors:
        code = main(["./inv", name, "--help"])
    if code:
        print(name, errors.getvalue())
"""


def test_every_help_is_shown_with_the_small_set(root: Path) -> None:
    command = [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, '.'){HELP}"]
    completed = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
    assert completed.stdout == ""
