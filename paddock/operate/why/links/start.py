"""From a pod on a node to a job that runs: image, container, and the runner's registration."""

from __future__ import annotations

import re
from datetime import timedelta

from paddock.errors import one_line
from paddock.operate.snapshot.model import Object, Snapshot, happened, name
from paddock.operate.why.choice import IDLE_LONG, at_github, up_for
from paddock.operate.why.links.evidence import (
    PULL_REASONS,
    condition,
    containers,
    failures,
    latest,
    phase,
    span,
    spec_of,
    stuck_containers,
    terminated,
    text,
)
from paddock.operate.why.objects import key_of, work_of
from paddock.operate.why.outcome import Outcome, broken, ok, unknown, unread, waits
from paddock.operate.why.subject import Subject

_STARTS = timedelta(minutes=5)
_PULLS = timedelta(minutes=45)
"""Time that an image of tens of gigabytes may take. Longer than that nobody knows why."""
_REGISTERS = timedelta(minutes=2)
_SETTLES = timedelta(minutes=2)
"""Time that mounts and network of a pod may fail: at first they often do once, and then work."""

# What registries and the runtime say -> runbook. The first that matches counts.
PULL_FAILURES: tuple[tuple[str, str], ...] = (
    (r"no space left on device", "node-disk-full"),
    (r"is not present with pull policy of Never", "image-never-pulled"),
    # A digest or an account's number may have any three digits in a row.
    (r"toomanyrequests|\b429 Too Many Requests|status(?: code)?:? 429\b|rate limit", "image-rate-limit"),
    (r"no match for platform|no matching manifest|exec format", "image-platform"),
    (r"proxyconnect tcp|Proxy Authentication Required", "image-proxy"),
    (r"\.s3[.\w-]*\.amazonaws\.com(?:\.cn)?/\S*: 403 Forbidden", "image-layers-denied"),
    (
        r"unauthorized|authentication required|denied|403 Forbidden|no basic auth|authorization failed|not authorized"
        r"|401 Unauthorized",
        "image-denied",
    ),
    (r"not found|manifest unknown|does not exist|repository .* not", "image-not-there"),
    (
        r"connection reset by peer|unexpected EOF|\": EOF|broken pipe|http2: client connection lost"
        r"|failed size validation|unexpected commit digest",
        "image-transfer-cut",
    ),
    (
        r"i/o timeout|no such host|connection refused|dial tcp|x509|TLS handshake|deadline exceeded",
        "registry-unreachable",
    ),
    (
        r"\b(?:500 Internal Server Error|502 Bad Gateway|503 Service Unavailable|504 Gateway Time-?out)",
        "registry-fails",
    ),
)
_TOO_OFTEN = re.compile(r"pull QPS exceeded")
"""The kubelet's own limit of pulls a second, by which it puts off some of those of a new node."""
# Why a pod's sandbox is not made -> runbook. The first that matches counts.
_SANDBOX: tuple[tuple[str, str], ...] = (
    (r"no runtime for \S+ is configured", "node-runtime-missing"),
    (r"failed to get sandbox image", "sandbox-image"),
    (r"failed to reserve sandbox name|code = DeadlineExceeded|containerd\.sock", "sandbox-stuck"),
)
_CUDA = re.compile(r"unsatisfied condition: cuda|requirement error|cuda>=", re.IGNORECASE)
_MISMATCH = re.compile(r"driver/library version mismatch", re.IGNORECASE)
_DRIVER_INSIDE = re.compile(r"mount error: file creation failed: \S*(?:nvidia|libcuda)\S*: file exists", re.IGNORECASE)
_NO_RUNNER = re.compile(r"/home/runner/run\.sh.*no such file|no such file.*/home/runner/run\.sh")


