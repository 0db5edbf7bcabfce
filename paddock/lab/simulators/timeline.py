"""The steps of each job that was pushed into the lab, from the queue to the removal of its node, with their times.

Combined from the records of GitHub's stand-in and of the API server. Kubernetes writes most times in whole seconds:
where the step before is within that second, its instant is taken, so that the steps stay in order.
"""

from __future__ import annotations

import datetime
import http
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from paddock.kubernetes import pods
from paddock.kubernetes.client import Api, Object
from paddock.kubernetes.errors import ApiError
from paddock.kubernetes.kubeconfig import lab_api
from paddock.lab import github
from paddock.lab.control_plane.servers import Lab
from paddock.lab.control_plane.state import inv
from paddock.lab.errors import LabError
from paddock.lab.simulators import runner_sets
from paddock.lab.simulators.workflow_pods import OF_RUNNER, template_map

OPTIONAL = frozenset({"pod waits", "node asked", "node ready"})
"""Steps that a job skips when a node has room, or that may have left no record."""


@dataclass(frozen=True, slots=True)
class JobStep:
    """One step. `at` is None until it is reached, and where it is unknown."""

    name: str
    at: float | None = None
    """Seconds since 1970."""
    note: str = ""


@dataclass(frozen=True, slots=True)
class JobTimeline:
    """The steps of one job, and its state now."""

    number: int
    name: str
    labels: tuple[str, ...]
    state: str
    result: str
    scale_set: str
    pod: str
    """`namespace/name`; empty while there is none."""
    node: str
    steps: tuple[JobStep, ...]
    why: str
    """What it waits for, where known."""

    def step(self, name: str) -> JobStep:
        return next(step for step in self.steps if step.name == name)

    def seconds(self, name: str) -> float | None:
        """Return the time from the push to a step; None until it is reached, or where it is unknown."""
        at, pushed = self.step(name).at, self.steps[0].at
        return None if at is None or pushed is None else round(at - pushed, 3)

    def after(self, earlier: JobTimeline | None) -> JobTimeline:
        """Return this timeline with the steps of an earlier one that can no longer be read."""
        if earlier is None:
            return self
        pairs = zip(self.steps, earlier.steps, strict=True)
        steps = tuple(before if before.at is not None else now for now, before in pairs)
        return replace(self, steps=steps, pod=self.pod or earlier.pod, node=self.node or earlier.node)

    def with_step(self, name: str, at: float) -> JobTimeline:
        """Return this timeline with the time of a step that was observed and not recorded."""
        return replace(
            self, steps=tuple(replace(s, at=at) if s.name == name and s.at is None else s for s in self.steps)
        )

    def document(self) -> dict[str, Any]:
        """Return the timeline as JSON; `seconds` since the push are null where they are unknown."""
        steps = [{"step": step.name, "seconds": self.seconds(step.name), "note": step.note} for step in self.steps]
        texts = {name: getattr(self, name) for name in ("name", "state", "result", "scale_set", "pod", "node")}
        return {"job": self.number, **texts, "labels": list(self.labels), "steps": steps, "waits_for": self.why}


@dataclass(frozen=True, slots=True)
class Snapshot:
    """State of the cluster and of GitHub at one time."""

    jobs: Sequence[Object]
    sets: Sequence[Object]
    pods: Mapping[str, Object]
    """Runner pods, by name."""
    workflow_pods: Mapping[str, Object]
    """Pods of jobs that do not run in their runner's, by the runner's name."""
    nodes: Mapping[str, Object]
    events: Mapping[tuple[str, str], Sequence[Object]]
    """Of a kind and name, the oldest first."""
    runner_sets: Sequence[Object] = field(default=())


def job_timelines(lab: Lab) -> tuple[JobTimeline, ...]:
    """Return every job's timeline in the order of their pushes. Raises LabError where a server does not answer."""
    url = github.url_of(lab)
    if not url:
        raise LabError(f"this lab has no stand-in for GitHub\n    fix: {inv('up', lab.folder)}")
    with lab_api(lab.kubeconfig) as api:
        return from_snapshot(observe(api, github.Control(url)))


