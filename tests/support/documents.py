"""Documents of plans for tests of what prints them; each is made once."""

from __future__ import annotations

import io
import json
from datetime import date
from functools import cache
from typing import Any

from rich.console import Console

from paddock.fleet import Stack
from paddock.plan.diff.model import Diff
from paddock.plan.document.builder import build_document
from paddock.plan.document.model import SCHEMA, PlanDocument
from paddock.plan.output import html, markdown, terminal
from paddock.plan.plan import build_plan
from tests.support import fleets

TODAY = date(2026, 9, 1)
NAMES = (
    *fleets.EXAMPLES, "capacity-block", "time-slicing", "mig", "every-volume", "warm", "any-cluster", "runners-only",
    "images-only",
)  # fmt: skip
"""Fleets that differ in what there is to print."""


def full(stack: Stack) -> PlanDocument:
    return build_document(build_plan(stack, TODAY))


@cache
def of(name: str) -> PlanDocument:
    return full(fleets.named(name))


def forms(document: PlanDocument, changed: Diff | None = None) -> dict[str, str]:
    """Return a plan in every form that it is given out in."""
    screen = Console(file=io.StringIO(), record=True, width=200)
    terminal.show(document, screen)
    return {
        "json": json.dumps(document.data() | ({"diff": changed.data()} if changed else {})),
        "html": html.render(document, changed),
        "markdown": markdown.render(document, changed),
        "terminal": screen.export_text(),
    }


def document(**parts: Any) -> PlanDocument:
    """Return a document as JSON has it, empty but for `parts`."""
    empty = {"schema": SCHEMA, "stack": "sample", "project": "paddock"}
    return PlanDocument.model_validate({**empty, "resources": [], "outputs": {}, "fit": [], "findings": [], **parts})


def resource(**parts: Any) -> dict[str, Any]:
    """Return a resource of a document as JSON has it."""
    return {
        "urn": "u", "type": "a:b:C", "name": "", "parent": "", "custom": False, "inputs": {}, "dependencies": [],
        "propertyDependencies": {}, "provider": "", "protect": False, "ignoreChanges": [], "deleteBeforeReplace": False,
        **parts,
    }  # fmt: skip


def seed() -> Stack:
    """One runner that fits nowhere, one that strands GPUs, slices of GPUs, and a pool that nobody uses."""
    large = {"instances": ["p4d.24xlarge"], "capacity": "on-demand", "nodes": {"min": 1, "max": 2}}
    pools = {
        "t4": {"instances": ["g4dn.xlarge"], "nodes": {"max": 2}},
        "a100": large,
        "mig": {**large, "sharing": {"mig": "1g.5gb"}},
        "many": {"instances": ["g6.12xlarge"], "nodes": {"max": 50}, "sharing": {"timeSlicing": 48}},
        "idle": {"instances": ["g5.xlarge"], "nodes": {"max": 1}},
    }
    runners = {
        "gpu": {"pool": "t4", "cpu": 4, "memory": "16Gi", "labels": ["<script>alert(1)</script>", '"&']},
        "by-three": {"pool": "a100", "gpus": 3},
        "slice": {"pool": "mig"},
        "tiny": {"pool": "many"},
    }
    return fleets.stack(fleets.fleet_data(pools=pools, runners=runners), "seed")
