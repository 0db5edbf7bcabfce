"""Drain, resume and recycle with a stand-in for the cluster's objects: what is changed, kept and left alone."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from paddock.console import command
from paddock.console.output import BadFlag, JsonOutput
from paddock.fleet import Stack
from paddock.operate.parameters import declined
from paddock.operate.runners import draining
from paddock.operate.runners.change import scope_of, work
from paddock.operate.runners.drain import Drain
from paddock.operate.runners.draining import KEPT, NotDrained, Scope
from paddock.operate.runners.recycle import recycled
from paddock.operate.runners.report import Command, RunnersChanged
from paddock.operate.snapshot.model import Reading
from paddock.operate.sources.unavailable import Unavailable
from tests.support.chain_objects import NODE
from tests.support.chain_world import World
from tests.support.changes import StandInForChanges

ACTS: dict[str, Any] = {"drain": draining.drain, "resume": draining.resume, "recycle": recycled}


def do(
    world: World,
    what: Command,
    writer: StandInForChanges | None,
    *,
    runner: str = "",
    pool: str = "",
    wait: float | None = None,
    snapshot: Any = None,
    flags: str = "",
) -> RunnersChanged:
    scope = scope_of(world.fleet, what, runner, pool)
    return work(
        what,
        world.fleet,
        snapshot or world.snapshot,
        lambda taken: ACTS[what](taken, scope, writer),
        scope if what == "drain" else None,
        wait,
        about={"stack": "dev", "context": "lab"},
        flags=flags,
        poll=0.01,
    )


def states(report: RunnersChanged) -> list[str]:
    return [step.state for step in report.steps]


def test_resume_gives_back_exactly_what_drain_kept(world: World) -> None:
    before, writer = copy.deepcopy(world.objects), StandInForChanges(world)
    report = do(world, "drain", writer, pool="t4")
    assert states(report) == ["done", "done"]
    assert world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] == 0
    assert world.get("Node", NODE)["spec"]["unschedulable"] is True
    assert [one.job for one in report.left or ()] == ["test"]
    drained = copy.deepcopy(world.objects)
    assert states(do(world, "drain", writer, pool="t4")) == ["unchanged", "unchanged"]
    assert world.objects == drained
    assert states(do(world, "resume", writer, pool="t4")) == ["done", "done"]
    assert world.objects == before


def test_absent_max_is_absent_again(world: World) -> None:
    for key in ("maxRunners", "minRunners"):
        world.get("AutoscalingRunnerSet")["spec"].pop(key, None)
    before, writer = copy.deepcopy(world.objects), StandInForChanges(world)
    do(world, "drain", writer)
    do(world, "resume", writer)
    assert world.objects == before


@pytest.mark.parametrize(
    ("spec", "counts"),
    [
        ({"maxRunners": 5, "minRunners": 1}, ("maxRunners 5 to 0, minRunners 1 to 0", "maxRunners 5, minRunners 1")),
        ({}, ("maxRunners unlimited to 0, minRunners 0 to 0", "maxRunners unlimited, minRunners 0")),
    ],
)
def test_drain_and_resume_say_from_what_to_what(world: World, spec: dict[str, int], counts: tuple[str, str]) -> None:
    runner_set, writer = world.runner_set["spec"], StandInForChanges(world)
    for key in ("maxRunners", "minRunners"):
        runner_set.pop(key, None)
    runner_set |= spec
    said = [do(world, what, writer).steps[0].message for what in ("drain", "resume")]
    assert said == list(counts)


def test_a_set_that_has_no_room_by_its_file_is_drained_and_stays_so(world: World) -> None:
    world.runner_set["spec"] |= {"maxRunners": 0, "minRunners": 0}
    writer = StandInForChanges(world)
    assert states(do(world, "drain", writer)) == ["done"]
    assert states(do(world, "resume", writer)) == ["done"]
    assert world.runner_set["spec"]["maxRunners"] == 0


def test_a_drained_set_that_was_raised_since_is_drained_again(world: World) -> None:
    writer = StandInForChanges(world)
    do(world, "drain", writer)
    world.runner_set["spec"]["maxRunners"] = 7
    assert states(do(world, "drain", writer)) == ["done"]
    assert json.loads(world.runner_set["metadata"]["annotations"][KEPT])["maxRunners"] == 7


def test_a_scale_set_that_is_not_there_is_named(world: World) -> None:
    world.drop("AutoscalingRunnerSet", "gpu")
    with pytest.raises(Unavailable, match="the cluster has no scale set gpu") as raised:
        do(world, "drain", StandInForChanges(world))
    assert raised.value.fix == "./inv status"


@pytest.mark.parametrize(("note", "by"), [(None, None), ("[]", ""), ("{", ""), ("{}", ""), ('{"by": "x"}', "x")])
def test_a_note_says_who_drained(note: str | None, by: str | None) -> None:
    assert draining.drained_by({"metadata": {"annotations": {} if note is None else {KEPT: note}}}) == by


def test_runners_that_are_left_are_listed_with_jobs_first(world: World) -> None:
    world.no_runner()
    of_job = {"phase": "Running", "jobId": "j8", "jobWorkflowRef": "acme/a/w.yml"}
    for name, minutes, status in (("young", 1, of_job), ("old", 9, of_job), ("idle", 30, {})):
        world.another(name, **status)
        world.ages["EphemeralRunner", name] = minutes
    world.another("over", phase="Failed")
    left = draining.left(world.snapshot(), Scope(["gpu"]))
    assert [(one.runner, one.job, one.workflow, one.seconds, one.scale_set) for one in left] == [
        ("arc-runners/old", "j8", "acme/a/w.yml", 540, "gpu"),
        ("arc-runners/young", "j8", "acme/a/w.yml", 60, "gpu"),
        ("arc-runners/idle", None, None, 1800, "gpu"),
    ]


def test_resume_without_a_drain_is_refused(world: World) -> None:
    with pytest.raises(NotDrained, match="nothing is drained") as refused:
        do(world, "resume", StandInForChanges(world))
    assert refused.value.exit_code == 2


def test_resume_leaves_what_others_wrote_since(world: World) -> None:
    writer = StandInForChanges(world)
    world.get("Node", NODE)["spec"]["unschedulable"] = True
    do(world, "drain", writer, pool="t4")
    world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] = 9
    do(world, "resume", writer)
    assert world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] == 9
    assert KEPT not in world.get("AutoscalingRunnerSet")["metadata"]["annotations"]
    assert world.get("Node", NODE)["spec"]["unschedulable"] is True


def test_damaged_annotation_changes_nothing(world: World) -> None:
    writer = StandInForChanges(world)
    do(world, "drain", writer)
    world.get("AutoscalingRunnerSet")["metadata"]["annotations"][KEPT] = '{"maxRunners": -1}'
    assert states(do(world, "resume", writer)) == ["failed"]
    assert world.get("AutoscalingRunnerSet")["spec"]["maxRunners"] == 0


def test_waiting_ends_at_the_last_runner_or_deadline(world: World) -> None:
    writer = StandInForChanges(world)
    late = do(world, "drain", writer, wait=0.03)
    assert (late.late, late.failed) == (True, True)
    world.no_runner()
    over = do(world, "drain", writer, wait=60)
    assert (over.left, over.failed) == ((), False)


def test_ctrl_c_says_how_to_go_on_and_undo(world: World) -> None:
    reads = iter([world.snapshot()])

    def read() -> Any:
        try:
            return next(reads)
        except StopIteration:
            raise KeyboardInterrupt from None

    report = do(world, "drain", StandInForChanges(world), snapshot=read, flags=" --stack dev", wait=60)
    assert (report.exit_code, states(report)) == (130, ["done"])
    assert list(report.document())[:4] == ["schema", "command", "stack", "fleet"]
    assert "runners.drain --stack dev --yes continues" in report.next
    assert "runners.resume --stack dev undoes it" in report.next


def test_a_missing_right_is_named(world: World) -> None:
    report = do(world, "drain", StandInForChanges(world, refuses="Node"), pool="t4")
    assert states(report) == ["done", "failed"]
    assert "may not patch nodes" in report.steps[1].message


def test_recycle_leaves_a_healthy_fleet_alone(world: World) -> None:
    assert do(world, "recycle", StandInForChanges(world)).steps == ()


def test_stale_listener_and_failed_runner_are_deleted(world: World) -> None:
    world.get("AutoscalingListener")["spec"]["ephemeralRunnerSetName"] = "gone"
    world.get("EphemeralRunner")["status"] = {"phase": "Failed", "reason": "TooManyPodFailures"}
    world.drop("Pod", "gpu-abc12-runner-x1")
    assert states(do(world, "recycle", None)) == ["planned", "planned"]
    writer = StandInForChanges(world)
    assert states(do(world, "recycle", writer)) == ["done", "done"]
    assert writer.deleted == ["gpu-754b578d-listener", "gpu-abc12-runner-x1"]


def test_a_failed_runner_whose_pod_runs_stays(world: World) -> None:
    world.get("EphemeralRunner")["status"] = {"phase": "Failed", "jobDisplayName": "test"}
    writer = StandInForChanges(world)
    assert states(do(world, "recycle", writer)) == ["skipped"]
    assert writer.deleted == []


def test_nothing_is_deleted_while_the_controller_is_down_or_unknown(world: World) -> None:
    world.get("AutoscalingListener")["spec"]["ephemeralRunnerSetName"] = "gone"
    world.get("Deployment", "arc-gha-rs-controller")["status"] = {}
    writer = StandInForChanges(world)
    assert states(do(world, "recycle", writer)) == ["skipped"]
    world.drop("Deployment", "arc-gha-rs-controller")
    assert states(do(world, "recycle", writer)) == ["skipped"]
    unread = replace(world.snapshot(), deployments=Reading(reason="Deployment: may not list deployments"))
    with pytest.raises(Unavailable, match="ARC's controller: Deployment: may not list"):
        do(world, "recycle", writer, snapshot=lambda: unread)
    assert writer.deleted == []


@pytest.mark.parametrize(("runner", "pool", "said"), [("gpx", "", "gpu"), ("", "t5", "t4"), ("gpu", "t4", "one of")])
def test_a_wrong_name_has_its_hint(stack: Stack, runner: str, pool: str, said: str) -> None:
    with pytest.raises(BadFlag, match=said):
        scope_of(stack.fleet, "drain", runner, pool)


def test_a_person_who_declines_gets_a_document_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    chosen = Drain(json=JsonOutput(tmp_path / "report.json"))
    assert command.perform(command.Command(Drain, lambda _: declined()), chosen) == 0
    assert json.loads((tmp_path / "report.json").read_text())["message"] == "Nothing was changed."
    assert capsys.readouterr().err == "Nothing was changed.\n"
