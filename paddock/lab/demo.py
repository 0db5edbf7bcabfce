"""Demonstration of one GPU job, from its push to the removal of its node, printed step by step."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from json import loads
from typing import Any

from paddock.console.output import NO_JSON, JsonOutput, say
from paddock.console.progress import Progress
from paddock.console.report import Report
from paddock.errors import did_you_mean
from paddock.fleet import Stack
from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import JOB_SECONDS, github
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import inv
from paddock.lab.errors import LabError, LabInputError
from paddock.lab.simulators import timeline
from paddock.lab.simulators.scaling import Group
from paddock.lab.simulators.timeline import JobTimeline
from paddock.lab.stack.engine import NO_PROVIDER, Programs
from paddock.labels import POOL
from paddock.process import STOP_SIGNALS, blocked

PATIENCE_SECONDS = 60.0
"""Beyond the job's own length, a boot, and the time after which a node counts as idle."""
POLL_SECONDS = 0.2
_LONGEST_SECONDS = 24 * 3600


@dataclass(frozen=True, kw_only=True)
class Story(Report):
    """Outcome of the demonstration; its steps were printed when they happened."""

    SCHEMA = "paddock.lab.demo/1"
    runner: str
    job: JobTimeline
    pool: str
    nodes_left: int
    missing: str = ""
    """The step that was not reached in time."""
    events: tuple[str, ...] = ()
    """Events of the job's pod, where a step is missing."""
    fix: str = ""

    @property
    def ok(self) -> bool:
        return not self.missing and self.job.result == "succeeded"

    @property
    def exit_code(self) -> int:
        return 0 if self.ok else 1

    def document(self) -> dict[str, Any]:
        outcome = {"ok": self.ok, "runner": self.runner, "pool": self.pool, "nodes_left": self.nodes_left}
        gone = {"missing": self.missing, "events": list(self.events), "fix": self.fix}
        return {"schema": self.SCHEMA, **outcome, **self.job.document(), **gone}


def demo(
    lab: Lab,
    stack: Stack,
    *,
    job_seconds: float = JOB_SECONDS,
    json: JsonOutput = NO_JSON,
    runner: str = "",
    bound: float | None = None,
) -> Story:
    """Push a job for `runner`, the fleet's first by default, and follow it until its pool is empty again.

    Every step is a line when it happens, unless JSON is printed in its place. `bound`: seconds for all of it. A
    missing step is part of the result, and its job is canceled. Raises LabError and LabInputError.
    """
    name = _runner(stack, runner)
    pool = stack.fleet.runners[name].pool
    if not (math.isfinite(job_seconds) and 0 < job_seconds <= _LONGEST_SECONDS):
        raise LabInputError(f"a job cannot work for {job_seconds} seconds\n    expected: more than 0, at most a day")
    _ready(lab)
    groups, pause = _groups(lab, pool)
    control, waiting = github.Control(github.url_of(lab)), Progress(quiet=True)
    with lab_api(lab.kubeconfig) as api:
        if not timeline.scale_sets(api):
            raise _not_applied(lab)
        labels, number = stack.fleet.runners[name].effective_labels, 0
        try:
            with blocked(STOP_SIGNALS):  # else the job could be there, and its number not
                number = control.push(labels, job_seconds, f"demo of {name}")["id"]
            say(json, f"job {number}: runs-on [{', '.join(labels)}], {job_seconds:g} s of work, for pool {pool}")
            deadline = time.monotonic() + (PATIENCE_SECONDS + job_seconds + pause if bound is None else bound)
            job, node_count = _follow(
                api, control, number, pool, sum(group.min for group in groups), deadline, json, waiting
            )
            missing = _missing(job, node_count > sum(group.min for group in groups))
            story = Story(
                runner=name,
                job=job,
                pool=pool,
                nodes_left=node_count,
                missing=missing,
                events=_events(api, job) if missing else (),
                fix=_fix(api, lab, job, missing, groups) if missing else "",
            )
        finally:
            waiting.clear()
            if number:
                with blocked(STOP_SIGNALS):
                    control.cancel(number)  # nothing, where it is completed
    if not missing:
        return story
    say(json, f"{missing!r} did not come in time{f': {job.why}' if job.why else ''}")
    for line in story.events:
        say(json, f"    | {line}")
    say(json, f"    fix: {story.fix}")
    return story


