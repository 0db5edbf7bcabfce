"""Reasons in the logs of ARC's listener and controller, by the messages of ARC 0.14.2 and its client scaleset 0.4.0.

Read 2026-11-25: cmd/ghalistener/main.go, main.go and the controller of AutoscalingRunnerSets; client.go, errors.go and
session_client.go of github.com/actions/scaleset. GitHub's own words are those of ARC's issues 4285 and 3942.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from paddock.errors import one_line
from paddock.operate.snapshot.logs import CONTROLLER
from paddock.operate.snapshot.model import NOT_READ, Object, Snapshot

_SHOWN = 300
_LAST_WORDS = re.compile(r"Application returned an error: |Failed to read config: ")
"""What a listener prints before it ends with 1."""
_ERROR = re.compile(r"\bERROR\b|\"severity\": ?\"(?:ERROR|error)\"")
_TO_GITHUB = r"(?:request \w+|(?:Get|Post|Patch|Put|Delete) \\*\") ?https?://[\w.-]*[a-zA-Z][\w.-]*"
"""A request to a host with a name. Those to the cluster's API go to an address of numbers."""


@dataclass(frozen=True, slots=True)
class _Fault:
    """A message, and the runbook of each link whose log may have it; empty where it cannot."""

    message: re.Pattern[str]
    listener: str = ""
    scale_set: str = ""


def _fault(message: str, listener: str = "", scale_set: str = "") -> _Fault:
    return _Fault(re.compile(message), listener, scale_set)


FAULTS: Final = (
    # What is more special first: a 403 may be a rate limit.
    _fault(
        r"failed to parse RSA private key from PEM|failed to create JWT for GitHub app|AppConfig validation failed",
        "listener-key-broken",
        "scale-set-key-broken",
    ),
    _fault(
        r"API rate limit exceeded|secondary rate limit|status=\\*\"429 ",
        "listener-rate-limited",
        "scale-set-rate-limited",
    ),
    _fault(r"has an IP allow list enabled", "listener-address-not-allowed", "scale-set-address-not-allowed"),
    _fault(r"RunnerScaleSetSessionConflictException|already has an active session", "listener-session-conflict"),
    _fault(r"RunnerScaleSetNotFoundException", "listener-set-unknown"),
    _fault(r"could not patch ephemeral runner set.*not found", "listener-stale"),
    _fault(r"no runner group found with name", "", "scale-set-group-missing"),
    _fault(
        r"failed to get access token for GitHub App auth \(401 |failed to get runner registration token \(401 ",
        "listener-app-refused",
        "scale-set-app-refused",
    ),
    _fault(
        r"failed to get access token for GitHub App auth \(404 |failed to get runner registration token \(404 ",
        "listener-app-elsewhere",
        "scale-set-app-elsewhere",
    ),
    _fault(
        r"failed to get runner registration token \(403 |failed to get access token for GitHub App auth \(403 "
        r"|Resource not accessible by ",
        "listener-app-rights",
        "scale-set-app-rights",
    ),
    _fault(
        rf"{_TO_GITHUB}.*(?:x509: |tls: failed to verify certificate)",
        "listener-certificate",
        "scale-set-certificate",
    ),
    _fault(rf"{_TO_GITHUB}.*(?:proxyconnect tcp|Proxy Authentication Required)", "listener-proxy", "scale-set-proxy"),
    _fault(
        rf"{_TO_GITHUB}.*(?:no such host|server misbehaving|i/o timeout|connection refused|connection reset by peer"
        r"|network is unreachable|no route to host|context deadline exceeded|Client\.Timeout exceeded)",
        "listener-no-network",
        "scale-set-no-network",
    ),
    _fault(rf"{_TO_GITHUB}.*status=\\*\"5\d\d ", "listener-github-fails", "scale-set-github-fails"),
    # A session without the address of its queue, as GitHub gave it in its fault of 2026-07-25 (ARC 4370).
    _fault(r"(?:Get|GET) \\*\"\\*\": unsupported protocol scheme", "listener-github-fails"),
)
_NO_CRDS = re.compile(r"if kind is a CRD, it should be installed before calling Start|no matches for kind")
"""controller-runtime's words where a kind that is watched has no CRD."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A runbook, empty where the log names no known reason, and what there is to say of the log."""

    runbook: str = ""
    evidence: str = ""


