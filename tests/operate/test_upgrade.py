"""Upgrade of ARC with stand-ins for the cluster's objects and for Pulumi: every refusal, phase and failure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from paddock.fleet import Stack
from paddock.operate.connect import NoCluster
from paddock.operate.phases import Refused, Watch
from paddock.operate.runners.arc import VERSION
from paddock.operate.runners.draining import KEPT
from paddock.operate.runners.upgrade import Upgrade, Upgraded, prepare, reported, upgrade
from paddock.operate.runners.upgrading import Upgrading
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.sources.unavailable import Unavailable
from paddock.pulumi_cli.events import ResourceStep
from tests.operate.conftest import AT
from tests.support.chain_world import World
from tests.support.changes import StandInForChanges
from tests.support.engine_stand_in import CONTROLLER, CRD, NODES, SET, StandInForPulumi, stack

OLD, NEW, NEXT_MINOR = "0.14.1", "0.14.2", "0.15.0"
ROOT = Path(__file__).parents[2]


@dataclass
class Case:
    """A fleet at an old version, and an upgrade of it. Its clock moves when it sleeps."""

    world: World
    target: str = NEW
    now: float = 0.0
    told: list[str] = field(default_factory=list)
    hooks: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.writer = StandInForChanges(self.world)
        self.pulumi = StandInForPulumi(stack(OLD), self._changed)
        self.version("Deployment", OLD, "arc-gha-rs-controller")
        self.version("AutoscalingRunnerSet", OLD)

    def version(self, kind: str, version: str, name: str = "") -> None:
        self.world.get(kind, name)["metadata"]["labels"][VERSION] = version

    def snapshot(self) -> Snapshot:
        return self.world.snapshot()

    def upgrading(self) -> Upgrading:
        def sleep(seconds: float) -> None:
            self.now += max(seconds, 0.01)
            if "sleep" in self.hooks:
                self.hooks["sleep"]()

        watch = Watch(5.0, sleep, lambda: self.now)
        fleet = self.world.fleet
        return Upgrading(
            fleet, "dev", self.target, self.snapshot, self.writer, self.pulumi, self.told.append, 60.0, watch
        )

    def run(self) -> Upgraded:
        upgrading = self.upgrading()
        plan, also = prepare(upgrading)
        course = None if plan.nothing else upgrading.run(plan)
        return reported(upgrading, plan, course, also, context="lab", seconds=0.0, flags=" --stack dev")

    def _changed(self, name: str, urns: list[str]) -> None:
        if name in self.hooks:
            self.hooks[name]()
        elif name == "up controller":
            self.version("Deployment", self.target, "arc-gha-rs-controller")
        else:
            self.version("AutoscalingRunnerSet", self.target)


@pytest.fixture
def case(stack: Stack) -> Case:
    case = Case(World(stack, AT))
    case.world.no_runner()
    return case


def phases(outcome: Upgraded) -> dict[str, str]:
    return {phase.name: phase.state for phase in outcome.phases}


def limits(case: Case) -> tuple[int, int]:
    spec = case.world.get("AutoscalingRunnerSet")["spec"]
    return spec["minRunners"], spec["maxRunners"]


def test_controller_comes_first_then_sets_then_resume(case: Case) -> None:
    before = limits(case)
    outcome = case.run()
    assert phases(outcome) == {
        "drain": "done",
        "runners end": "unchanged",
        "CRDs and controller": "done",
        "controller available": "done",
        "scale sets": "done",
        "scale sets served": "unchanged",
        "resume": "done",
    }
    assert case.pulumi.runs == [("preview", []), ("up controller", [CRD, CONTROLLER]), ("up", [SET])]
    assert limits(case) == before
    assert (outcome.installed, outcome.target, outcome.failed, outcome.next) == (OLD, NEW, False, "")


def test_second_run_has_nothing_to_do(case: Case) -> None:
    case.run()
    case.pulumi.runs.clear()
    outcome = case.run()
    assert (outcome.phases, case.pulumi.runs, outcome.failed) == ((), [], False)


def test_nothing_is_drained_before_the_preview_passes(case: Case) -> None:
    case.pulumi.fails = "preview"
    before = limits(case)
    with pytest.raises(Refused, match="helm: timed out"):
        case.run()
    assert limits(case) == before


def test_other_pending_changes_are_said(case: Case) -> None:
    case.pulumi.also = (ResourceStep("replace", NODES),)
    assert case.run().also == ("replace eks NodeGroup t4-spot",)


def test_runners_with_jobs_are_waited_for(stack: Stack) -> None:
    case = Case(World(stack, AT))
    case.hooks["sleep"] = lambda: case.world.no_runner() if case.now > 10 and _has_runner(case) else None
    outcome = case.run()
    assert outcome.jobs == ("arc-runners/gpu-abc12-runner-x1",)
    assert phases(outcome)["runners end"] == "done"
    assert "1 runners are left, 1 with a job" in case.told


def _has_runner(case: Case) -> bool:
    return any(item["kind"] == "EphemeralRunner" for item in case.world.objects)


def test_a_job_past_the_deadline_leaves_the_controller_alone(stack: Stack) -> None:
    case = Case(World(stack, AT))
    outcome = case.run()
    assert list(phases(outcome).values()) == ["done", "failed"]
    assert [name for name, _ in case.pulumi.runs] == ["preview"]
    assert "runners.upgrade --stack dev --yes continues" in outcome.next
    assert "runners.resume --stack dev undoes" in outcome.next


def test_failed_pulumi_says_what_stands_and_goes_on_after(case: Case) -> None:
    case.pulumi.fails = "up controller"
    first = case.run()
    assert phases(first)["CRDs and controller"] == "failed"
    assert "Pulumi had done 1 steps" in first.phases[-1].details[0]
    case.pulumi.fails = ""
    assert phases(case.run())["drain"] == "unchanged"
    assert limits(case)[1] > 0


def test_controller_that_never_comes_up_stops_before_the_sets(case: Case) -> None:
    def broken() -> None:
        item = case.world.get("Deployment", "arc-gha-rs-controller")
        case.version("Deployment", NEW, "arc-gha-rs-controller")
        waiting = {"type": "Progressing", "message": "ReplicaSet has timed out progressing."}
        item["status"] = {"replicas": 2, "updatedReplicas": 1, "availableReplicas": 0, "conditions": [waiting]}

    case.hooks["up controller"] = broken
    outcome = case.run()
    failed = outcome.phases[-1]
    assert (failed.name, failed.state) == ("controller available", "failed")
    assert "0 of 2 replicas are available: ReplicaSet has timed out" in failed.message
    assert "kubectl -n arc-systems get pods" in failed.fix
    assert limits(case) == (0, 0)


def test_set_that_stays_outdated_is_named(case: Case) -> None:
    def outdated() -> None:
        case.version("AutoscalingRunnerSet", NEW)
        case.world.get("AutoscalingRunnerSet")["status"]["phase"] = "Outdated"

    case.hooks["up"] = outdated
    failed = case.run().phases[-1]
    assert (failed.name, failed.state) == ("scale sets served", "failed")
    assert "scale set gpu has the phase Outdated, not Running" in failed.message
    assert "why --stack dev" in failed.fix


def test_set_without_its_listener_is_not_resumed(case: Case) -> None:
    def stale() -> None:
        case.version("AutoscalingRunnerSet", NEW)
        case.world.get("AutoscalingListener")["spec"]["ephemeralRunnerSetName"] = "gone"

    case.hooks["up"] = stale
    outcome = case.run()
    assert "gone" in outcome.phases[-1].message
    assert "runners.recycle" in outcome.phases[-1].fix
    assert limits(case) == (0, 0)
    case.world.get("AutoscalingListener")["spec"]["ephemeralRunnerSetName"] = "gpu-abc12"
    assert phases(case.run())["resume"] == "done"


def test_sets_that_a_new_minor_deletes_are_made_again(case: Case) -> None:
    case.target = NEXT_MINOR
    gone: list[dict[str, Any]] = []

    def deletes() -> None:
        case.version("Deployment", NEXT_MINOR, "arc-gha-rs-controller")
        case.world.get("AutoscalingRunnerSet")["metadata"]["deletionTimestamp"] = "2026-11-24T12:00:00Z"

    def finalized() -> None:
        if case.now > 30 and not gone:
            gone.append(case.world.get("AutoscalingRunnerSet"))
            case.world.drop("AutoscalingRunnerSet")

    def made() -> None:
        item = gone[0]
        item["metadata"].pop("deletionTimestamp", None)
        item["metadata"]["labels"][VERSION] = NEXT_MINOR
        item["metadata"]["annotations"].pop(KEPT, None)
        item["spec"] |= {"minRunners": 0, "maxRunners": 5}
        case.world.objects.append(item)

    case.hooks |= {"up controller": deletes, "sleep": finalized, "up": made}
    outcome = case.run()
    assert not outcome.failed
    assert phases(outcome)["resume"] == "unchanged"
    assert any("as it is of another minor" in text for text in case.told)
    assert limits(case) == (0, 5)


def test_absent_set_whose_release_is_current_is_replaced(case: Case) -> None:
    """Helm makes nothing again of a release that does not change."""
    item = case.world.get("AutoscalingRunnerSet")
    case.version("Deployment", NEW, "arc-gha-rs-controller")
    case.world.drop("AutoscalingRunnerSet")
    case.pulumi.held = stack(NEW)

    def made() -> None:
        item["metadata"]["labels"][VERSION] = NEW
        case.world.objects.append(item)

    case.hooks["up replacing"] = made
    outcome = case.run()
    assert ("up replacing", [SET]) in case.pulumi.runs
    assert not outcome.failed


def test_drain_of_somebody_else_stays(case: Case) -> None:
    item = case.world.get("AutoscalingRunnerSet")
    item["metadata"]["annotations"][KEPT] = '{"maxRunners": 5, "at": "2026-11-24T11:00:00Z"}'
    item["spec"] |= {"minRunners": 0, "maxRunners": 0}
    outcome = case.run()
    assert (phases(outcome)["drain"], phases(outcome)["resume"]) == ("unchanged", "unchanged")
    assert limits(case) == (0, 0)


@pytest.mark.parametrize("run", ["up controller", "up"])
def test_ctrl_c_says_what_goes_on(case: Case, run: str) -> None:
    case.pulumi.interrupted = run
    outcome = case.run()
    assert (outcome.interrupted, outcome.phases[-1].state) == (True, "interrupted")
    assert "runners.upgrade --stack dev --yes continues" in outcome.next
    case.pulumi.interrupted = ""
    assert not case.run().failed
    assert limits(case)[1] > 0


def test_dry_run_has_the_phases_and_changes_nothing(case: Case) -> None:
    upgrading = case.upgrading()
    plan, also = prepare(upgrading)
    outcome = reported(upgrading, plan, None, also, context="lab", seconds=0.0, flags="")
    assert [phase.state for phase in outcome.phases] == ["planned"] * 4
    assert [name for name, _ in case.pulumi.runs] == ["preview"]
    assert limits(case)[1] > 0


def beside_another_team(case: Case, version: str) -> Upgrading:
    """Return an upgrade in a cluster where another namespace has a scale set of the same name, at a version."""
    upgrading = case.upgrading()
    read = upgrading.read
    meta = {"name": "gpu", "namespace": "team", "labels": {VERSION: version}, "uid": "theirs"}
    theirs = {"kind": "AutoscalingRunnerSet", "metadata": meta, "spec": {"runnerScaleSetName": "gpu"}}

    def both() -> Snapshot:
        snapshot = read()
        return replace(snapshot, runner_sets=replace(snapshot.runner_sets, items=(theirs, *snapshot.runner_sets)))

    upgrading.read = both
    return upgrading


def test_scale_sets_of_others_are_neither_waited_for_nor_changed(case: Case) -> None:
    upgrading = beside_another_team(case, NEW)
    plan, _ = prepare(upgrading)
    assert [one.version for one in plan.sets] == [OLD]
    assert not upgrading.run(plan).stopped


def test_scale_sets_that_the_new_controller_would_delete_are_named(case: Case) -> None:
    with pytest.raises(Refused, match=r"would delete scale sets of others, of another minor: team/gpu 0\.13\.1"):
        prepare(beside_another_team(case, "0.13.1"))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda case: case.version("Deployment", "0.15.0", "arc-gha-rs-controller"), r"newer than 0\.14\.2"),
        (lambda case: case.version("AutoscalingRunnerSet", "1.0.0"), "arc-runners/gpu is 1.0.0, which is newer"),
        (lambda case: case.version("Deployment", "canary", "arc-gha-rs-controller"), "is not known.*canary"),
        (
            lambda case: case.world.get("AutoscalingRunnerSet")["metadata"].update(deletionTimestamp="2026-11-24"),
            "has been terminating since",
        ),
        (
            lambda case: case.world.get("AutoscalingRunnerSet")["status"].update(phase="Outdated"),
            "has the phase Outdated",
        ),
        (lambda case: case.world.absent.add("AutoscalingRunnerSet"), "has no Actions Runner Controller"),
        (lambda case: case.world.drop("Deployment", "arc-gha-rs-controller"), "no Deployment of ARC's controller"),
        (lambda case: case.pulumi.held.clear(), "has no controller of ARC"),
    ],
)
def test_what_an_upgrade_would_harm_is_refused_with_a_fix(case: Case, change: Any, said: str) -> None:
    change(case)
    before = limits(case) if said != "has no Actions Runner Controller" else None
    with pytest.raises(Refused, match=said) as refused:
        case.run()
    assert "fix: " in str(refused.value)
    assert before is None or limits(case) == before
    assert not [name for name, _ in case.pulumi.runs if name.startswith("up")]


def test_unread_scale_sets_are_refused_with_the_missing_right(case: Case, stack: Stack) -> None:
    world = case.world

    def denied() -> Snapshot:
        right = "list autoscalingrunnersets.actions.github.com"
        unknown = Reading(reason=f"may not {right}", fix=f"a role that allows: {right}", permission=right)
        readings = {**world.snapshot().readings(), "runner_sets": unknown}
        return Snapshot(stack.fleet, AT, **readings)

    case.snapshot = denied  # type: ignore[method-assign]
    with pytest.raises(Refused, match="may not list autoscalingrunnersets"):
        case.run()


def test_a_short_outage_does_not_end_a_wait(stack: Stack) -> None:
    case = Case(World(stack, AT))
    read, outages = case.snapshot, iter(range(3))

    def sometimes() -> Snapshot:
        if case.now > 10 and next(outages, None) is not None:
            raise Unavailable("no answer within 10 s")
        return read()

    case.snapshot = sometimes  # type: ignore[method-assign]
    case.hooks["sleep"] = lambda: case.world.no_runner() if case.now > 30 and _has_runner(case) else None
    assert not case.run().failed
    assert "the cluster cannot be read: no answer within 10 s" in case.told


def test_an_outage_that_lasts_fails_the_phase(stack: Stack) -> None:
    case = Case(World(stack, AT))
    read = case.snapshot

    def never() -> Snapshot:
        if case.now > 10:
            raise Unavailable("no answer within 10 s", "kubectl get nodes")
        return read()

    case.snapshot = never  # type: ignore[method-assign]
    failed = case.run().phases[-1]
    assert (failed.name, failed.state, failed.fix) == ("runners end", "failed", "kubectl get nodes")


def test_an_absent_crd_brings_the_controller_phase(case: Case) -> None:
    case.run()
    case.world.absent.add("EphemeralRunner")
    case.hooks["up controller"] = lambda: case.world.absent.clear()
    outcome = case.run()
    assert (outcome.absent_crds, phases(outcome)["CRDs and controller"]) == (("EphemeralRunner",), "done")


def test_unreachable_cluster_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PADDOCK_ROOT", str(ROOT))
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{current-context: paddock-dev, contexts: [{name: paddock-dev, context: {cluster: paddock-dev, user: u}}],"
        " clusters: [{name: paddock-dev, cluster: {server: 'https://127.0.0.1:1'}}], users: [{name: u, user:"
        " {exec: {command: no-such-program}}}]}"
    )
    with pytest.raises(NoCluster, match="the cluster cannot be reached"):
        upgrade(Upgrade(kubeconfig=file))


def test_the_screen_names_versions_phases_and_the_next_command(case: Case) -> None:
    case.pulumi.fails = "up controller"
    text = "\n".join(case.run().text())
    for said in ("controller  0.14.1, pinned 0.14.2", "gpu: 0.14.1, Running", "failed      CRDs", "continues"):
        assert said in text


def test_the_page_shows_what_an_upgrade_prints(case: Case) -> None:
    printed = "".join(f"{line}\n" for line in case.run().text())
    assert printed in (ROOT / "docs/day-two.md").read_text()


def test_the_document_begins_with_its_schema(case: Case) -> None:
    document = case.run().document()
    assert list(document)[:5] == ["schema", "stack", "fleet", "context", "at"]
    assert (document["schema"], document["sets"][0]["name"]) == ("paddock.arc-upgrade/1", "gpu")
