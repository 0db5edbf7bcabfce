"""Jobs run again, on a stand-in for GitHub's REST API and objects of a cluster: what is asked, changed and said."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from paddock.console.output import PRINTED_JSON, BadFlag
from paddock.fleet import Stack
from paddock.operate.runners.rerun import command
from paddock.operate.runners.rerun.command import Rerun, rerun
from paddock.operate.runners.rerun.report import JobLine, JobsRerun
from paddock.operate.runners.rerun.session import Session
from paddock.operate.sources import interruptions
from paddock.operate.sources.aws_instances import Instance, Instances
from paddock.operate.sources.github import GitHubReader, RateLimited
from paddock.operate.sources.github_actions import Actions
from paddock.operate.sources.unavailable import Unavailable
from tests.support.actions_api import CANCELED, EXIT, LOST, PERSON, SHUT, TOKEN, ActionsApi, serve, stamp
from tests.support.aws_account import Account, answering
from tests.support.chain_objects import NODE, POD
from tests.support.chain_world import World
from tests.support.kubernetes_api import write_kubeconfig

AT = datetime.now(UTC).replace(microsecond=0)
DAY = 86400.0
"""Seconds back to the jobs of a command: the suite may run for longer than an hour after `AT`."""
TAKEN = Instance("i-0a", "t4", "terminated", dns=NODE, reason="Server.SpotInstanceTermination")
GONE = Instances((replace(TAKEN, launched=AT - timedelta(hours=3), request_at=AT - timedelta(minutes=11)),))


@pytest.fixture
def world(stack: Stack) -> World:
    """A fleet whose node has just been taken from under its job: the pod is still there to say where it was."""
    world = World(stack, AT)
    world.pod["metadata"]["creationTimestamp"] = stamp(AT - timedelta(minutes=45))
    world.drop("Node", NODE)
    return world


@pytest.fixture
def api() -> Iterator[ActionsApi]:
    with serve(ActionsApi(AT)) as api:
        yield api


Passes = Callable[..., list[JobLine]]


@pytest.fixture
def run_pass(api: ActionsApi, world: World) -> Passes:
    def run(*, change: bool = True, since_minutes: float = 60, instances: Instances = GONE) -> list[JobLine]:
        run.session = one = Session(world.fleet, actions(api), lambda snapshot, since: instances)  # type: ignore[attr-defined]
        since = AT - timedelta(minutes=since_minutes)
        return one.run(world.snapshot(), sorted(api.runs), since, change=change)

    return run


def actions(api: ActionsApi) -> Actions:
    return Actions(GitHubReader(f"{api.url}/api/v3", TOKEN))


def lost(api: ActionsApi, run: int = 1, number: int = 42, *notes: str, **changes: Any) -> None:
    api.job(run, number, *(notes or (LOST,)), runner_name=POD, **changes)


def states(lines: list[JobLine]) -> dict[int, str]:
    return {line.job: line.state for line in lines}


def test_lost_job_is_run_again_and_its_evidence_said(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api)
    (line,) = run_pass()
    assert (line.state, line.instance, line.node) == ("rerun", "i-0a", NODE), line
    assert "was taken back: Server.SpotInstanceTermination" in line.message
    assert "lost communication with the server; run again, attempt 2" in line.message
    assert api.posted == ["/api/v3/repos/acme/app/actions/jobs/42/rerun"]


def test_dry_run_asks_and_changes_nothing(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api)
    assert states(run_pass(change=False)) == {42: "planned"}
    assert api.posted == []


def test_job_that_failed_by_itself_or_was_cancelled_is_left(api: ActionsApi, run_pass: Passes) -> None:
    failed = {"name": "Test", "conclusion": "failure", "completed_at": stamp(AT - timedelta(minutes=10))}
    api.run(1)
    lost(api, 1, 41, EXIT, steps=[failed])
    lost(api, 1, 42, PERSON, CANCELED, conclusion="cancelled")
    lines = {line.job: line for line in run_pass()}
    assert states(list(lines.values())) == {41: "left", 42: "left"}
    assert "its step Test failed" in lines[41].message
    assert PERSON in lines[42].message
    assert api.posted == []


def test_log_says_what_annotations_no_more_do(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api, 1, 42, CANCELED, conclusion="cancelled")
    api.logs[42] = f"2026-11-24T11:50:00Z ##[error]{SHUT}\n2026-11-24T11:50:01Z Cleaning up\n"
    assert states(run_pass()) == {42: "rerun"}


def test_words_that_a_job_printed_are_no_evidence(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api, 1, 42, CANCELED, conclusion="cancelled")
    api.logs[42] = f"2026-11-24T11:50:00Z echo {SHUT}\n"
    (line,) = run_pass()
    assert (line.state, "nothing says that its runner ended" in line.message) == ("unknown", True)


def test_run_in_progress_waits_and_is_run_again_later(api: ActionsApi, run_pass: Passes) -> None:
    run = api.run(1, status="in_progress", conclusion=None)
    lost(api)
    (line,) = run_pass()
    assert (line.state, "--watch" in line.fix, api.posted) == ("waits", True, [])
    assert "still in progress" in line.message
    run |= {"status": "completed", "conclusion": "failure"}
    assert states(run_pass()) == {42: "rerun"}


def test_run_that_somebody_started_meanwhile_waits(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api)
    api.refuses[r"GET .*/runs/1$"] = (200, {"id": 1, "status": "queued", "run_attempt": 2})
    (line,) = run_pass()
    assert (line.state, api.posted) == ("waits", [])
    assert "its run was started again" in line.message


def test_race_with_another_rerun_waits(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api)
    api.refuses["POST"] = (403, {"message": "The workflow run containing this job is already running"})
    assert states(run_pass()) == {42: "waits"}


def test_third_attempt_is_the_last(api: ActionsApi, run_pass: Passes) -> None:
    run = api.run(1)
    for attempt in (1, 2):
        run |= {"status": "completed", "conclusion": "failure", "run_attempt": attempt}
        api.jobs.clear()
        lost(api, 1, 40 + attempt, run_attempt=attempt)
        assert states(run_pass()) == {40 + attempt: "rerun"}
    run |= {"status": "completed", "conclusion": "failure", "run_attempt": 3}
    # GitHub carries jobs over that an attempt did not run: the run's own number counts.
    api.jobs.clear()
    lost(api, 1, 43, run_attempt=1)
    (line,) = run_pass()
    assert (line.state, "at most twice" in line.message, len(api.posted)) == ("left", True, 2)


def test_two_lost_jobs_of_a_run_share_an_attempt(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api, 1, 42)
    lost(api, 1, 43)
    assert states(run_pass()) == {42: "rerun", 43: "rerun"}
    assert api.posted == ["/api/v3/repos/acme/app/actions/runs/1/rerun-failed-jobs"]


def test_lost_jobs_beside_one_that_failed_take_turns(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api, 1, 42)
    lost(api, 1, 43)
    api.job(1, 44, EXIT, name="lint", runner_name="GitHub Actions 12")
    lines = {line.job: line for line in run_pass()}
    assert states(list(lines.values())) == {42: "rerun", 43: "waits"}, "a job of another runner has no line"
    assert "not run again with it: lint" in lines[42].message
    assert "lint failed by itself" in lines[43].message
    assert api.posted == ["/api/v3/repos/acme/app/actions/jobs/42/rerun"]


def test_earlier_jobs_and_successful_runs_are_skipped(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api, 1, 42, completed_at=stamp(AT - timedelta(minutes=59)), started_at=stamp(AT - timedelta(minutes=70)))
    api.run(2, conclusion="success")
    lost(api, 2, 43)
    api.run(3, created_at=stamp(AT - timedelta(days=3)))
    lost(api, 3, 44)
    assert run_pass(since_minutes=30) == []
    assert not [request for request in api.requests if "/runs/2/" in request or "/runs/3/" in request]


def test_old_run_is_found_by_the_runner_that_has_its_job(api: ActionsApi, run_pass: Passes, world: World) -> None:
    world.get("EphemeralRunner")["status"] |= {"jobRepositoryName": "acme/app", "workflowRunId": 3}
    api.run(3, created_at=stamp(AT - timedelta(days=3)))
    lost(api, 3, 44)
    assert states(run_pass()) == {44: "rerun"}


def test_many_runs_and_jobs_are_paged(api: ActionsApi, run_pass: Passes) -> None:
    for number in range(1, 131):
        api.run(number)
    for number in range(1000, 1129):
        api.job(1, number, EXIT, runner_name="GitHub Actions 12")
    lost(api, 1, 2000)
    lost(api, 130, 2001)
    assert states(run_pass()) == {2000: "rerun", 2001: "rerun"}
    assert api.requests.count("GET /api/v3/repos/acme/app/actions/runs") == 2


def test_refusal_names_the_right_and_the_others_go_on(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    api.run(2)
    lost(api, 1, 42)
    lost(api, 2, 43)
    api.refuses["POST .*/jobs/42/"] = (403, {"message": "Resource not accessible by integration"})
    lines = {line.job: line for line in run_pass()}
    assert states(list(lines.values())) == {42: "failed", 43: "rerun"}
    assert "Resource not accessible by integration" in lines[42].message


def test_annotations_that_may_not_be_read_leave_a_job_alone(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api)
    api.refuses["annotations"] = (403, {"message": "Resource not accessible by integration"})
    (line,) = run_pass()
    assert (line.state, line.permission, api.posted) == ("unknown", "checks: read", [])


def test_repository_that_cannot_be_read_leaves_the_others(api: ActionsApi, run_pass: Passes) -> None:
    api.run(1)
    lost(api)
    api.run(9, "acme/hidden")
    api.refuses["acme/hidden"] = (404, {"message": "Not Found"})
    assert states(run_pass()) == {42: "rerun"}
    (missed,) = run_pass.session.unread  # type: ignore[attr-defined]
    assert missed.part == "acme/hidden"


def test_last_requests_of_the_hour_are_left_to_others(api: ActionsApi, run_pass: Passes) -> None:
    api.remaining = 251
    api.run(1)
    api.run(2, "acme/zoo")
    lost(api)
    assert run_pass() == []
    (missed,) = run_pass.session.unread  # type: ignore[attr-defined]
    assert missed.part == "acme/app, acme/zoo"
    assert "of 5000 requests of this hour are left" in missed.reason
    assert len(api.requests) == 2


def test_github_that_asks_to_wait_is_not_asked_again(api: ActionsApi) -> None:
    api.refuses["runs"] = (429, {"message": "You have exceeded a secondary rate limit"})
    api.remaining = 1
    with pytest.raises(RateLimited):
        actions(api).runs("acme/app", AT)
    assert len(api.requests) == 1


def test_credential_stays_where_it_belongs(api: ActionsApi) -> None:
    api.run(1)
    api.job(1, 42)
    api.logs[42] = "x" * 100_000 + "end\udcff".encode("utf-8", "replace").decode()
    text = actions(api).log_end("acme/app", 42)
    assert (len(text), text[-4:-1]) == (64 * 1024, "end")


def test_a_node_that_stands_leaves_every_job_alone(api: ActionsApi, stack: Stack) -> None:
    api.run(1)
    lost(api)
    one = Session(stack.fleet, actions(api), lambda snapshot, since: Instances())
    world = World(stack, AT)
    world.pod["metadata"]["creationTimestamp"] = stamp(AT - timedelta(minutes=45))
    world.get("Node", NODE)["metadata"]["creationTimestamp"] = stamp(AT - timedelta(minutes=50))
    (line,) = one.run(world.snapshot(), ["acme/app"], AT - timedelta(hours=1), change=True)
    assert (line.state, "is still there" in line.message) == ("left", True)


def test_watch_knows_the_instance_of_a_node_that_is_gone(api: ActionsApi, stack: Stack) -> None:
    world = World(stack, AT)
    world.pod["metadata"]["creationTimestamp"] = stamp(AT - timedelta(minutes=45))
    world.get("Node", NODE)["spec"]["providerID"] = "aws:///us-west-2a/i-0a"
    world.get("Node", NODE)["metadata"]["creationTimestamp"] = stamp(AT - timedelta(minutes=50))
    two = Instances((replace(GONE.items[0], dns=""), Instance("i-0b", "t4", "terminated")))
    one = Session(stack.fleet, actions(api), lambda snapshot, since: two)
    one.memory.learn(world.snapshot())
    for kind, name in (("Node", NODE), ("Pod", POD), ("EphemeralRunner", "")):
        world.drop(kind, name)
    api.run(1)
    lost(api)
    (line,) = one.run(world.snapshot(), ["acme/app"], AT - timedelta(hours=1), change=True)
    assert (line.state, line.instance) == ("rerun", "i-0a"), line


def test_ctrl_c_keeps_the_lines_of_what_was_done(api: ActionsApi, stack: Stack, world: World) -> None:
    for run in (1, 2):
        api.run(run)
        lost(api, run, 40 + run)
    seen: list[str] = []

    def progress(text: str) -> None:
        seen.append(text)
        if text.endswith("run 2"):
            raise KeyboardInterrupt

    one = Session(stack.fleet, actions(api), lambda snapshot, since: GONE, progress=progress)
    lines = one.run(world.snapshot(), ["acme/app", "acme/zoo"], AT - timedelta(hours=1), change=True)
    assert (states(lines), one.interrupted, len(api.posted)) == ({41: "rerun"}, True, 1)
    assert not [text for text in seen if "zoo" in text]


def test_a_long_watch_forgets_runs_that_are_over(api: ActionsApi, world: World) -> None:
    one = Session(world.fleet, actions(api), lambda snapshot, since: GONE)
    old = stamp(AT - timedelta(days=3))
    api.run(3, created_at=old, updated_at=old)
    one.memory.runs |= {("acme/app", 3), ("acme/app", 4)}
    for _ in range(2):
        one.run(world.snapshot(), ["acme/app"], AT - timedelta(hours=1), change=True)
    assert [request for request in api.requests if request.endswith(("/runs/3", "/runs/4"))] == [
        "GET /api/v3/repos/acme/app/actions/runs/3",
        "GET /api/v3/repos/acme/app/actions/runs/4",
    ]


# The command.


@pytest.fixture
def project_at(project: Path, api: ActionsApi, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project whose GitHub is the stand-in, with a cluster that does not answer."""
    file = project / "Pulumi.dev.yaml"
    server = f'{api.url}/acme\n      serverVersion: "3.21"'
    file.write_text(file.read_text().replace("https://github.com/acme", server))
    (project / "key").write_text(TOKEN)
    write_kubeconfig(project / "kubeconfig", "https://127.0.0.1:1")
    monkeypatch.setenv("XDG_STATE_HOME", str(project / "state"))
    monkeypatch.setenv("PADDOCK_ROOT", str(project))
    answering(monkeypatch, Account({}))
    return project


