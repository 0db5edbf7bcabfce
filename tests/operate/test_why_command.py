"""What `why` prints of a walk, beside it and as JSON, and its exit code; the snapshots are a test's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from paddock.operate.connect import NoCluster
from paddock.operate.snapshot.model import NOT_READ, Reading, Snapshot
from paddock.operate.snapshot.read import KINDS, Sources
from paddock.operate.why import command
from paddock.operate.why.command import Walks, Why
from paddock.operate.why.walk import walks
from tests.operate.conftest import AT
from tests.support.chain_beside import NEAR_MISSES
from tests.support.chain_objects import LISTENER
from tests.support.chain_world import World, variant

Run = Callable[..., Walks]


def shown(snapshot: Snapshot, target: str = "gpu", cluster: Any = None) -> str:
    report = Walks(stack="dev", snapshot=snapshot, cluster=cluster, walks=walks(snapshot, "dev", target))
    return "".join(f"{line}\n" for line in report.text())


def test_the_first_line_says_where_was_looked(world: World) -> None:
    snapshot, at = world.snapshot(), "2026-11-24 12:00:00 UTC\n"
    assert shown(snapshot).startswith(f"Why jobs wait: dev  paddock-dev  cluster unknown  {at}")
    for named in (True, False):
        text = shown(snapshot, cluster=SimpleNamespace(context="lab", named=named))
        assert text.startswith(f"Why jobs wait: dev  paddock-dev  context lab  {at}")
        assert ("no context is named after the cluster" in text) == (not named)


@pytest.mark.parametrize(("minutes", "said"), [(0, ""), (1, ""), (-1, ""), (3, "3 min ahead of"), (-3, "3 min behind")])
def test_a_clock_that_differs_by_minutes_is_said(minutes: int, said: str, world: World) -> None:
    text = shown(replace(world.snapshot(), clocks={"machine": AT + timedelta(minutes=minutes)}))
    assert ("this machine's clock" in text) == bool(said)
    assert f"  this machine's clock is {said} the cluster's, which counts\n" in text or not said


def test_scale_sets_of_one_job_have_a_verdict_together() -> None:
    world = World(variant("two-sets"), AT)
    world.queued("self-hosted", "gpu")
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    text = shown(world.snapshot(), world.target)
    assert text.endswith("\nGitHub may give the job to any of these 2 scale sets: unknown\n")
    assert "GitHub may give" not in shown(world.snapshot(), "")


def test_the_last_lines_say_what_is_to_be_done(world: World) -> None:
    unknown = shown(world.snapshot())
    assert unknown.endswith("\n  no link is known to be broken; unknown: GitHub's queue\n")
    waiting = next(case for case in NEAR_MISSES if case.verdict == "waits").world(AT)
    assert "\n  nothing is broken; it waits at: " in shown(waiting.snapshot(), waiting.target)
    world.in_progress()
    assert shown(world.snapshot(), world.target).endswith("\n  nothing is broken\n")
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    broken = shown(world.snapshot())
    assert "\n  BROKEN  " in broken
    assert "\n  evidence: " in broken
    assert "\n  fix: " in broken


@pytest.fixture
def run(root: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return what runs the command on snapshots."""
    monkeypatch.setenv("PADDOCK_ROOT", str(root))

    def call(snapshot: Snapshot) -> Walks:
        sources, parameters = Sources(), Why(target="gpu")
        asked: list[Any] = []
        monkeypatch.setattr(command, "connect", lambda *given: asked.append(given) or sources)
        monkeypatch.setattr(command, "read", lambda *given, logs: asked.append((*given, logs)) or snapshot)
        report = command.why(parameters)
        assert asked == [(snapshot.fleet, parameters, ""), (snapshot.fleet, sources, True)]
        return report

    return call


def test_the_exit_code_tells_broken_from_well(run: Run, world: World) -> None:
    assert run(world.snapshot()).exit_code == 0
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    unread = replace(world.snapshot(), quotas=Reading(reason="no", permission="list quotas"), logs=NOT_READ)
    report = run(unread)
    document = report.document()
    assert (report.exit_code, document["schema"]) == (1, "paddock.why/1")
    assert (document["verdict"], document["fleet"], document["context"]) == ("broken", "paddock-dev", None)
    assert document["unknown"]["quotas"] == {"reason": "no", "fix": None, "permission": "list quotas"}
    assert "logs" not in document["unknown"]


def test_a_cluster_of_which_nothing_is_read_is_one_message(run: Run) -> None:
    silent = Reading(reason="no answer")
    nothing = Snapshot(variant("dev").fleet, AT, **dict.fromkeys(KINDS, silent))
    with pytest.raises(NoCluster, match="nothing of the cluster can be read: no answer"):
        run(nothing)
    assert run(replace(nothing, jobs=Reading(()))).exit_code == 0, "GitHub was reached"
