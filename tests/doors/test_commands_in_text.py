"""Every command that a page, a message, a runbook or a workflow names is taken, and no page denies a task."""

from __future__ import annotations

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from paddock.site.links import pages
from paddock.tasks import RENAMED
from paddock.tasks.program import contents
from tests.support.commands import Command, commands, literals, wrong

# What a task does, as a page would say it. A sentence that says "nothing does that" names the task or is out of date.
DOES = {
    "runners.upgrade": r"upgrade[sd]? ARC|ARC is upgraded",
    "cost": r"cost after it was bought|read\w* (?:the|AWS's) bill|what AWS charged",
    "doctor": r"quotas? (?:is|are) read|reads? (?:the )?(?:account's )?quotas",
    "destroy": r"removes? (?:a|the) fleet|takes? (?:a|the) fleet down",
    "lab.up": r"tried without an account",
    "images.mirror": r"mirrors? images|copy\w* (?:charts|images)",
    "runners.drain": r"drains? (?:runners|a pool|scale sets)",
    "runners.recycle": r"deletes? (?:a stuck listener|runners that failed)",
    "runners.rerun": r"re-?runs?\b|runs? (?:it |them |such a job |a job |jobs )?again\b",
    "slurm.submit": r"submits? (?:a job|jobs|methods?)",
    "status": r"shows? (?:pools|the state of the fleet)",
    "verify": r"proves? that a GPU job",
    "why": r"says? why a job waits",
}
_THESE = ("tests/doors/test_commands_in_text.py", "tests/doors/test_words.py")
_NOT = r"\b(?:no|none|nothing|nobody|never|cannot|not)\b"
_TASK_IN_A_FIX = re.compile(r"fix: [^\n]*?(?<![\w./-])([a-z]+\.[a-z][a-z-]*)(?![\w./(-])")
_KEYS = {"aws", "github", "images", "runners"}
"""Groups of tasks whose names are keys of a fleet, too: `images.runner`."""


def test_every_command_in_a_text_is_taken(root: Path) -> None:
    assert [f"{command}\n  {problem}" for command in commands(root) if (problem := wrong(command))] == []


def test_every_task_in_a_fix_is_there(root: Path) -> None:
    modules = [(path, text) for path in (root / "paddock").rglob("*.py") if "fix: " in (text := path.read_text())]
    fixes = [(path, text) for path, module in modules for _, text in literals(ast.parse(module))]
    named = {(path.name, name) for path, text in fixes for name in _TASK_IN_A_FIX.findall(text)}
    known = contents()
    groups = {name.partition(".")[0] for name in known.entries if "." in name} - _KEYS
    assert sorted(n for n in named if n[1].partition(".")[0] in groups and not known.find(n[1])) == []


_KEYS_TOO = {"github.app", "gpu.processes"}
"""Names of before that are keys or attributes, too."""
_BEFORE = "|".join(re.escape(name) for name in RENAMED if "." in name and name not in _KEYS_TOO)
_OLD = re.compile(rf"(?<![\w./-])(?:{_BEFORE})(?![\w(/])")


def test_a_name_of_before_stands_on_its_page_alone(root: Path) -> None:
    """The page of old and new names, and the table that it is made of."""
    listed = subprocess.run(["git", "ls-files"], cwd=root, capture_output=True, text=True, check=True)
    found = []
    for name in set(listed.stdout.splitlines()) - {
        "paddock/tasks/__init__.py",
        "docs/renamed.md",
        "CHANGELOG.md",
        *_THESE,
    }:
        path = root / name
        if path.suffix in (".md", ".py", ".yaml", ".yml", ".sh", ".toml", "") and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            found += [f"{name}: {match[0]}" for match in _OLD.finditer(text)]
    assert sorted(found) == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("slurm.nodes", "slurm.nodes: it is now slurm.status --nodes"),
        ("plan --stak dev", "plan has no --stak"),
        ("plan dev", "plan takes no dev"),
        ("catalog --gpus many", "--gpus many: --gpus: 'many' is not a number"),
        ("plan --job-minutes soon", "--job-minutes soon: --job-minutes: 'soon' is not a duration"),
        ("build-image cuda-builder", "build-image: it is now images.build"),
        ("plan --stack", "--stack : it needs a value"),
        ("why gpu --stack STACK", ""),
        ("gpu.run --gpus 1 -- python train.py", ""),
    ],
)
def test_a_wrong_command_is_seen(text: str, problem: str) -> None:
    assert wrong(Command("page.md:1", tuple(text.split()), "block")).partition("\n")[0] == problem


def test_no_page_denies_what_a_task_does(root: Path) -> None:
    assert set(DOES) <= set(contents().entries)
    texts = {page.name: page.read_text(encoding="utf-8") for page in pages(root)}
    assert [f"{name}: {denied}" for name, text in texts.items() for denied in denials(text)] == []


def test_a_denial_is_seen() -> None:
    assert list(denials("| re-run after a spot interruption | **no** | yes |"))
    assert list(denials("Nothing re-runs it: that is a button in GitHub."))
    assert not list(denials("Nothing re-runs it, until [`./inv runners.rerun`](day-two.md) does."))


def denials(text: str) -> Iterator[str]:
    """Yield sentences, and rows of tables, that deny what a task does without naming the task."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    for sentence in re.split(r"(?<=[.;:])\s|\n(?=\|)|\n\n", prose):
        for task, done in DOES.items():
            denied = re.search(
                rf"{_NOT}[^|.;:\"]*?(?:{done})|^\|[^|]*(?:{done})[^|]*\| \**no\b", sentence, re.IGNORECASE
            )
            if denied and not re.search(rf"`(?:\./inv )?{re.escape(task)}\b", sentence):
                yield f"{task}: {' '.join(sentence.split())}"


def test_the_page_of_old_names_has_them_all(root: Path) -> None:
    page = (root / "docs/renamed.md").read_text(encoding="utf-8")
    assert [old for old, now in RENAMED.items() if f"| `{old}` | `{now}` |" not in page] == []