def observe(api: Api, control: github.Control) -> Snapshot:
    """Query GitHub and the API server once each."""
    jobs, sets = control.jobs(), control.sets()
    runner_set_objects = scale_sets(api)
    # Events before the pods: a pod read later is at least as new as its events.
    events: dict[tuple[str, str], list[Object]] = {}
    for event in sorted(api.list("v1", "Event"), key=_when):
        about = event["involvedObject"]
        events.setdefault((about.get("kind", ""), about.get("name", "")), []).append(event)
    runner_pods = api.list("v1", "Pod", labelSelector=f"{runner_sets.RUNNER_LABEL}=True")
    own_pods = api.list("v1", "Pod", labelSelector=OF_RUNNER)
    return Snapshot(
        jobs,
        sets,
        {pod["metadata"]["name"]: pod for pod in runner_pods},
        {pod["metadata"]["labels"][OF_RUNNER]: pod for pod in own_pods},
        {node["metadata"]["name"]: node for node in api.list("v1", "Node")},
        events,
        runner_set_objects,
    )


def scale_sets(api: Api) -> list[Object]:
    """Return the AutoscalingRunnerSets of a cluster; none where it does not know the kind yet."""
    return known(api, runner_sets.KIND)


def known(api: Api, kind: str, namespace: str = "") -> list[Object]:
    """Return the objects of one of ARC's kinds; none where the cluster does not know it yet."""
    try:
        return api.list(runner_sets.VERSION, kind, namespace)
    except ApiError as error:
        if error.status != http.HTTPStatus.NOT_FOUND:
            raise
        return []


def from_snapshot(snapshot: Snapshot) -> tuple[JobTimeline, ...]:
    """Return the timelines of all jobs."""
    expected = _expected(snapshot)
    return tuple(_job_timeline(job, expected.get(job["id"], ""), snapshot) for job in snapshot.jobs)


def _expected(snapshot: Snapshot) -> dict[int, str]:
    """Return the pod of each job. GitHub gives a job to an online runner; until then the oldest are paired."""
    pod_names = {job["id"]: job["runner"] for job in snapshot.jobs if job["runner"]}
    names = {runner_set["metadata"]["name"]: runner_sets.set_name(runner_set) for runner_set in snapshot.runner_sets}
    free: dict[str, list[Object]] = {}
    for pod in snapshot.pods.values():
        if pod["metadata"]["name"] not in pod_names.values():
            own = names.get(pod["metadata"]["labels"].get(runner_sets.SET_LABEL, ""), "")
            free.setdefault(own, []).append(pod)
    for name, waiting in free.items():
        acquired = [job for job in snapshot.jobs if job["scale_set"] == name and job["state"] == "acquired"]
        waiting.sort(key=lambda pod: (pod["metadata"]["creationTimestamp"], pod["metadata"]["name"]))
        oldest = sorted(acquired, key=lambda job: _history(job)["acquired"])
        pod_names |= {job["id"]: pod["metadata"]["name"] for job, pod in zip(oldest, waiting, strict=False)}
    return pod_names


def _pod(runner: str, snapshot: Snapshot) -> Object | None:
    """Return the pod that the job runs in: its runner's, or its own."""
    runner_pod = snapshot.pods.get(runner)
    has_workflow_pod = runner_pod is not None and bool(template_map(runner_pod))
    return snapshot.workflow_pods.get(runner) or (None if has_workflow_pod else runner_pod)


def _job_timeline(job: Object, runner: str, snapshot: Snapshot) -> JobTimeline:
    history, saved = _history(job), job["pod"]
    pod = _pod(runner, snapshot)
    name = pod["metadata"]["name"] if pod else saved.get("name", runner)
    events = snapshot.events.get(("Pod", name), ()) if name else ()
    acquired = history.get("acquired")
    registered = job["registered"] or acquired
    created = pod["metadata"]["creationTimestamp"] if pod else saved.get("created")
    pod_made = _instant(created, registered)
    failed = [event for event in events if event["reason"] == "FailedScheduling"]
    waits = _instant(_when(failed[0]), pod_made) if failed else None
    scheduled = next((_instant(_when(event), pod_made) for event in events if event["reason"] == "Scheduled"), None)
    if scheduled is None:
        scheduled = _instant(saved.get("scheduled"), waits or pod_made)
    node = (pod["spec"].get("nodeName") if pod else "") or saved.get("node", "")
    scale_up = next((event for event in events if event["reason"] == "TriggeredScaleUp"), None)
    state = job["state"]
    steps = (
        JobStep("queued", history.get("queued")),
        JobStep("acquired", acquired, f"by scale set {job['scale_set']}" if acquired else ""),
        JobStep("pod made", pod_made, name if pod_made else "" if state in ("queued", "acquired") else "unknown"),
        JobStep(
            "pod waits", waits, pods.clause(failed[-1]["message"]) if failed else "not at all" if scheduled else ""
        ),
        _node_requested(scale_up, waits, scheduled, pod_made),
        _ready(node, scheduled, history["queued"], waits or pod_made, saved, snapshot),
        JobStep("scheduled", scheduled, f"on {node}" if node else ""),
        JobStep("started", history.get("running")),
        JobStep("completed", history.get("completed"), job["result"]),
        _node_removed(node, history.get("completed"), snapshot),
    )
    namespace = pod["metadata"]["namespace"] if pod else saved.get("namespace", "")
    return JobTimeline(
        number=job["id"],
        labels=tuple(job["labels"]),
        pod=f"{namespace}/{name}" if namespace else "",
        node=node,
        steps=steps,
        why=_why(job, pod, snapshot),
        **{key: job[key] for key in ("name", "state", "result", "scale_set")},
    )


