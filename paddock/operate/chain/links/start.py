"""From a pod on a node to a job that runs: image, container, and the runner's registration."""

from __future__ import annotations

import re
from datetime import timedelta

from paddock.errors import one_line
from paddock.operate.chain.links.evidence import (
    PULL_REASONS,
    containers,
    latest,
    phase,
    span,
    spec_of,
    stuck_containers,
    terminated,
    text,
)
from paddock.operate.chain.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.chain.subject import Subject
from paddock.operate.snapshot.model import Object, Snapshot, happened, name

_STARTS = timedelta(minutes=5)
_PULLS = timedelta(minutes=45)
"""Time that an image of tens of gigabytes may take. Longer than that nobody knows why."""
_REGISTERS = timedelta(minutes=2)

# What registries and the runtime say -> runbook. The first that matches counts.
PULL_FAILURES: tuple[tuple[str, str], ...] = (
    (r"no space left on device", "node-disk-full"),
    (r"toomanyrequests|429|rate limit", "image-rate-limit"),
    (r"no match for platform|no matching manifest|exec format", "image-platform"),
    (
        r"unauthorized|authentication required|denied|403 Forbidden|no basic auth|authorization failed|not authorized"
        r"|401 Unauthorized",
        "image-denied",
    ),
    (r"not found|manifest unknown|does not exist|repository .* not", "image-not-there"),
    (
        r"i/o timeout|no such host|connection refused|dial tcp|x509|TLS handshake|deadline exceeded",
        "registry-unreachable",
    ),
)
_CUDA = re.compile(
    r"unsatisfied condition: cuda|requirement error|driver/library version mismatch|cuda>=", re.IGNORECASE
)
_NO_RUNNER = re.compile(r"/home/runner/run\.sh.*no such file|no such file.*/home/runner/run\.sh")


def image_pull(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the pod's containers start."""
    pod = subject.pod
    if pod is None:
        return unknown("there is no pod")
    meta = pod["metadata"]
    names = {"name": str(meta["name"]), "namespace": str(meta["namespace"])}
    for container, reason, message in stuck_containers(pod):
        return _stuck(snapshot, pod, container, reason, message, names)
    for container in containers(pod):
        ended = terminated(container)
        if ended.get("reason") in ("StartError", "ContainerCannotRun", "ContainerStatusUnknown"):
            said = one_line(str(ended.get("message") or ""))
            return _not_started(f"{name(pod)}: {ended['reason']}: {said}", container, names)
    if phase(pod) in ("Running", "Succeeded", "Failed"):
        return ok("its containers have started")
    return _creating(snapshot, pod, names)


def _stuck(
    snapshot: Snapshot, pod: Object, container: Object, reason: str, message: str, names: dict[str, str]
) -> Outcome:
    image = str(container.get("image") or spec_of(pod, str(container.get("name"))).get("image", ""))
    names = {**names, "image": image}
    if reason == "InvalidImageName":
        return broken("image-name-invalid", f"{image}: {message}", **names)
    if reason in PULL_REASONS:
        # The status says "Back-off pulling image" after a while; the registry's answer is in the event.
        failed = [event for event in snapshot.events_of(pod) if event.get("reason") == "Failed"]
        answers = [one_line(str(event.get("message", ""))) for event in failed]
        pulled = [answer for answer in answers if "pull" in answer.lower()]
        answer = message if launch(message) else (pulled[-1] if pulled else message)
        return broken(launch(answer) or "image-failed", f"{image}: {reason}: {answer}", **names)
    if reason == "CreateContainerConfigError":
        return broken("container-configuration", f"{name(pod)}: {message}", **names)
    return _not_started(f"{name(pod)}: {reason}: {message}", container, names)


def launch(answer: str) -> str:
    """Return the runbook of a registry's answer, and nothing for one that says nothing known."""
    return next((id_ for pattern, id_ in PULL_FAILURES if re.search(pattern, answer, re.IGNORECASE)), "")


def _not_started(evidence: str, container: Object, names: dict[str, str]) -> Outcome:
    names = {"image": str(container.get("image", "")), **names}
    if _CUDA.search(evidence):
        return broken("cuda-too-new", evidence, **names)
    if _NO_RUNNER.search(evidence):
        return broken("runner-program-missing", evidence, **names)
    return broken("container-start", evidence, **names)


def _creating(snapshot: Snapshot, pod: Object, names: dict[str, str]) -> Outcome:
    if event := latest(snapshot, pod, "FailedMount", "FailedAttachVolume"):
        return broken("volume-not-mounted", f"{name(pod)}: {text(event)}", **names)
    if event := latest(snapshot, pod, "FailedCreatePodSandBox"):
        return broken("pod-network", f"{name(pod)}: {text(event)}", **names)
    if event := latest(snapshot, pod, "Pulling"):
        since = snapshot.since(happened(event))
        evidence = f"{name(pod)}: {text(event)}, since {span(since)}"
        return waits(evidence) if since < _PULLS else unknown(evidence, "kubectl describe pod shows if it goes on")
    age = snapshot.age(pod)
    evidence = f"the containers of {name(pod)} have not started, {span(age)} after it was made, and no event says why"
    return (
        waits(evidence)
        if age < _STARTS
        else unknown(evidence, f"kubectl -n {names['namespace']} describe pod {names['name']}")
    )


def registration(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the runner is connected to GitHub and has its job."""
    pod = subject.pod
    if pod is None:
        return unknown("there is no pod")
    meta = pod["metadata"]
    names = {"name": str(meta["name"]), "namespace": str(meta["namespace"])}
    for container in containers(pod):
        ended = terminated(container)
        if ended.get("reason") == "OOMKilled":
            return broken("out-of-memory", f"container {container['name']} of {name(pod)} was OOMKilled", **names)
        if (container.get("state") or {}).get("terminated") and ended.get("exitCode"):
            evidence = f"container {container['name']} of {name(pod)} ended with exit code {ended['exitCode']}"
            return broken("runner-ended", f"{evidence} ({ended.get('reason') or 'no reason'})", **names)
    if phase(pod) == "Succeeded":
        return ok("the runner has done its job", ends=True)
    if phase(pod) == "Failed":
        status = pod.get("status") or {}
        said = one_line(f"{status.get('reason') or 'no reason'}: {status.get('message') or 'no message'}")
        return unknown(
            f"{name(pod)} has failed: {said}", f"kubectl -n {names['namespace']} describe pod {names['name']}"
        )
    work = ((subject.runner or {}).get("status") or {}).get("jobDisplayName") or (
        (subject.runner or {}).get("status") or {}
    ).get("jobId")
    if work:
        return ok(f"the runner has the job {work}", ends=True)
    if not snapshot.github_runners.known:
        return unread(snapshot.github_runners, "runners at GitHub")
    return _at_github(snapshot, subject.steers or pod, names)


def _at_github(snapshot: Snapshot, pod: Object, names: dict[str, str]) -> Outcome:
    own = str(pod["metadata"]["name"])
    there = next((one for one in snapshot.github_runners if one.get("name") == own), None)
    since = snapshot.since((pod.get("status") or {}).get("startTime") or pod["metadata"].get("creationTimestamp"))
    state = "has no such runner" if there is None else f"says {there.get('status')}"
    evidence = f"{own} runs since {span(since)}, and GitHub {state}"
    if there is not None and there.get("status") == "online":
        return ok(evidence, ends=True)
    if since < _REGISTERS:
        return waits(evidence)
    return broken("runner-not-registered" if there is None else "runner-offline", evidence, **names)