def image_pull(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the pod's containers start."""
    pod, before = subject.pod, failures(subject.runner)
    if pod is None:
        return _failed_before(snapshot, subject) or unknown(_no_reason(subject), _events_of(subject.runner))
    namespace, own = key_of(pod)
    names = {"name": own, "namespace": namespace}
    for container, reason, message in stuck_containers(pod):
        return _stuck(snapshot, pod, container, reason, message, names)
    for container in containers(pod):
        ended = terminated(container)
        if ended.get("reason") in ("StartError", "ContainerCannotRun"):
            detail = one_line(str(ended.get("message") or ""))
            return _not_started(f"{name(pod)}: {ended['reason']}: {detail}", container, names)
    if phase(pod) in ("Running", "Succeeded", "Failed"):
        return ok("its containers have started")
    creating = _creating(snapshot, pod, names)
    return (_failed_before(snapshot, subject) if before and creating.status != "broken" else None) or creating


def _failed_before(snapshot: Snapshot, subject: Subject) -> Outcome | None:
    """Return why earlier pods of the runner did not start, by their events: ARC has deleted them."""
    item, before = subject.runner, failures(subject.runner)
    if item is None or not before:
        return None
    namespace, own = key_of(item)
    template = (item.get("spec") or {}).get("spec") or {}
    image = next(
        (container.get("image") for container in template.get("containers") or [] if container.get("name") == "runner"),
        "",
    )
    now = (subject.pod or {"metadata": {}})["metadata"].get("uid")
    for event in reversed(snapshot.events_named({"kind": "Pod", "metadata": item["metadata"]})):
        message = one_line(str(event.get("message") or ""))
        of_another = event["involvedObject"].get("uid") != now or now is None
        if event.get("reason") == "Failed" and message.startswith("Error:") and of_another:
            evidence = f"{len(before)} pods of {name(item)} have failed; the last: {message}"
            return _not_started(evidence, {"image": image}, {"name": own, "namespace": namespace})
    return None


def _no_reason(subject: Subject) -> str:
    item, before = subject.runner, failures(subject.runner)
    if item is None or not before:
        return "there is no pod"
    return f"{len(before)} pods of {name(item)} have failed, and no event says why"


def _events_of(item: Object | None) -> str:
    if item is None:
        return ""
    namespace, own = key_of(item)
    return f"kubectl -n {namespace} get events --field-selector involvedObject.name={own}"


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
        evidence = f"{image}: {reason}: {answer}"
        if _TOO_OFTEN.search(answer):
            young = snapshot.age(pod) < _PULLS
            return waits(evidence) if young else unknown(evidence, "registryPullQPS in the kubelet's settings")
        return broken(launch(answer) or "image-failed", evidence, **names)
    if reason == "CreateContainerConfigError":
        return broken("container-configuration", f"{name(pod)}: {message}", **names)
    return _not_started(f"{name(pod)}: {reason}: {message}", container, names)


def launch(answer: str) -> str:
    """Return the runbook of a registry's answer, and nothing for one that says nothing known."""
    return next((id_ for pattern, id_ in PULL_FAILURES if re.search(pattern, answer, re.IGNORECASE)), "")


def _not_started(evidence: str, container: Object, names: dict[str, str]) -> Outcome:
    names = {"image": str(container.get("image", "")), **names}
    if _MISMATCH.search(evidence):
        return broken("driver-mismatch", evidence, **names)
    if _CUDA.search(evidence):
        return broken("cuda-too-new", evidence, **names)
    if _DRIVER_INSIDE.search(evidence):
        return broken("driver-in-image", evidence, **names)
    if _NO_RUNNER.search(evidence):
        return broken("runner-program-missing", evidence, **names)
    return broken("container-start", evidence, **names)


def _creating(snapshot: Snapshot, pod: Object, names: dict[str, str]) -> Outcome:
    for reasons, runbook in _PREPARATION:
        if failure := _still(snapshot, pod, *reasons):
            newest, since = failure
            evidence = f"{name(pod)}: {text(newest)}"
            if runbook == "pod-network":
                runbook = _sandbox(evidence)
            return waits(evidence) if since < _SETTLES else broken(runbook, evidence, **names)
    if event := latest(snapshot, pod, "Pulling"):
        since = snapshot.since(happened(event))
        evidence = f"{name(pod)}: {text(event)}, for {span(since)}"
        return waits(evidence) if since < _PULLS else unknown(evidence, "kubectl describe pod shows if it proceeds")
    if at_work := next(
        (container for container in containers(pod) if (container.get("state") or {}).get("running")), None
    ):
        since = snapshot.since(at_work["state"]["running"].get("startedAt"))
        return waits(f"container {at_work['name']} of {name(pod)} has been running before the runner for {span(since)}")
    age = snapshot.age(pod)
    evidence = f"the containers of {name(pod)} have not started, {span(age)} after it was made, and no event says why"
    return (
        waits(evidence)
        if age < _STARTS
        else unknown(evidence, f"kubectl -n {names['namespace']} describe pod {names['name']}")
    )


def _sandbox(words: str) -> str:
    """Return the runbook of a sandbox that is not made: its network, where nothing else is known."""
    return next((id_ for pattern, id_ in _SANDBOX if re.search(pattern, words)), "pod-network")


_PREPARATION = (
    (("FailedMount", "FailedAttachVolume"), "volume-not-mounted"),
    (("FailedCreatePodSandBox",), "pod-network"),
)


def _still(snapshot: Snapshot, pod: Object, *reasons: str) -> tuple[Object, timedelta] | None:
    """Return the newest failure of a pod's mounts or network, and for how long it fails; None where that is over."""
    if condition(pod, "PodReadyToStartContainers").get("status") == "True":
        return None
    if any((container.get("state") or {}).keys() & {"running", "terminated"} for container in containers(pod)):
        return None
    over = latest(snapshot, pod, "Pulling", "Pulled")
    times = str(happened(over)) if over else ""
    failed = [
        event for event in snapshot.events_of(pod) if event.get("reason") in reasons and str(happened(event)) > times
    ]
    if not failed:
        return None
    first = max(snapshot.since(event.get("firstTimestamp") or happened(event)) for event in failed)
    return failed[-1], first


def registration(snapshot: Snapshot, subject: Subject) -> Outcome:
    """Judge whether the runner is connected to GitHub and has its job."""
    pod = subject.pod
    if pod is None:
        return unknown("there is no pod")
    namespace, own = key_of(pod)
    names = {"name": own, "namespace": namespace}
    for container in containers(pod):
        ended = terminated(container)
        if ended.get("reason") == "OOMKilled":
            return broken("out-of-memory", f"container {container['name']} of {name(pod)} was OOMKilled", **names)
        known = ended.get("reason") != "ContainerStatusUnknown"  # what the kubelet writes of one that it has lost
        if known and (container.get("state") or {}).get("terminated") and ended.get("exitCode"):
            evidence = f"container {container['name']} of {name(pod)} ended with exit code {ended['exitCode']}"
            return broken("runner-ended", f"{evidence} ({ended.get('reason') or 'no reason'})", **names)
    if phase(pod) == "Succeeded":
        return ok("the runner has done its job", ends=True)
    if phase(pod) == "Failed":
        status = pod.get("status") or {}
        detail = one_line(f"{status.get('reason') or 'no reason'}: {status.get('message') or 'no message'}")
        return unknown(f"{name(pod)} has failed: {detail}", f"kubectl -n {namespace} describe pod {own}")
    if work := work_of(subject.runner or {}):
        return ok(f"the runner has the job {work}", ends=True)
    if not snapshot.github_runners.known:
        return unread(snapshot.github_runners, "runners at GitHub")
    return _at_github(snapshot, subject, subject.steers or pod, names)


def _at_github(snapshot: Snapshot, subject: Subject, pod: Object, names: dict[str, str]) -> Outcome:
    there, since = at_github(snapshot, pod), up_for(snapshot, pod)
    state = "does not know the runner" if there is None else f"says {there.get('status')}"
    evidence = f"{key_of(pod)[1]} has been running for {span(since)}, and GitHub {state}"
    if there is not None and there.get("status") == "online":
        return _assigned(snapshot, subject, evidence, since)
    if since < _REGISTERS:
        return waits(evidence)
    return broken("runner-not-registered" if there is None else "runner-offline", evidence, **names)


def _assigned(snapshot: Snapshot, subject: Subject, evidence: str, since: timedelta) -> Outcome:
    """Judge a runner that is online: for a queued job it is of use only once GitHub assigns the job."""
    if subject.job is None or not subject.queued:
        return ok(evidence, ends=True)
    waited = snapshot.since(subject.job.get("created_at"), "github")
    evidence = f"{evidence} and idle, while the job waits for {span(waited)}"
    if min(waited, since) <= IDLE_LONG:
        return waits(evidence)
    return unknown(
        f"{evidence}: GitHub has not assigned it",
        "the runner group's repositories in GitHub's settings; a set of the same labels elsewhere",
    )
