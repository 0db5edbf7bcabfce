"""A plan's shortcuts through Pulumi's SDK lead to the same graph as the SDK's own way."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from enum import StrEnum

import pulumi
import pulumi_kubernetes as k8s
import pytest

from paddock.plan.engine import recorder
from paddock.plan.engine.event_loop import EagerLoop
from paddock.plan.engine.program import plan_graph
from tests.support import fleets
from tests.support.explore import EXPLORING

STACKS = fleets.ALL if EXPLORING else ("prod", "any-cluster", "runners-only", "cloudwatch")
"""The largest, and those whose providers, references and topics prod has not."""


class _Loop(asyncio.SelectorEventLoop):
    """Takes turns, as the SDK's own loop does, with calls in a fixed order."""

    run_in_executor = EagerLoop.run_in_executor  # type: ignore[assignment]


def _take_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "shortcuts", nullcontext)
    monkeypatch.setattr(recorder, "EagerLoop", _Loop)


@pytest.mark.parametrize("preview", [False, True])
@pytest.mark.parametrize("stack", STACKS)
def test_shortcuts_change_no_graph(stack: str, preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = fleets.graph(stack, preview=preview)
    _take_none(monkeypatch)
    assert plan_graph(fleets.named(stack), preview=preview) == short


async def _later(value: str) -> str:
    await asyncio.sleep(0)
    return value


def _program() -> None:
    """Pass on what the shortcuts leave to the SDK, beside what they take: each in an input that may be anything."""
    late = pulumi.Output.from_input(_later("late"))
    values = {
        "one": 1.0,
        "large": 2**60 + 1,
        "fraction": 0.5,
        "none": None,
        "flag": True,
        "snake_case": ({"z": 1, "a": [None, "b"]},),
        "secret": pulumi.Output.secret("hidden"),
        "late": late,
        "both": pulumi.Output.concat("a-", late),
        "all": pulumi.Output.all(one=1, late=late),
        "kind": _Kind.ONE,
    }
    parent = pulumi.ComponentResource("test:index:Parent", "parent")
    for key, value in values.items():
        opts = pulumi.ResourceOptions(parent=parent)
        first = k8s.helm.v3.Release(f"first-{key}", chart="chart", values={key: value}, opts=opts)
        after = pulumi.ResourceOptions(depends_on=[first], ignore_changes=["values"], protect=True)
        k8s.helm.v3.Release(f"second-{key}", chart="chart", name=first.name, values=first.values, opts=after)
    pulumi.export("name", late)


class _Kind(StrEnum):
    ONE = "one"


@pytest.mark.parametrize("preview", [False, True])
def test_shortcuts_leave_other_values_to_the_sdk(preview: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    short = recorder.record(_program, project="test", stack="unit", config={}, preview=preview)
    _take_none(monkeypatch)
    assert recorder.record(_program, project="test", stack="unit", config={}, preview=preview) == short


def test_an_error_in_an_output_fails_the_plan() -> None:
    def program() -> None:
        pulumi.Output.from_input(_later("late")).apply(int)

    with pytest.raises(ValueError, match="late"):
        recorder.record(program, project="test", stack="unit", config={})
