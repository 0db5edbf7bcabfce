"""The chain on snapshots: each fault is named, what is under way is not called broken, and unknown is said."""

from __future__ import annotations

import copy
import time
from dataclasses import replace
from datetime import timedelta
from itertools import combinations, product
from pathlib import Path
from types import SimpleNamespace

import pytest

from paddock import runbooks
from paddock.fleet.arc import controller
from paddock.operate.snapshot.model import Reading, Snapshot
from paddock.operate.why.command import Walks, examine
from paddock.operate.why.subject import UnknownTarget
from paddock.operate.why.walk import JUDGES, Walk, verdict, walks
from paddock.plan.findings import FINDINGS
from paddock.plan.rules import RULES
from paddock.runbooks import LINKS
from paddock.tasks.program import main
from tests.operate.conftest import AT
from tests.support import fleets
from tests.support.chain_beside import BESIDE, NEAR_MISSES, Case
from tests.support.chain_fault import Change
from tests.support.chain_faults import FAULTS, PAINS, Fault
from tests.support.chain_faults_pod import QUOTA
from tests.support.chain_objects import LISTENER, NODE, POD
from tests.support.chain_world import Contradiction, World, variant
from tests.support.explore import count
from tests.support.kubernetes_api import write_kubeconfig


def why(snapshot: Snapshot, target: str = "") -> Walk:
    return walks(snapshot, "dev", target)[0]


def said(result: Walk) -> str:
    return "\n".join(f"{key} {outcome.status} {outcome.evidence}" for key, outcome in result.outcomes.items())


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_fault_is_named_with_its_link(fault: Fault) -> None:
    world = fault.world(AT)
    result = why(world.snapshot(), world.target)
    outcome = result.outcomes.get(result.link)
    assert outcome is not None, said(result)
    assert (result.verdict, result.link, outcome.runbook) == ("broken", fault.link, fault.runbook), said(result)
    assert runbooks.runbooks()[outcome.runbook].link == result.link
    assert outcome.evidence
    assert not [word for word in result.fix.split() if word.isupper() and word.lower() in outcome.names], result.fix


def test_a_fix_names_the_fleets_own_controller() -> None:
    (fault,) = (one for one in FAULTS if one.runbook == "scale-set-not-registered")
    result = why(fault.world(AT).snapshot())
    own = fleets.changed(cluster={"kubeconfig": "~/.kube/config", "arc": {"suffix": "ml"}})
    assert "-n arc-systems logs deployment/arc-gha-rs-controller" in result.fix
    named = replace(result, controller=controller(own, own.runners["gpu"]))
    assert "-n arc-systems-ml logs deployment/arc-ml-gha-rs-controller" in named.fix


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_missing_evidence_never_blames_another_link(fault: Fault) -> None:
    world = fault.world(AT)
    snapshot = world.snapshot()
    for part in snapshot.readings():
        without = replace(snapshot, **{part: Reading(reason="may not be read", permission=f"list {part}")})
        try:
            result = why(without, world.target)
        except UnknownTarget:
            continue
        assert result.verdict != "broken" or result.link in (fault.link, fault.also), f"without {part}:\n{said(result)}"


@pytest.mark.parametrize("case", NEAR_MISSES, ids=lambda case: case.name)
def test_a_near_miss_is_not_called_broken(case: Case) -> None:
    world = case.world(AT)
    for result in walks(world.snapshot(), "dev", world.target):
        assert (result.verdict, result.link) == (case.verdict, case.link), said(result)


# Two things at once.

APART = count(3, 1)
"""Of so many pairs one is tried: links are few, and each stands in hundreds of pairs."""


def both(first: Change, second: Change, fleet: str) -> World | None:
    """Return a world with two changes, at first without runners; None where they cannot both be."""
    for keep in (False, True):
        world = World(variant(fleet), AT, keep=keep)
        try:
            first(world)
            second(world)
        except (Contradiction, AssertionError, ValueError, KeyError, IndexError):
            continue  # one takes away what the other changes
        return world
    return None


def test_what_stands_beside_a_fault_is_not_blamed() -> None:
    wrong, tried = [], 0
    for fault, other, first in list(product(FAULTS, BESIDE, (True, False)))[::APART]:
        changes = (fault.change, other.change) if first else (other.change, fault.change)
        if (world := both(*changes, fault.fleet)) is None:
            continue
        tried += 1
        result = why(world.snapshot(), world.target)
        if (result.verdict, result.link) != ("broken", fault.link):
            wrong.append(f"{fault.name} + {other.name}: {result.verdict}, {result.link}\n{said(result)}")
    assert wrong == []
    assert tried > 1500 / APART