def run(project: Path, **flags: Any) -> JobsRerun:
    report = rerun(Rerun(kubeconfig=project / "kubeconfig", github_key=project / "key", yes=True, since=DAY, **flags))
    assert isinstance(report, JobsRerun)
    return report


def test_without_a_cluster_nothing_is_run_again(project_at: Path, api: ActionsApi) -> None:
    api.run(1)
    lost(api)
    api.repositories = [{"full_name": "acme/app"}, {"full_name": "acme/old", "archived": True}]
    result = run(project_at)
    report = result.document()
    assert (result.exit_code, report["schema"]) == (1, "paddock.rerun/1")
    assert report["repositories"] == ["acme/app"]
    assert [line["state"] for line in report["jobs"]] == ["unknown"]
    assert "does not answer" in report["jobs"][0]["message"]
    assert {"nodes", "pods", "events"} <= {part["part"] for part in report["unread"]}
    assert api.posted == []
    assert len(api.requests) == 3, "repositories, runs and jobs: no request is wasted"


def test_token_of_a_person_needs_repositories_by_name(project_at: Path, api: ActionsApi) -> None:
    api.run(1)
    text = "\n".join(run(project_at).text())
    assert "repositories not known: only those of runners that are there now" in text
    assert "fix: --repository owner/name" in text
    assert run(project_at, repository=("acme/app",)).repositories == ("acme/app",)


