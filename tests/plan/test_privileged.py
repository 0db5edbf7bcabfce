"""Privileged runners: jobs that can become root on their node are named in every form of the plan."""

from __future__ import annotations

from rich.console import Console

from paddock.plan.output import markdown, terminal
from paddock.plan.output.html import render
from tests.support import documents

SAYS = "privileged: root on its node"


def _table(name: str) -> str:
    out = Console(record=True, width=200, quiet=False)
    with out.capture() as captured:
        terminal.show(documents.of(name), out)
    return captured.get()


def test_a_privileged_runner_is_named_in_every_form() -> None:
    document = documents.of("docker")
    assert [runner.privileged for runner in document.runners] == [True]
    assert '"privileged": true' in document.model_dump_json(indent=1)
    assert SAYS in _table("docker")
    assert SAYS in markdown.render(document)
    assert SAYS in render(document)


def test_other_runners_are_not_called_privileged() -> None:
    document = documents.of("job-pods")
    assert [runner.privileged for runner in document.runners] == [False]
    for text in (_table("job-pods"), markdown.render(document), render(document)):
        assert SAYS not in text
