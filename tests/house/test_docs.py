"""Commands that the README and the guides tell people to run are run here, as written."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

# Not run, and why. A command that stands here must stand in a document, else this list has gone stale.
ELSEWHERE = {
    "./inv test": "it runs this",
    "./inv check": "it runs this",
    "./inv lint --fix": "it changes files",
    "./inv lock": "needs the network",
    "./inv catalog.refresh": "needs AWS",
    "./inv lab.": "tests/e2e/test_story.py runs these, in their order",
    "./inv build-runner": "needs Docker: tests/e2e/test_runner_image.py",
    "./inv build-image": "needs Docker: tests/e2e/test_cuda_builder.py",
    "./inv build-ami": "needs AWS: tests/build/ami/test_ami_build.py, on recorded models",
    "./inv images.check": "its answer depends on the day: tests/build/images/test_images_check.py",
    "./inv bench --mode": "needs torch: tests/bench/test_run.py, on the processor",
    "./inv bench.load": "needs a server: tests/bench/load/test_command.py, on a scripted one",
    "./inv ami.": "needs AWS: tests/build/ami/test_ami_{list,promote,prune}.py, on stand-ins",
}


def documents(root: Path) -> list[Path]:
    return [root / "README.md", root / "CONTRIBUTING.md", *sorted((root / "docs").glob("**/*.md"))]


def commands(root: Path) -> list[str]:
    """Lines that start with ./inv in fenced sh blocks, without comments."""
    result = []
    for path in documents(root):
        for block in re.findall(r"```(?:sh|bash|console)\n(.*?)```", path.read_text(), flags=re.DOTALL):
            lines = (re.sub(r"\s+#.*", "", line.removeprefix("$ ")).strip() for line in block.splitlines())
            result += [line for line in lines if line.startswith("./inv")]
    return sorted(set(result))


ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.mark.parametrize("command", [c for c in commands(ROOT) if not any(c.startswith(e) for e in ELSEWHERE)])
def test_a_documented_command_works_as_written(root: Path, tmp_path: Path, command: str) -> None:
    words = shlex.split(command)[1:]
    env = {**os.environ, "PADDOCK_CWD": str(tmp_path)}
    _seed(tmp_path, words, root)
    completed = subprocess.run(
        [sys.executable, "-m", "paddock", *words], cwd=root, env=env, capture_output=True, text=True, timeout=120
    )
    assert completed.returncode == 0, completed.stdout[-2000:] + completed.stderr[-2000:]


def _seed(folder: Path, words: list[str], root: Path) -> None:
    """Save the plan that a documented command compares with."""
    if "--against" in words:
        stack = words[words.index("--stack") + 1] if "--stack" in words else "dev"
        saved = words[words.index("--against") + 1]
        env = {**os.environ, "PADDOCK_CWD": str(folder)}
        command = [sys.executable, "-m", "paddock", "plan", "--stack", stack, "--json", saved]
        subprocess.run(command, cwd=root, env=env, check=True, capture_output=True, timeout=120)


def test_the_list_of_commands_run_elsewhere_is_not_stale(root: Path) -> None:
    documented = commands(root)
    assert [prefix for prefix in ELSEWHERE if not any(command.startswith(prefix) for command in documented)] == []


def test_every_link_inside_the_project_leads_somewhere(root: Path) -> None:
    broken = []
    for path in documents(root):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
            if not re.match(r"[a-z]+:", target) and not (path.parent / target).exists():
                broken.append(f"{path.name}: {target}")
    assert broken == []
