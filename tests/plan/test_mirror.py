"""The commands that fill a mirror copy all that the stack pulls, to where the stack then looks for it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from paddock.console.project import OfStack
from paddock.fleet import Stack, load, parse
from paddock.fleet.stackfile.configuration import FLEET
from paddock.plan import mirror
from paddock.plan.engine.program import plan_graph

ROOT = Path(__file__).resolve().parents[2]
HOST = "registry.example.com/mirror"


@pytest.fixture(scope="module")
def mirrored() -> Stack:
    stack = load(ROOT, "dev")
    fleet = json.loads(stack.config[FLEET]) | {"mirror": {"charts": f"oci://{HOST}/charts", "images": HOST}}
    config = {**stack.config, FLEET: json.dumps(fleet)}
    return replace(stack, config=config, fleet=parse(config, stack.project, stack.name))


def test_what_is_copied_is_what_the_stack_then_pulls(mirrored: Stack) -> None:
    copied = [line.split() for line in mirror.commands(mirrored.fleet.mirror, mirror.graph_without_mirror(mirrored))]

    images = {words[3] for words in copied if words[:2] == ["crane", "copy"]}
    charts = {words[-1] for words in copied if words[:2] == ["helm", "pull"]}
    assert images == set(mirror.images(plan_graph(mirrored)))
    assert charts == {f"oci://{HOST}/charts"}
    assert len(images) + len([words for words in copied if words[0] == "helm"]) == len(copied)


def test_without_a_mirror_every_line_is_a_comment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_ROOT", str(ROOT))
    report = mirror.mirror(OfStack())
    written, copies = report.text(), report.document()

    assert all(line.startswith("# ") for line in written)
    assert len(written) == len(copies["charts"]) + len(copies["images"])
    assert {copy["to"] for copy in (*copies["charts"], *copies["images"])} == {None}
