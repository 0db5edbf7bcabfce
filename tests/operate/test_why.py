"""The chain on snapshots: each fault is named, what is under way is not called broken, and unknown is said."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paddock.fleet import Stack, load
from paddock.operate import runbooks
from paddock.operate.chain.subject import UnknownTarget
from paddock.operate.chain.walk import JUDGES, Walk, walks
from paddock.operate.cli import why as command
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.snapshot.read import Sources
from tests.support.chain_faults import FAULTS, Fault
from tests.support.chain_world import NODE, POD, World

AT = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(Path(__file__).parents[2], "dev")


@pytest.fixture
def world(stack: Stack) -> World:
    return World(stack, AT)


def why(snapshot: Snapshot, target: str = "") -> Walk:
    (result,) = walks(snapshot, "dev", target)
    return result


def said(result: Walk) -> str:
    return "\n".join(f"{key} {outcome.status} {outcome.evidence}" for key, outcome in result.outcomes.items())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named_with_its_link(world: World, fault: Fault) -> None:
    fault.change(world)
    result = why(world.snapshot(), world.target)
    outcome = result.outcomes.get(result.link)
    assert outcome is not None, said(result)
    assert (result.verdict, result.link, outcome.runbook) == ("broken", fault.link, fault.runbook), said(result)
    assert outcome.evidence
    assert result.fix


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_missing_evidence_never_blames_another_link(world: World, fault: Fault) -> None:
    fault.change(world)
    snapshot = world.snapshot()
    for part in snapshot.readings():
        without = replace(snapshot, **{part: Reading(reason="may not be read", permission=f"list {part}")})
        try:
            result = why(without, world.target)
        except UnknownTarget:
            continue
        assert result.verdict != "broken" or result.link == fault.link, f"without {part}:\n{said(result)}"


def test_a_fleet_at_work_is_not_broken(world: World) -> None:
    result = why(world.snapshot())
    assert {outcome.status for key, outcome in result.outcomes.items() if key != "github"} == {"ok"}, said(result)


def test_a_node_that_boots_is_waited_for(world: World) -> None:
    world.pending()
    world.event("Pod", POD, "TriggeredScaleUp", "pod triggered scale-up: [{eks-t4 0->1 (max: 5)}]", 2)
    result = why(world.snapshot())
    assert (result.verdict, result.link) == ("waits", "node-group"), said(result)


def test_a_pull_under_way_is_waited_for(world: World) -> None:
    world.stuck("ContainerCreating")
    world.event("Pod", POD, "Pulling", 'Pulling image "ghcr.io/acme/runner:1"', 9)
    result = why(world.snapshot())
    assert (result.verdict, result.link) == ("waits", "image-pull"), said(result)


def test_a_failure_before_a_launch_that_worked_is_over(world: World) -> None:
    world.pending()
    world.event("Pod", POD, "TriggeredScaleUp", "pod triggered scale-up", 3)
    world.launch("We currently do not have sufficient capacity", minutes_ago=8)
    world.launch("", "Successful", 2)
    assert why(world.snapshot()).verdict == "waits"


def test_nothing_known_is_unknown(stack: Stack) -> None:
    result = why(Snapshot(stack.fleet, AT))
    assert {outcome.status for outcome in result.outcomes.values()} == {"unknown", "not-reached"}
    assert result.verdict == "unknown"


def test_an_unknown_name_gets_a_hint(world: World) -> None:
    with pytest.raises(UnknownTarget, match=r"gpuu is no scale set[\s\S]*did you mean gpu\?"):
        walks(world.snapshot(), "dev", "gpuu")


def test_a_slow_clock_makes_no_negative_ages(world: World) -> None:
    snapshot = replace(world.snapshot(), at=AT - timedelta(hours=3))
    assert snapshot.age(world.snapshot().nodes.items[0]) == timedelta()


def test_words_of_others_steer_no_terminal(world: World) -> None:
    world.stuck("ErrImagePull", "not found \x1b[31m\udcff")
    evidence = why(world.snapshot()).outcomes["image-pull"].evidence
    assert "\x1b" not in evidence
    assert NODE not in evidence


def test_the_guide_shows_what_is_printed(world: World, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    world.pending()
    world.launch("Max spot instance count exceeded. Launching EC2 instance failed. MaxSpotInstanceCountExceeded")
    snapshot = replace(world.snapshot(), jobs=Reading(reason="no credential for GitHub: --github-key FILE"))
    command.show(snapshot, Sources(), walks(snapshot, "dev", "gpu"), "dev")
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()[1:]]
    guide = [line.rstrip() for line in (root / "docs/why.md").read_text().splitlines()]
    assert [line for line in printed if line not in guide] == []


def test_a_target_on_the_command_line_is_looked_up(root: Path, tmp_path: Path) -> None:
    context = {"name": "c", "context": {"cluster": "paddock-dev", "user": "u"}}
    cluster = {"name": "paddock-dev", "cluster": {"server": "https://127.0.0.1:1"}}
    user = {"name": "u", "user": {"token": "none"}}
    file = tmp_path / "kubeconfig"
    file.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "users": [user]}))
    words = [sys.executable, "-m", "paddock", "why", "--target", "gpuu", "--kubeconfig", str(file)]
    env = {**os.environ, "AWS_EC2_METADATA_DISABLED": "true"}
    run = subprocess.run(words, cwd=root, env=env, capture_output=True, text=True)
    assert run.returncode == 2, run.stderr
    assert "did you mean gpu?" in run.stderr
    assert "Traceback" not in run.stderr


def test_every_runbook_is_of_a_link_and_met_by_a_judge(root: Path) -> None:
    sources = "\n".join(path.read_text() for path in (root / "paddock/operate/chain/links").glob("*.py"))
    assert tuple(runbooks.LINKS) == tuple(JUDGES)
    for book in runbooks.runbooks().values():
        assert book.link in JUDGES
        assert f'"{book.id}"' in sources, f"no link names {book.id}"


def test_the_page_of_runbooks_is_the_text_of_the_command(root: Path) -> None:
    assert (root / "docs/why-runbooks.md").read_text() == runbooks.page(), "run ./inv docs.generate"
