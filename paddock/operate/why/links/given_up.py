"""Pods that a node's kubelet refused or ended, by the reason that it wrote."""

from __future__ import annotations

from paddock.errors import one_line
from paddock.operate.why.links.evidence import failures, phase
from paddock.operate.why.subject import Subject

_EVICTED = ("Evicted", "Preempting", "NodeShutdown", "Terminated", "NodeLost")
ADMISSION = "UnexpectedAdmissionError"
"""Reason of the kubelet for a device that it could not give a pod."""


def reason_of(subject: Subject) -> tuple[str, str]:
    """Return reason and message of a failed pod; where ARC has deleted it, of the last one of its runner."""
    if subject.pod is not None:
        status = (subject.pod.get("status") or {}) if phase(subject.pod) == "Failed" else {}
    else:
        status = ((subject.runner or {}).get("status") or {}) if failures(subject.runner) else {}
    return str(status.get("reason") or ""), one_line(str(status.get("message") or ""))


def evicted(reason: str) -> bool:
    """Return whether a node took back what it had given the pod."""
    return reason in _EVICTED


def too_full(reason: str) -> bool:
    """Return whether a node had no room when the pod came: its kubelet writes `OutOfcpu` and the like."""
    return reason.startswith("OutOf")


def link_of(subject: Subject) -> str:
    """Return the link at which the pods of a runner fail that has none now."""
    reason, _ = reason_of(subject)
    if evicted(reason) or too_full(reason):
        return "node"
    return "device-plugin" if reason == ADMISSION else "image-pull"