@pytest.mark.parametrize(
    ("flags", "statements"),
    [
        ({"since": 8 * 86400.0}, "at most 7d"),
        ({"watch": True, "yes": True, "json": PRINTED_JSON}, "--watch with --json"),
        ({"dry_run": True, "yes": True}, "leave one out"),
        ({}, "no terminal to ask on"),
        ({"yes": True, "repository": ("app",)}, "owner/name"),
        ({"yes": True, "repository": ("evil/app",)}, "runners are those of acme"),
    ],
)
def test_bad_flags_say_what_was_expected(of_project: Path, flags: dict[str, Any], statements: str) -> None:
    with pytest.raises(BadFlag, match=statements):
        rerun(Rerun(**flags))


def test_a_key_is_needed(of_project: Path) -> None:
    with pytest.raises(BadFlag, match="--github-key is missing"):
        rerun(Rerun(yes=True))


def test_wrong_credential_is_said_without_it(project_at: Path) -> None:
    (project_at / "key").write_text("ghp_of_somebody_else_entirely")
    report = run(project_at, repository=("acme/app",))
    text = "\n".join(report.text())
    assert report.exit_code == 1
    assert "acme/app not known" in text
    assert "ghp_of" not in text


# The record for the cost of interruptions.


def test_lost_jobs_are_kept_once_each(
    api: ActionsApi, run_pass: Passes, stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    api.run(1)
    lost(api)
    run_pass(change=False)
    assert interruptions.read("dev") is None
    for _ in range(2):
        interruptions.keep("dev", command._interruptions(stack.fleet, run_pass.session))  # type: ignore[attr-defined]
    (kept,) = interruptions.read("dev") or ()
    assert (kept.job, kept.repository, kept.scale_set, kept.gpus) == (42, "acme/app", "gpu", 1)
    assert kept.span[1] - kept.span[0] == timedelta(minutes=30)


@pytest.mark.parametrize("text", ["{}", "not JSON", '{"job": 1}', "\udcff"])
def test_damaged_record_is_unknown(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    file = interruptions.path("dev")
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(Unavailable):
        interruptions.read("dev")


# The guide.

NOON = datetime(2026, 11, 24, 12, 0, tzinfo=UTC)
LONG_NODE, LONG_ID = "ip-10-0-0-7.us-west-2.compute.internal", "i-0a1b2c3d4e5f60718"


def test_the_guide_shows_what_is_printed(root: Path, stack: Stack) -> None:
    world = World(stack, NOON)
    world.pod["spec"]["nodeName"] = LONG_NODE
    world.pod["metadata"]["creationTimestamp"] = stamp(NOON - timedelta(minutes=45))
    instance = Instance(LONG_ID, "t4", "terminated", reason="Server.SpotInstanceTermination")
    failed = {"name": "Test", "conclusion": "failure", "completed_at": stamp(NOON - timedelta(minutes=10))}
    with serve(ActionsApi(NOON)) as api:
        api.run(71)
        lost(api, 71, 1, LOST, name="train")
        lost(api, 71, 2, EXIT, name="lint", steps=[failed])
        api.run(72)
        api.job(72, 3, LOST, name="export", runner_name="gpu-abc12-runner-zz9qq")
        one = Session(stack.fleet, actions(api), lambda snapshot, since: Instances((instance,)))
        since = NOON - timedelta(hours=1)
        lines = one.run(world.snapshot(), ["acme/app"], since, change=True)
    names = {"stack": "dev", "fleet": "paddock-dev", "context": "paddock-dev"}
    report = JobsRerun(**names, at=NOON, since=since, repositories=("acme/app",), jobs=tuple(lines))
    page = (root / "docs/day-two.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"\$ \./inv runners\.rerun [^\n]*\n(.*?)```", page, re.DOTALL)
    assert shown == "".join(f"{line}\n" for line in report.text())


def test_the_workflow_of_the_guide_may_do_little_and_names_flags_that_exist(root: Path) -> None:
    page = (root / "docs/day-two.md").read_text(encoding="utf-8")
    (text,) = re.findall(r"```yaml\n(name: rerun-reclaimed\n.*?)```", page, re.DOTALL)
    workflow = yaml.load(text, Loader=yaml.BaseLoader)
    job = workflow["jobs"]["rerun"]
    assert workflow["permissions"] == {}
    assert job["permissions"] == {"actions": "write", "checks": "read", "contents": "read", "id-token": "write"}
    pinned = set(re.findall(r"uses: (\S+@[0-9a-f]{40})", text))
    ours = "".join(path.read_text(encoding="utf-8") for path in (root / ".github/workflows").glob("*.yml"))
    assert pinned
    assert all(action in ours for action in pinned)
    script = job["steps"][-1]["run"]
    assert "${{" not in script
    flags = {flag.flag.name for flag in Rerun.flags()}
    assert set(re.findall(r" --([a-z-]+)", script.partition("runners.rerun")[2])) <= flags