def _node_requested(
    event: Object | None, waits: float | None, scheduled: float | None, at_least: float | None
) -> JobStep:
    if event:
        return JobStep("node asked", _instant(_when(event), waits or at_least), pods.clause(event.get("message", "")))
    return JobStep("node asked", None, "unknown" if waits else "not needed" if scheduled else "")


def _ready(
    node: str, scheduled: float | None, pushed: float, at_least: float | None, saved: Object, snapshot: Snapshot
) -> JobStep:
    current = snapshot.nodes.get(node)
    facts = node_facts(current) if current else saved
    at = _instant(facts.get("node_ready"), at_least)
    if at is None:
        return JobStep("node ready", None, "unknown" if node else "")
    if at < pushed:
        return JobStep("node ready", None, "it was there before")
    note = " ".join(filter(None, (node, facts["instance"], facts["capacity"])))
    # A pod is scheduled to what is ready: a time in whole seconds cannot be later.
    return JobStep("node ready", min(at, scheduled or at), note)


def node_facts(node: Object) -> dict[str, Any]:
    """Return what a timeline needs of a node."""
    labels, conditions = node["metadata"].get("labels") or {}, node["status"].get("conditions") or []
    ready = (
        condition["lastTransitionTime"]
        for condition in conditions
        if condition["type"] == "Ready" and condition["status"] == "True"
    )
    return {
        "node_ready": next(ready, None),
        "instance": labels.get("node.kubernetes.io/instance-type", ""),
        "capacity": labels.get("eks.amazonaws.com/capacityType", "").lower().replace("_", "-"),
    }


def _node_removed(node: str, completed: float | None, snapshot: Snapshot) -> JobStep:
    if not node or node in snapshot.nodes:
        return JobStep("node gone")
    removed = (event for event in snapshot.events.get(("Node", node), ()) if event["reason"] == "RemovingNode")
    return JobStep("node gone", _instant(next(map(_when, removed), None), completed), node)


def _why(job: Object, pod: Object | None, snapshot: Snapshot) -> str:
    state = job["state"]
    if state == "queued":
        labels = set(map(str.casefold, job["labels"]))
        serve = [scale_set for scale_set in snapshot.sets if labels <= _labels(scale_set)]
        if not serve:
            return f"no scale set has all of its labels: {', '.join(job['labels'])}"
        return f"scale set {', '.join(scale_set['name'] for scale_set in serve)} has not acquired it"
    if state == "acquired" and pod is None:
        own = [item for item in snapshot.runner_sets if runner_sets.set_name(item) == job["scale_set"]]
        events = [snapshot.events.get((runner_sets.KIND, item["metadata"]["name"]), ()) for item in own]
        refused = [event for of_set in events for event in of_set if event["reason"] == "FailedCreate"]
        return pods.clause(refused[-1]["message"]) if refused else "no pod was made for it yet"
    if pod is not None and pods.is_unschedulable(pod):
        return pods.unschedulable_reason(pod)
    return {"acquired": "its pod does not run yet", "running": "its end"}.get(state, "")


def _labels(scale_set: Object) -> set[str]:
    return {label["name"].casefold() for label in scale_set["labels"]} | {scale_set["name"].casefold()}


def _history(job: Object) -> dict[str, float]:
    """Return when each state was last entered."""
    return {entry["state"]: float(entry["at"]) for entry in job["history"]}


def _when(event: Object) -> str:
    return str(event.get("eventTime") or event.get("firstTimestamp") or event.get("lastTimestamp") or "")


def _instant(text: str | None, at_least: float | None) -> float | None:
    """Parse a time of Kubernetes'. Whole seconds are rounded down: within its second, it is not before `at_least`."""
    if not text:
        return None
    at = datetime.datetime.fromisoformat(text).timestamp()
    if "." not in text and at_least is not None and at <= at_least < at + 1:
        return at_least
    return at