def of_listener(snapshot: Snapshot, namespace: str, pod: str) -> Finding:
    """Return why a listener ended, by its last words or those of the one before it.

    Every pod that a listener has had has its name, so that those of an earlier reading count, too.
    """
    before = snapshot.earlier.logs if snapshot.earlier else ()
    logs = [log for log in (*snapshot.logs, *before) if _is_of(log, namespace, pod)]
    for log in sorted(logs, key=lambda log: bool(log["previous"])):
        line = next((line for line in _upwards(log) if _LAST_WORDS.search(line)), "")
        if line:
            fault = next((fault for fault in FAULTS if fault.listener and fault.message.search(line)), None)
            return Finding(fault.listener if fault else "", _quoted(line))
    return _unclear(snapshot, logs)


def of_controller(snapshot: Snapshot, namespace: str, runner_set: str) -> Finding:
    """Return why the controller does not register a scale set, by the last error that names it."""
    # zap writes a NamespacedName as JSON; older versions as namespace/name.
    about = re.compile(
        rf'"name": ?"{re.escape(runner_set)}", ?"namespace": ?"{re.escape(namespace)}"'
        rf'|"{re.escape(namespace)}/{re.escape(runner_set)}"'
    )
    logs = [log for log in snapshot.logs if _is_controllers(snapshot, log)]
    for log in sorted(logs, key=lambda log: bool(log["previous"])):
        line = next((line for line in _upwards(log) if _ERROR.search(line) and about.search(line)), "")
        if line:
            fault = next((fault for fault in FAULTS if fault.scale_set and fault.message.search(line)), None)
            return Finding(fault.scale_set if fault else "", _quoted(line, "the controller's log says of it"))
    return Finding("", _unread(snapshot, "the controller's log"))


def of_controllers_end(snapshot: Snapshot, namespace: str) -> Finding:
    """Return why a namespace's controller ends."""
    logs = [log for log in snapshot.logs if _is_controllers(snapshot, log)]
    logs = [log for log in logs if log["metadata"]["namespace"] == namespace]
    for log in sorted(logs, key=lambda log: bool(log["previous"])):
        line = next((line for line in _upwards(log) if _ERROR.search(line)), "")
        if line:
            return Finding("controller-without-crds" if _NO_CRDS.search(line) else "", _quoted(line))
    return _unclear(snapshot, logs)


def _unclear(snapshot: Snapshot, logs: list[Object]) -> Finding:
    """Return the last line as evidence, where no message is known."""
    line = next((line for log in logs for line in _upwards(log)), "")
    return Finding("", _quoted(line) if line else _unread(snapshot))


def _unread(snapshot: Snapshot, whose: str = "its log") -> str:
    reading = snapshot.logs
    return "" if reading.known or reading is NOT_READ else f"; {whose} is not known: {reading.reason}"


def _quoted(line: str, whose: str = "its log ends") -> str:
    words = line.strip()
    at = _LAST_WORDS.search(words)
    words = words[at.start() :] if at else words
    shown = words if len(words) <= _SHOWN else f"{words[: _SHOWN // 3]} ... {words[-_SHOWN * 2 // 3 :]}"
    return f"; {whose}: {one_line(shown)}"


def _upwards(log: Object) -> Iterator[str]:
    """Yield the lines of a log from its end."""
    return (line for line in reversed(str(log["text"]).splitlines()) if line.strip())


def _is_of(log: Object, namespace: str, pod: str) -> bool:
    return (log["metadata"]["namespace"], log["metadata"]["name"]) == (namespace, pod)


def _is_controllers(snapshot: Snapshot, log: Object) -> bool:
    return any(
        _is_of(log, str(pod["metadata"].get("namespace")), str(pod["metadata"]["name"]))
        for pod in snapshot.pods
        if (pod["metadata"].get("labels") or {}).items() >= CONTROLLER.items()
    )