def test_of_two_faults_the_first_link_is_named() -> None:
    """Where a runner has no pod at the moment, a node's state is not its own."""
    order, wrong, tried = list(LINKS), [], 0
    of_a_node = ("kubelet_has_stopped", "network_of_the_node_does_not_start", "spot_instance_is_taken_back")
    for one, other in list(combinations([fault for fault in FAULTS if not fault.alone], 2))[::APART]:
        if one.fleet != other.fleet or (world := both(one.change, other.change, one.fleet)) is None:
            continue
        tried += 1
        result = why(world.snapshot(), world.target)
        without_pod = world.has("EphemeralRunner", POD) and not world.has("Pod", POD)
        own = [fault for fault in (one, other) if not (without_pod and fault.name in of_a_node)]
        first = min((fault.link for fault in own), key=order.index)
        if (result.verdict, result.link) != ("broken", first):
            wrong.append(f"{one.name} + {other.name}: {result.verdict}, {result.link}, not {first}\n{said(result)}")
    assert wrong == []
    assert tried > 1000 / APART


@pytest.mark.parametrize("case", BESIDE, ids=lambda case: case.name)
def test_a_fleet_at_work_is_not_broken(case: Case) -> None:
    result = why(case.world(AT).snapshot())
    assert {outcome.status for key, outcome in result.outcomes.items() if key not in ("github", "job")} == {"ok"}, said(
        result
    )


# Jobs.


def test_a_job_of_two_sets_waits_only_where_neither_takes_it() -> None:
    """GitHub gives a job to any scale set that has its labels."""
    world = World(variant("two-sets"), AT)
    world.queued("self-hosted", "gpu")
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    results = walks(world.snapshot(), "dev", world.target)
    assert [(result.subject.scale_set, result.verdict) for result in results] == [
        ("gpu", "broken"),
        ("more", "unknown"),
    ]
    assert verdict(results) == "unknown"
    world.get("AutoscalingListener", "more-754b578d-listener")["spec"]["runnerScaleSetId"] = 3
    assert verdict(walks(world.snapshot(), "dev", world.target)) == "broken"


def test_each_scale_set_counts_where_no_job_is_named() -> None:
    world = World(variant("two-sets"), AT)
    world.get("AutoscalingListener", LISTENER)["spec"]["runnerScaleSetId"] = 3
    assert verdict(walks(world.snapshot(), "dev")) == "broken"


def test_a_running_job_is_not_judged_by_its_drained_set(world: World) -> None:
    world.in_progress()
    world.runner_set["spec"]["maxRunners"] = 0
    result = why(world.snapshot(), world.target)
    assert (result.outcomes["scale-set"].status, result.outcomes["registration"].status) == ("not-reached", "ok")
    assert result.verdict == "ok"


def test_a_second_reading_separates_a_lost_runner_from_a_finished_one(world: World) -> None:
    world.in_progress("gpu-abc12-runner-zz")
    first = world.snapshot()
    assert why(first, world.target).outcomes["runner"].passing
    again = why(replace(world.snapshot(), earlier=first), world.target)
    assert (again.verdict, again.outcomes["runner"].passing) == ("broken", False)
    world.jobs[0] |= {"status": "completed", "conclusion": "success"}
    assert why(replace(world.snapshot(), earlier=first), world.target).verdict == "ok"


def test_a_second_reading_separates_a_new_listener_from_one_that_ends(world: World) -> None:
    world.no_runner()
    world.ages["Pod", LISTENER] = 0.05
    world.listener_pod()["metadata"]["uid"] = "1"
    first = world.snapshot()
    assert why(first).outcomes["listener"].passing
    assert why(replace(world.snapshot(), earlier=first)).outcomes["listener"].status == "ok"
    world.listener_pod()["metadata"]["uid"] = "2"
    assert why(replace(world.snapshot(), earlier=first)).outcomes["listener"].runbook == "listener-crashing"


