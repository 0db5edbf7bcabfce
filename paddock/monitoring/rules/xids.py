"""Rules over Xids, one for each action that the catalogue asks for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from paddock.catalog.xids import xids
from paddock.monitoring.rules.alert import Alert, Group, Recording, Severity

LAST = "gpu:dcgm_xid:last"
"""One series a GPU, with the number of its last Xid as label `xid`: dcgm-exporter publishes it as the value.

A GPU without any Xid may have no series at all, so that a change of the value would miss its first one.
"""


@dataclass(frozen=True, slots=True)
class _Response:
    name: str
    severity: Severity
    action: str
    lasts: bool
    """Whether the alert stands as long as this is the GPU's last Xid; the others go after half an hour."""


_RESPONSES = {
    "reset": _Response("GpuXidReset", "critical", "drain the node, then reset the GPU", True),
    "reboot": _Response("GpuXidReboot", "critical", "drain the node, then replace or reboot it", True),
    "replace": _Response("GpuXidReplace", "critical", "drain the node and replace it", True),
    "driver": _Response(
        "GpuXidDriver", "warning", "drain the node; nvidia-smi -q names the action that the driver asks for", True
    ),
    "restart-app": _Response(
        "GpuXidJob", "info", "the GPU is fine: the job that ran there then has the fault, see its log", False
    ),
}  # fmt: skip


def codes() -> dict[str, list[int]]:
    """Return the Xids by what is to be done about them, those to ignore included."""
    by_action: dict[str, list[int]] = defaultdict(list)
    for code, xid in sorted(xids().items()):
        action = xid.then or "driver" if xid.action == "workflow" else xid.action
        by_action[action].append(code)
    return dict(by_action)


def _alerts() -> Iterator[Alert]:
    by_action = codes()
    summary = "GPU {{ $labels.gpu }} of {{ $labels.Hostname }}: Xid {{ $labels.xid }}"
    for action, response in _RESPONSES.items():
        last = f'{LAST}{{xid=~"{_any(by_action[action])}"}}'
        new = last if response.lasts else f"{last} unless {LAST} offset 30m"
        yield Alert(response.name, new, 1, response.severity, summary, response.action)
    known = _any([code for numbers in by_action.values() for code in numbers])
    yield Alert(
        "GpuXidUnknown",
        f'{LAST}{{xid!~"{known}"}} unless {LAST} offset 30m',
        1,
        "warning",
        f"{summary}, of which no source says what to do",
        "drain the node and ask NVIDIA's support",
    )


def _any(numbers: list[int]) -> str:
    return "|".join(map(str, sorted(numbers)))


XIDS = Group(
    "gpu-xids",
    (
        Recording(
            LAST,
            'count_values by (Hostname, gpu, UUID, modelName) ("xid", DCGM_FI_DEV_XID_ERRORS > 0)',
        ),
        *_alerts(),
    ),
)
