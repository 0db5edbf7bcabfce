"""Logs that say more than objects do: those of ARC's listeners and controllers that end, without secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from paddock.fleet.model.github import GITHUB_TOKEN
from paddock.operate.snapshot.model import Object, Snapshot, happened

CONTROLLER = {"app.kubernetes.io/part-of": "gha-rs-controller", "app.kubernetes.io/component": "controller-manager"}
"""Labels of the controller's Deployment and of its pods."""
_SET_ID = "runner-scale-set-id"
_MOST_PODS = 8
_YOUNG = timedelta(minutes=2)
"""Age below which a pod in the place of others may end as they did."""
CRASHES = 3
"""Pods of one listener, or restarts of one pod, before it counts as one that ends again and again."""
RECENT = timedelta(minutes=10)
"""Time in which these are counted."""
_HIDDEN = "(hidden)"
_SECRETS = (
    re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL),
    re.compile(rf"\b{GITHUB_TOKEN}"),
    re.compile(r"\beyJ[\w-]{8,}(?:\.[\w-]*){0,2}"),
    re.compile(r"(?<=://)[^/\s@\"]+(?=@)"),
    re.compile(r"(?i)(?<=[?&])(?:[\w-]*(?:token|sig|signature|credential|secret|key)=)[^&\s\"]+"),
    re.compile(r"(?i)\b(?:bearer|remoteauth|basic) +[\w.~+/=-]{8,}"),
    re.compile(
        r"(?i)[\w-]*(?:token|password|secret|private_?key|jitconfig)\\?[\"']?\s*[:=]\s*\\?[\"']?[^\s\"',}\\]{8,}"
    ),
    # A key without its first line, and whatever else is encoded.
    re.compile(r"[A-Za-z0-9+/]{60,}={0,2}"),
)


def without_secrets(text: str) -> str:
    """Return a log with a mark in place of keys, tokens and what looks like one."""
    for pattern in _SECRETS:
        text = pattern.sub(_HIDDEN, text)
    return text


@dataclass(frozen=True, slots=True)
class Target:
    """A container whose log is read."""

    namespace: str
    pod: str
    container: str
    previous: bool
    follow: bool = False
    """True where it is read until the container ends: ARC then deletes the pod, and its log with it."""


def targets(snapshot: Snapshot) -> list[Target]:
    """Return the containers of listeners that end, and of controllers that do or that did not register a scale set."""
    listeners = {_place(item) for item in snapshot.listeners}
    unregistered = any(not str(_annotations(item).get(_SET_ID) or "").isdecimal() for item in snapshot.runner_sets)
    chosen = [
        pod
        for pod in snapshot.pods
        if (_place(pod) in listeners and (_in_trouble(pod) or _made_again(snapshot, pod)))
        or (_is_controller(pod) and (unregistered or _in_trouble(pod)))
    ]
    return [
        target
        for pod in chosen[:_MOST_PODS]
        for target in _containers(pod, follow=_place(pod) in listeners and _made_again(snapshot, pod))
    ]


def _made_again(snapshot: Snapshot, pod: Object) -> bool:
    """Return whether a listener's pod has taken the place of others a moment ago: ARC restarts none."""
    return snapshot.age(pod) < _YOUNG and pods_of(recent_events(snapshot, pod)) >= CRASHES


def recent_events(snapshot: Snapshot, item: Object) -> list[Object]:
    """Return the newer events of all pods that a listener has had: each has its name."""
    events = snapshot.events_named({"kind": "Pod", "metadata": item["metadata"]})
    return [event for event in events if snapshot.since(happened(event)) < RECENT]


def pods_of(events: Sequence[Object]) -> int:
    """Return of how many pods events are."""
    return len({uid for event in events if (uid := event["involvedObject"].get("uid"))})


def _in_trouble(pod: Object) -> bool:
    return any(
        status.get("restartCount") or "running" not in (status.get("state") or {}) for status in _statuses(pod)
    ) or (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded")


def _containers(pod: Object, *, follow: bool) -> Iterator[Target]:
    namespace, name = _place(pod)
    for container in pod["spec"]["containers"][:1]:  # the listener's and the manager's come first
        yield Target(namespace, name, str(container["name"]), previous=False, follow=follow)
        if any(status.get("restartCount") for status in _statuses(pod)):
            yield Target(namespace, name, str(container["name"]), previous=True)


def _is_controller(pod: Object) -> bool:
    return (pod["metadata"].get("labels") or {}).items() >= CONTROLLER.items()


def _statuses(pod: Object) -> list[Mapping[str, Any]]:
    return (pod.get("status") or {}).get("containerStatuses") or []


def _place(item: Object) -> tuple[str, str]:
    return str(item["metadata"].get("namespace") or ""), str(item["metadata"]["name"])


def _annotations(item: Object) -> Mapping[str, Any]:
    return item["metadata"].get("annotations") or {}


def document(target: Target, text: str) -> Object:
    """Return a log as an object of a snapshot."""
    return {
        "metadata": {"namespace": target.namespace, "name": target.pod},
        "container": target.container,
        "previous": target.previous,
        "text": without_secrets(text),
    }