def test_the_command_reads_again_only_where_that_helps(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr("paddock.operate.why.command.time", SimpleNamespace(sleep=waits.append))
    world.in_progress("gpu-abc12-runner-zz")
    first = world.snapshot()
    world.jobs[0] |= {"status": "completed", "conclusion": "success"}
    taken = iter([first, world.snapshot()])
    snapshot, (result,) = examine(lambda: next(taken), "dev", world.target, wait=7)
    assert (snapshot.earlier, result.verdict) == (first, "ok")
    taken = iter([world.snapshot()])
    assert examine(lambda: next(taken), "dev", world.target, wait=7)[0].earlier is None
    assert waits == [7]


def test_the_newest_failure_of_an_idle_set_is_not_hidden_by_a_warm_runner(world: World) -> None:
    world.idle()
    message = 'Failed to create the pod: pods "x" is forbidden: exceeded limit'
    world.another("gpu-abc12-runner-zz", phase="Failed", reason="InvalidPod", message=message)
    world.ages["EphemeralRunner", "gpu-abc12-runner-zz"] = 5
    result = why(world.snapshot())
    assert (result.link, result.outcomes[result.link].runbook) == ("pod", "pod-refused"), said(result)


# Time.


def test_ages_are_of_the_clock_that_wrote_them() -> None:
    """AWS's clock is an hour ahead of the cluster's, and GitHub's an hour behind."""
    world = World(variant("dev"), AT)
    world.pending()
    world.launch(QUOTA)
    for activity in world.activities:
        activity["StartTime"] += timedelta(hours=1)
    snapshot = replace(world.snapshot(), clocks={"aws": AT + timedelta(hours=1)})
    assert why(snapshot).link == "node-group"
    world = World(variant("dev"), AT)
    world.no_runner()
    world.queued("self-hosted", "gpu", minutes=61)
    snapshot = replace(world.snapshot(), clocks={"github": AT - timedelta(hours=1)})
    assert why(snapshot, world.target).verdict == "waits"


def test_a_slow_clock_makes_no_negative_ages(world: World) -> None:
    snapshot = replace(world.snapshot(), at=AT - timedelta(hours=3))
    assert snapshot.age(world.snapshot().nodes.items[0]) == timedelta()


# What is not known.


def test_nothing_known_is_unknown() -> None:
    result = why(Snapshot(variant("dev").fleet, AT))
    assert {outcome.status for outcome in result.outcomes.values()} == {"unknown", "not-reached"}
    assert result.verdict == "unknown"


def test_an_unknown_name_gets_a_hint(world: World) -> None:
    with pytest.raises(UnknownTarget, match=r"gpuu is not a scale set[\s\S]*did you mean gpu\?"):
        walks(world.snapshot(), "dev", "gpuu")


@pytest.mark.parametrize("words", [["gpuu"], ["--target", "gpuu"]])
def test_a_target_on_the_command_line_is_resolved(
    words: list[str], root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write_kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1")
    monkeypatch.chdir(root)
    assert main(["inv", "why", *words, "--kubeconfig", str(file)]) == 2
    assert "did you mean gpu?" in capsys.readouterr().err


def test_a_pod_that_waits_for_one_of_a_thousand_nodes_takes_two_seconds_of_work(world: World) -> None:
    world.pending()
    for number in range(1000):
        name = f"many-{number}"
        world.add_node(name)
        pod = copy.deepcopy(world.pod)
        pod["metadata"] = {"name": f"pod-{number}", "namespace": "default"}
        pod["spec"]["nodeName"] = name
        pod["status"] = {"phase": "Running"}
        world.objects.append(pod)
    snapshot = world.snapshot()
    began = time.process_time()
    result = why(snapshot)
    assert time.process_time() - began < 2
    assert (result.verdict, result.link) == ("unknown", "node-group"), said(result)


def test_words_of_others_steer_no_terminal(world: World) -> None:
    world.stuck("ErrImagePull", "not found \x1b[31m\udcff")
    evidence = why(world.snapshot()).outcomes["image-pull"].evidence
    assert "\x1b" not in evidence
    assert NODE not in evidence


def test_a_log_that_is_no_text_is_searched_all_the_same(world: World) -> None:
    world.completed("failure", "\x00\udcff\x1b[31m\nRuntimeError: CUDA out of memory \x1b[0m")
    result = why(world.snapshot(), world.target)
    assert result.outcomes["job"].runbook == "job-gpu-memory"
    assert "\x1b" not in result.outcomes["job"].evidence


# The texts.

OF_LINKS = [book for book in runbooks.runbooks().values() if book.link]
"""Runbooks of `why`; the others are of alerts."""


def test_every_runbook_has_a_fault() -> None:
    assert {fault.runbook for fault in FAULTS} == {book.id for book in OF_LINKS}


def test_every_pain_is_covered_by_what_is_there(root: Path) -> None:
    names = {one.name for one in (*FAULTS, *NEAR_MISSES)}
    rules = {*RULES, *FINDINGS}

    def is_there(word: str) -> bool:
        path, _, test = word.partition("::")
        if "/" in path:
            return (root / path).exists() and test in (root / path).read_text()
        return word in names or word in rules

    assert len(PAINS) == 20
    assert {pain: missing for pain, words in PAINS.items() if (missing := [w for w in words if not is_there(w)])} == {}


def test_every_runbook_is_of_a_link_and_met_by_a_judge(root: Path) -> None:
    sources = "\n".join(path.read_text() for path in (root / "paddock/operate/why/links").glob("*.py"))
    assert tuple(runbooks.LINKS) == tuple(JUDGES)
    for book in OF_LINKS:
        assert book.link in JUDGES
        assert f'"{book.id}"' in sources, f"no link names {book.id}"


def test_the_page_of_runbooks_is_the_text_of_the_command(root: Path) -> None:
    assert (root / "docs/why-runbooks.md").read_text() == runbooks.page(), "run ./inv docs.generate"


def test_the_guide_shows_what_is_printed(world: World, root: Path) -> None:
    world.pending()
    world.bought(6)
    world.launch(QUOTA)
    snapshot = replace(world.snapshot(), jobs=Reading(reason="no credential for GitHub: --github-key FILE"))
    report = Walks(stack="dev", snapshot=snapshot, cluster=None, walks=walks(snapshot, "dev", "gpu"))
    printed = list(report.text())[1:]
    guide = [line.rstrip() for line in (root / "docs/why.md").read_text().splitlines()]
    assert [line for line in printed if line not in guide] == []