def _follow(
    api: Api,
    control: github.Control,
    job_id: int,
    pool: str,
    least: int,
    deadline: float,
    json: JsonOutput,
    waiting: Progress,
) -> tuple[JobTimeline, int]:
    """Poll until the job is completed and its pool at its minimum, or the time is up."""
    job: JobTimeline | None = None
    printed: set[str] = set()
    while True:
        snapshot = timeline.observe(api, control)
        current = next(entry for entry in timeline.from_snapshot(snapshot) if entry.number == job_id)
        job = current.after(job)
        if job.node and job.node not in snapshot.nodes:
            job = job.with_step("node gone", time.time())
        node_count = sum((node["metadata"].get("labels") or {}).get(POOL) == pool for node in snapshot.nodes.values())
        for step in job.steps:
            if step.name not in printed and step.at is not None:
                printed.add(step.name)
                waiting.clear()
                say(json, f"{job.seconds(step.name):8.1f} s  {step.name:<10}  {step.note}".rstrip())
        over = job.state == "completed"
        if over and node_count <= least:
            waiting.clear()
            say(json, f"pool {pool} is back at {node_count} node{'' if node_count == 1 else 's'}")
            return job, node_count
        if time.monotonic() >= deadline:
            return job, node_count
        waiting.now(f"waits for: {f'{node_count} nodes of pool {pool} to be given back' if over else job.why}")
        time.sleep(POLL_SECONDS)


def _missing(job: JobTimeline, crowded: bool) -> str:
    """Return the first step that was not reached."""
    for step in job.steps:
        if step.at is None and step.name not in timeline.OPTIONAL | {"node gone"} and step.note != "unknown":
            return step.name
    return "node gone" if crowded else ""


def _events(api: Api, job: JobTimeline) -> tuple[str, ...]:
    namespace, _, name = job.pod.partition("/")
    if not name:
        return ()
    events = api.list("v1", "Event", namespace, fieldSelector=f"involvedObject.name={name}")
    return tuple(f"{event['reason']}: {event.get('message', '')}" for event in events[-8:])


def _fix(api: Api, lab: Lab, job: JobTimeline, missing: str, groups: tuple[Group, ...]) -> str:
    logs = lab.folder / "logs"
    match missing:
        case "acquired":
            return f"is the stack applied, and does its scale set have these labels? {logs}/arc.log says what ARC did"
        case "pod made":
            return (
                f"{logs}/arc.log says what ARC did; a quota or an admission policy of the namespace may refuse the pod"
            )
        case "scheduled":
            namespace, _, name = job.pod.partition("/")
            pod = api.find("v1", "Pod", name, namespace) if name else None
            reasons = [f"node group {group.name} {why}" for group in groups if pod and (why := refusal(pod, group))]
            advice = "the pod's template and the pool agree; is the pool at its maximum?"
            return f"{'; '.join(reasons) or advice} {logs}/autoscaler.log says what was decided"
        case "node gone":
            return f"pods hold the nodes ({inv('status', lab.folder)} shows which), or see {logs}/autoscaler.log"
        case _:
            return f"{logs}/runners.log says what became of the runner"


def refusal(pod: Object, group: Group) -> str:
    """Return why even an empty node of a group could not take a pod; empty where it could."""
    node = group.template
    if not pods.selects(pod, node.labels):
        return "does not have the labels that the pod asks for"
    if not pods.tolerates(pod, node.taints):
        taints = ", ".join(f"{taint['key']}={taint.get('value', '')}:{taint['effect']}" for taint in node.taints)
        return f"has a taint that the pod does not tolerate: {taints}"
    requested = pods.requests(pod)
    insufficient = [name for name, amount in requested.items() if amount > node.resources.get(name, 0)]
    return f"has too little {', '.join(insufficient)}" if insufficient else ""


def _runner(stack: Stack, name: str) -> str:
    runners = list(stack.fleet.runners)
    if not runners:
        raise LabInputError(f"stack {stack.name} has no runners\n    fix: add one under `runners:`")
    if name and name not in runners:
        hint = did_you_mean(name, runners, f"expected: one of {', '.join(runners)}")
        raise LabInputError(f"stack {stack.name} has no runner {name!r}\n    {hint}")
    return name or runners[0]


def _ready(lab: Lab) -> None:
    """Raises LabError where no job at all could run."""
    if not lab.up:
        problem = "is not whole" if lab.running else "is not up"
        raise LabError(f"the lab in {lab.folder} {problem}\n    fix: {inv('up', lab.folder)}")
    if not github.url_of(lab):
        raise _not_applied(lab)


def _not_applied(lab: Lab) -> LabError:
    """Name what is missing: the programs that apply a stack, or a complete run of them."""
    up = inv("up", lab.folder)
    try:
        problem = NO_PROVIDER if Programs.find().kubernetes is None else ""
    except LabInputError as error:
        problem = str(error)
    fix = (
        f"{problem}\n    then: {up}"
        if problem
        else f"the stack is not applied in it, or has no scale set\n    fix: {up}"
    )
    return LabError(f"no runner is in the lab's cluster, so no job can run: {fix}")


def _groups(lab: Lab, pool: str) -> tuple[tuple[Group, ...], float]:
    """Return the node groups of a pool, and the seconds of a boot and of the idle time together."""
    try:
        document: Mapping[str, Any] = loads((lab.folder / "groups.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise LabError(f"the lab in {lab.folder} follows no node groups\n    fix: {inv('up', lab.folder)}") from None
    groups = tuple(Group(**group) for group in document["groups"] if group["pool"] == pool)
    boot = max((group.boot_seconds + group.plugin_seconds for group in groups), default=0.0)
    return groups, boot + document["idle_seconds"]
