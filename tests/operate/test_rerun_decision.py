"""The decision to run a job again, on plain data: each reason to leave one alone, and what it takes to run one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paddock.operate.runners.rerun.decide import decide
from paddock.operate.runners.rerun.model import Evidence, FailedStep, Job, NodeVerdict, Placement, Statements
from paddock.operate.runners.rerun.plan import request
from tests.support.actions_api import CANCELED, EXIT, LOST, PERSON, SHUT

GONE = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
"""When AWS says that it takes the node back."""
JOB = Job(
    repository="acme/app",
    run=7,
    id=42,
    name="train",
    workflow="ci",
    url="",
    check_run=42,
    runner="gpu-abc12-runner-x1",
    attempt=1,
    status="completed",
    conclusion="failure",
    started=GONE - timedelta(minutes=30),
    ended=GONE + timedelta(minutes=1),
    failed_steps=(),
    run_over=True,
)
PLACE = Placement("arc-runners/gpu-abc12-runner-x1", "ip-10-0-0-7", GONE - timedelta(minutes=31), pool="t4")
TAKEN = NodeVerdict("taken-back", "its node ip-10-0-0-7 was taken back", GONE, "i-0a")
EVIDENCE = Evidence(((PLACE, TAKEN),))


def after(minutes: float) -> datetime:
    return GONE + timedelta(minutes=minutes)


def killed(minutes: float) -> Evidence:
    return Evidence(((replace(PLACE, killed=after(minutes)), TAKEN),))


@pytest.mark.parametrize("words", [LOST, SHUT, "Operating system is shutting down for computer 'gpu-x1'"])
@pytest.mark.parametrize("conclusion", ["failure", "cancelled"])
def test_a_job_whose_runner_ended_with_its_node_runs_again(words: str, conclusion: str) -> None:
    decision = decide(replace(JOB, conclusion=conclusion), EVIDENCE, Statements((CANCELED, words)))
    assert (decision.state, decision.node, decision.instance, decision.lost) == ("rerun", "ip-10-0-0-7", "i-0a", True)


def test_a_kubelet_that_ended_the_pod_first_is_enough() -> None:
    decision = decide(replace(JOB, conclusion="cancelled"), killed(0.5), Statements((CANCELED,)))
    assert (decision.state, "the kubelet ended" in decision.why) == ("rerun", True)


def test_a_step_that_failed_because_its_pod_was_ended_is_no_fault_of_its_own() -> None:
    job = replace(JOB, failed_steps=(FailedStep("Run in container", after(0.8)),))
    assert decide(job, killed(0.5), Statements((EXIT,))).state == "rerun"


LEFT = {
    "succeeded": (replace(JOB, conclusion="success"), EVIDENCE, Statements((LOST,)), "it ended as success"),
    "timed out": (replace(JOB, conclusion="timed_out"), EVIDENCE, Statements((LOST,)), "it ended as timed_out"),
    "still runs": (replace(JOB, conclusion="", status="in_progress"), EVIDENCE, None, "in_progress"),
    "no runner": (replace(JOB, runner=""), EVIDENCE, None, "no runner ever had it"),
    "third attempt": (replace(JOB, attempt=3), EVIDENCE, Statements((LOST,)), "at most twice"),
    "cancelled by a person": (replace(JOB, conclusion="cancelled"), EVIDENCE, Statements((PERSON, CANCELED)), PERSON),
    "person beside the loss": (replace(JOB, conclusion="cancelled"), killed(0.5), Statements((PERSON, LOST)), PERSON),
    "a newer run": (
        replace(JOB, conclusion="cancelled"),
        killed(0.5),
        Statements(("Canceling since a higher priority waiting request for ci-main exists",)),
        "higher priority",
    ),
    "matrix": (
        replace(JOB, conclusion="cancelled"),
        killed(0.5),
        Statements(('The strategy configuration was canceled because "test._3_11" failed',)),
        "strategy configuration",
    ),
    "failed before": (
        replace(JOB, ended=after(-5), failed_steps=(FailedStep("Test", after(-5.1)),)),
        EVIDENCE,
        Statements((EXIT,)),
        "before its node ip-10-0-0-7 went",
    ),
    "step failed before": (
        replace(JOB, failed_steps=(FailedStep("Test", after(-0.1)),)),
        EVIDENCE,
        Statements((LOST,)),
        "its step Test failed before",
    ),
    "failed by itself meanwhile": (
        replace(JOB, failed_steps=(FailedStep("Test", after(0.3)),)),
        killed(0.5),
        Statements((EXIT,)),
        "its step Test failed by itself",
    ),
    "node kept": (
        JOB,
        Evidence(((PLACE, NodeVerdict("kept", "its node ip-10-0-0-7 is still there")),)),
        Statements((LOST,)),
        "is still there",
    ),
}


@pytest.mark.parametrize("case", LEFT, ids=lambda case: case.replace(" ", "-"))
def test_a_job_that_its_node_did_not_end_is_left_alone(case: str) -> None:
    job, evidence, statements, why = LEFT[case]
    decision = decide(job, evidence, statements)
    assert (decision.state, why in decision.why) == ("left", True), decision


UNKNOWN = {
    "no pod and no event": (JOB, Evidence((), "no event says on which node it was", "--watch"), None, "no event"),
    "node unknown": (
        JOB,
        Evidence(((PLACE, NodeVerdict("unknown", "EC2 denies", fix="allow", permission="ec2:DescribeInstances")),)),
        Statements((LOST,)),
        "EC2 denies",
    ),
    "annotations forbidden": (
        JOB,
        EVIDENCE,
        Statements((), "may not be read", permission="checks: read"),
        "may not be read",
    ),
    "nothing says that the runner ended": (
        replace(JOB, conclusion="cancelled"),
        EVIDENCE,
        Statements((CANCELED,)),
        "nothing says that its runner ended",
    ),
    "long after": (replace(JOB, ended=after(120)), EVIDENCE, Statements((LOST,)), "long after its node"),
    "no times": (replace(JOB, ended=None), EVIDENCE, Statements((LOST,)), "reports no times"),
}


@pytest.mark.parametrize("case", UNKNOWN, ids=lambda case: case.replace(" ", "-"))
def test_without_evidence_a_job_is_unknown(case: str) -> None:
    job, evidence, statements, why = UNKNOWN[case]
    decision = decide(job, evidence, statements)
    assert (decision.state, why in decision.why) == ("unknown", True), decision


def test_github_is_asked_for_words_only_where_they_decide() -> None:
    assert decide(JOB, EVIDENCE).state == "ask"
    for job, evidence, statements, _ in LEFT.values():
        if decide(job, evidence).state == "ask":
            assert statements is not None
            assert decide(job, evidence, statements).state == "left"


@given(
    conclusion=st.sampled_from(["success", "failure", "cancelled", "timed_out", "skipped", "neutral", ""]),
    attempt=st.integers(1, 9),
    ended=st.floats(-200, 200),
    state=st.sampled_from(["taken-back", "kept", "unknown"]),
    texts=st.lists(st.sampled_from([PERSON, LOST, SHUT, CANCELED, EXIT, ""]), max_size=3),
    kill=st.none() | st.floats(-30, 30),
)
def test_no_job_runs_again_against_a_rule(
    conclusion: str, attempt: int, ended: float, state: str, texts: list[str], kill: float | None
) -> None:
    job = replace(JOB, conclusion=conclusion, attempt=attempt, ended=after(ended))
    place = replace(PLACE, killed=None if kill is None else after(kill))
    verdict = replace(TAKEN, state=state)  # type: ignore[arg-type]
    decision = decide(job, Evidence(((place, verdict),)), Statements(tuple(texts)))
    if decision.state == "rerun":
        assert conclusion in ("failure", "cancelled")
        assert attempt < 3
        assert state == "taken-back"
        assert PERSON not in texts
        assert ended >= min(0, 0 if kill is None else kill) - 1
        assert {LOST, SHUT} & set(texts) or kill is not None


# What is asked of GitHub for one run.


def test_one_lost_job_runs_alone_and_the_others_are_named() -> None:
    own = replace(JOB, id=43, name="lint")
    asked = request([JOB], [JOB, own, replace(JOB, id=44, name="docs", conclusion="success")])
    assert (asked.kind, asked.jobs, asked.note) == ("job", (JOB,), "not run again with it: lint")
