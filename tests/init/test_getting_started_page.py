"""docs/getting-started.md without engines: what is marked, what its tasks print, and its figures."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.pages import Command, steps
from tests.support.walk import ROOT, Walk

PAGE = ROOT / "docs/getting-started.md"
COMMANDS = [step for step in steps(PAGE) if isinstance(step, Command)]
RUN_AS_THEY_ARE = re.compile(
    r"\./inv (github\.app|init|plan|aws\.permissions)\b"
    r"|(export|mkdir|rm) |\(umask |pulumi (stack init|config set) "
)
"""What needs neither a cloud nor another program than Pulumi. The rest says in the page's source what it meets."""


@pytest.mark.parametrize("command", [c for c in COMMANDS if not c.mark], ids=lambda c: c.text)
def test_a_command_without_a_mark_needs_no_cloud(command: Command) -> None:
    assert RUN_AS_THEY_ARE.match(command.text), f"line {command.line}: say before the fence what it is run against"


def test_every_command_of_a_cloud_is_walked_with_a_stand_in() -> None:
    programs = {shlex.split(command.text)[0] for command in COMMANDS if command.mark == "stand-in"}
    assert programs == {"aws", "gh", "kubectl", "pulumi"}


def test_every_fence_of_commands_is_read() -> None:
    text = PAGE.read_text(encoding="utf-8")
    fences = re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)  # of commands that show no output
    bare = sum(bool(line.strip()) for fence in fences for line in fence.splitlines())
    assert len(re.findall(r"^\$ ", text, re.MULTILINE)) + bare == sum(command.text != "" for command in COMMANDS)


@pytest.mark.e2e
def test_its_tasks_print_what_the_page_says(tmp_path: Path) -> None:
    walk = Walk(tmp_path)
    for command in COMMANDS:
        if command.text.startswith("./inv") and not command.mark:
            walk.take(command)

    document = json.loads(walk.run("./inv plan --stack ci --json"))
    cost = document["cost"]
    fixed, (runner,) = cost["fixed"]["total"], cost["runners"]
    hours = 730
    text = PAGE.read_text(encoding="utf-8")
    for figure in (
        f"{fixed['value']:.0f} USD a month, {fixed['value'] / hours:.2f} USD an hour",
        f"{runner['job']['cold']['expected']['value']:.2f} USD on a new spot node",
        f"costs {runner['github_hosted']['job']['value']:.2f} USD for it",
        f"about {8 * fixed['value'] / hours:.0f} USD, most of it the eight hours",
        f"read between {fixed['as_of']} and {runner['github_hosted']['price']['as_of']}",
    ):
        assert figure in text
    waits = runner["job"]["start_seconds"]
    assert f"waits {round(waits['low'] / 60)} to {round(waits['high'] / 60 + 0.49)} minutes" in text


@pytest.mark.parametrize(("expected", "printed", "difference"), [
    (("a", "...", "c"), "a\nb\nc\n", ""),
    (("a", "c"), "a\nb\nc\n", "'c' is not printed there; printed is 'b'"),
    (("a", "...", "d"), "a\nb\nc\n", "'d' is not printed there; printed is 'the end'"),
    (("took 5s", "pod-1a2b3"), "took 12s\npod-9z8y7\n", ""),
    (("a ... c",), "a b c\n", ""),
    (("a",), "a\n\n", ""),
    (("a",), "a\nb\n", "the page ends before 'b', which is printed too"),
    (("a", "..."), "a\nb\n", ""),
])  # fmt: skip
def test_output_is_compared_line_by_line(expected: tuple[str, ...], printed: str, difference: str) -> None:
    assert pages.differences(expected, printed) == difference
