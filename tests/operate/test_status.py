"""Status of a fleet from snapshots: what is there is counted, what is not known is said."""

from __future__ import annotations

import io
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.console import Console

from paddock.fleet import Stack, load
from paddock.operate.cli import status as command
from paddock.operate.cli.connect import Access
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.status.compute import status
from paddock.operate.status.report import Status
from paddock.terminal import PRINTED_JSON, BadFlag
from tests.support.chain_world import NODE, World

AT = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def stack() -> Stack:
    return load(Path(__file__).parents[2], "dev")


@pytest.fixture
def world(stack: Stack) -> World:
    return World(stack, AT)


def of(snapshot: Snapshot) -> Status:
    return status(snapshot, "dev", "lab", 0.5)


def screen(report: Status) -> str:
    out = io.StringIO()
    command.show(report, Console(file=out, width=120))
    return out.getvalue()


def test_a_fleet_at_work_is_counted(world: World) -> None:
    report = of(world.snapshot())
    (pool,) = report.pools
    assert (pool.ready, pool.starting, pool.broken, pool.draining, pool.most) == (1, 0, 0, 0, 5)
    assert (pool.gpus_allocatable, pool.gpus_allocated) == (1, 1)
    (scale_set,) = report.scale_sets
    assert (scale_set.assigned, scale_set.running, scale_set.idle, scale_set.failed, scale_set.most) == (1, 1, 0, 0, 5)
    assert report.oldest_waiting is None
    assert report.spot_interruptions == 0


def test_nodes_are_priced_with_the_day_of_the_price(world: World) -> None:
    cost = of(world.snapshot()).cost
    assert cost.usd_per_hour
    assert cost.as_of
    assert cost.missing == ()
    world.get("Node", NODE)["metadata"]["labels"]["node.kubernetes.io/instance-type"] = "g99.huge"
    cost = of(world.snapshot()).cost
    assert cost.missing == ("g99.huge",)
    assert "at least" in screen(of(world.snapshot()))


def test_the_oldest_waiting_runner_has_its_reason(world: World) -> None:
    world.pending()
    world.launch("MaxSpotInstanceCountExceeded")
    waiting = of(world.snapshot()).oldest_waiting
    assert waiting is not None
    assert (waiting.link, waiting.verdict, waiting.seconds) == ("node-group", "broken", 600)
    assert "fix: ./inv doctor" in screen(of(world.snapshot()))


def test_cordoned_and_interrupted_nodes_are_counted(world: World) -> None:
    world.get("Node", NODE)["spec"]["unschedulable"] = True
    world.event("Node", NODE, "SpotInterruption", "notice")
    report = of(world.snapshot())
    assert (report.pools[0].ready, report.pools[0].draining, report.spot_interruptions) == (0, 1, 1)


def test_what_is_not_known_is_never_zero(world: World) -> None:
    denied = Reading(reason="may not list it", permission="list it")
    snapshot = replace(world.snapshot(), nodes=denied, pods=denied, events=denied, runners=denied)
    report = of(snapshot)
    assert (report.pools[0].ready, report.pools[0].gpus_allocated, report.spot_interruptions) == (None, None, None)
    assert (report.scale_sets[0].running, report.cost.usd_per_hour) == (None, None)
    text = screen(report)
    assert "oldest waiting      unknown" in text
    assert "nodes unknown: may not list it" in text


def test_a_thousand_nodes_are_one_screen_in_seconds_of_work(world: World) -> None:
    snapshot = world.snapshot()
    node, pod = world.get("Node", NODE), world.pod
    names = [f"many-{number}" for number in range(1000)]
    many = [{**node, "metadata": {**node["metadata"], "name": name}} for name in names]
    one_each = [
        {**pod, "metadata": {**pod["metadata"], "name": f"pod-{n}"}, "spec": {**pod["spec"], "nodeName": n}}
        for n in names
    ]
    snapshot = replace(snapshot, nodes=Reading(tuple(many)), pods=Reading(tuple(one_each)))
    began = time.process_time()
    report = of(snapshot)
    assert time.process_time() - began < 5
    assert report.pools[0].gpus_allocated == 1000
    assert len(screen(report).splitlines()) < 40


def test_the_guide_shows_what_is_printed(world: World, root: Path) -> None:
    guide = (root / "docs/status.md").read_text().splitlines()
    text = [line for line in screen(of(world.snapshot())).splitlines() if not line.startswith(("read", "nodes cost"))]
    assert [line for line in text if line not in guide] == []


def test_watch_and_json_exclude_each_other(root: Path) -> None:
    with pytest.raises(BadFlag, match="--watch with --json"):
        command.run(root, "dev", Access(), watch=True, json=PRINTED_JSON)
