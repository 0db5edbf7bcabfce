"""What `why` prints of a walk, beside it and as JSON, and its exit code; the snapshots are a test's."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddock.operate.chain.walk import walks
from paddock.operate.cli import why as command
from paddock.operate.cli.connect import Access, NoCluster
from paddock.operate.snapshot.model import NOT_READ, Reading, Snapshot
from paddock.operate.snapshot.read import KINDS, Sources
from paddock.terminal import PRINTED_JSON
from tests.operate.conftest import AT
from tests.support.chain_beside import NEAR_MISSES
from tests.support.chain_objects import LISTENER
from tests.support.chain_world import World, variant

Capture = pytest.CaptureFixture[str]
Run = Callable[..., int]


def cluster(named: bool) -> Sources:
    return Sources(kubernetes=SimpleNamespace(cluster=SimpleNamespace(context="lab", named=named)))


def shown(snapshot: Snapshot, capsys: Capture, target: str = "gpu", sources: Sources | None = None) -> str:
    command.show(snapshot, sources or Sources(), walks(snapshot, "dev", target), "dev")
    return capsys.readouterr().out


def test_the_first_line_says_where_was_looked(world: World, capsys: Capture) -> None:
    snapshot, at = world.snapshot(), "2026-11-24 12:00:00 UTC\n"
    assert shown(snapshot, capsys).startswith(f"Why of dev  paddock-dev  cluster unknown  {at}")
    for named in (True, False):
        text = shown(snapshot, capsys, sources=cluster(named))
        assert text.startswith(f"Why of dev  paddock-dev  context lab  {at}")
        assert ("no context is named after the cluster" in text) == (not named)


@pytest.mark.parametrize(("minutes", "said"), [(0, ""), (1, ""), (-1, ""), (3, "3 min ahead of"), (-3, "3 min behind")])
def test_a_clock_that_differs_by_minutes_is_said(minutes: int, said: str, world: World, capsys: Capture) -> None:
    text = shown(replace(world.snapshot(), clocks={"machine": AT + timedelta(minutes=minutes)}), capsys)
    assert ("this machine's clock" in text) == bool(said)
    assert f"  this machine's clock is {said} the cluster's, which counts\n" in text or not said


def test_scale_sets_of_one_job_have_a_verdict_together(capsys: Capture) -> None:
    world = World(variant("two-sets"), AT)
    world.queued("self-hosted", "gpu")
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    text = shown(world.snapshot(), capsys, world.target)
    assert text.endswith("\nGitHub may give the job to any of these 2 scale sets: unknown\n")
    assert "GitHub may give" not in shown(world.snapshot(), capsys, "")


def test_the_last_lines_say_what_is_to_be_done(world: World, capsys: Capture) -> None:
    unknown = shown(world.snapshot(), capsys)
    assert unknown.endswith("\n  no link is known to be broken; unknown: GitHub's queue\n")
    waiting = next(case for case in NEAR_MISSES if case.verdict == "waits").world(AT)
    assert "\n  nothing is broken; it waits at: " in shown(waiting.snapshot(), capsys, waiting.target)
    world.in_progress()
    assert shown(world.snapshot(), capsys, world.target).endswith("\n  nothing is broken\n")
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    broken = shown(world.snapshot(), capsys)
    assert "\n  BROKEN  " in broken
    assert "\n  evidence: " in broken
    assert "\n  fix: " in broken


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs the command on snapshots; the exit code comes back."""

    def call(snapshot: Snapshot, **more: Any) -> int:
        sources, access = Sources(), Access()
        asked: list[Any] = []
        monkeypatch.setattr(command, "connect", lambda *given: asked.append(given) or sources)
        monkeypatch.setattr(command, "read", lambda *given, logs: asked.append((*given, logs)) or snapshot)
        code = command.run(root, "dev", "gpu", access, **more)
        assert asked == [(snapshot.fleet, access, ""), (snapshot.fleet, sources, True)]
        return code

    return call


def test_the_exit_code_tells_broken_from_well(run: Run, world: World, capsys: Capture) -> None:
    assert run(world.snapshot()) == 0
    assert capsys.readouterr().out.startswith("Why of dev")
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    unread = replace(world.snapshot(), quotas=Reading(reason="no", permission="list quotas"), logs=NOT_READ)
    assert run(unread, json=PRINTED_JSON) == 1
    document = json.loads(capsys.readouterr().out)
    assert (document["verdict"], document["fleet"], document["context"]) == ("broken", "paddock-dev", None)
    assert document["unknown"]["quotas"] == {"reason": "no", "fix": None, "permission": "list quotas"}
    assert "logs" not in document["unknown"]


def test_a_cluster_of_which_nothing_is_read_is_one_message(run: Run) -> None:
    silent = Reading(reason="no answer")
    nothing = Snapshot(variant("dev").fleet, AT, **dict.fromkeys(KINDS, silent))
    with pytest.raises(NoCluster, match="nothing of the cluster can be read: no answer"):
        run(nothing)
    assert run(replace(nothing, jobs=Reading(()))) == 0, "GitHub was reached"
